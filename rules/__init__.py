"""Rewrite rules: the rule language, the shipped packs and the checker.

`law` holds rules as data, `parser` and `patterns` read packs, `library` finds them, `egglog` prints
rules for the e-graph, `check` tests a rule against the oracle.
"""

from __future__ import annotations

from .law import Rule
from .library import CLASSES, describe, load, packs, select
from .parser import parse

__all__ = ["CLASSES", "Rule", "describe", "load", "packs", "parse", "select"]
