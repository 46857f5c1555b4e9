"""Example programs in the expression language, at realistic sizes (package data)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["paths"]


def paths() -> tuple[Path, ...]:
    """The shipped expression files, in alphabetical order."""
    return tuple(sorted(Path(__file__).parent.glob("*.nau")))
