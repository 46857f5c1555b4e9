"""Rewrite rules: the rule language, the shipped packs and the checker.

`law` holds rules as data, `parser` and `patterns` read packs, `library` finds them, `egglog` prints
rules for the e-graph, `check` decides whether a rule is sound, `shown` evaluates one at values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .law import Rule
from .library import CLASSES, describe, load, packs, select
from .parser import parse

if TYPE_CHECKING:
    from .shown import evaluate

__all__ = ["CLASSES", "Rule", "describe", "evaluate", "load", "packs", "parse", "select"]


def __getattr__(name: str) -> Any:
    """What needs the oracle is loaded where it is used."""
    if name == "evaluate":
        from .shown import evaluate

        return evaluate
    raise AttributeError(name)
