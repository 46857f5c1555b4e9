"""Who else computes a case, and what is true of it. Needs torch; nothing else of the package does.

A `Work` says how a case's inputs are drawn, gives its float64 truth on sampled places and the
rounding that its types force, and names the contestants that stand beside the generated kernels.
"""

from __future__ import annotations

from importlib import import_module

from ..case import Case
from .contestant import KINDS, Contestant, Work

__all__ = ["KINDS", "Contestant", "Work", "work_of"]


def work_of(case: Case) -> Work:
    """The work of a case; its family's module has the name of the program's file."""
    work: Work = import_module(f"{__name__}.{case.file}").work(case)
    return work
