"""Which rules a node may have come from: those whose result has its form.

An e-graph tells in which class a rule's result landed, not in which node of it. A rule whose result
is a product cannot have made a sum; one that leaves a name alone may have made anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautile.options import NUMERICS, Options
from nautile.rules.law import (
    Call,
    Fold,
    Number,
    Pattern,
    Position,
    Repair,
    Rescaled,
    Round,
    Rule,
    Size,
    Stream,
    Streamed,
)
from nautile.rules.library import load, select
from nautile.snapshot import Node

__all__ = ["fits", "laws_of", "results_of"]


def laws_of(options: Options) -> Mapping[str, Rule]:
    """The rules that an optimization with these options had, by name."""
    rules = [*load(options.packs), *(r for pack in options.rules for r in load((pack,)))]
    return {rule.name: rule for rule in select(rules, NUMERICS[options.numerics])}


def results_of(rule: Rule) -> Sequence[Pattern]:
    """What a rule may put into a class: its right side, its left one too where it goes both ways,
    the running form of a fact."""
    if rule.conclusion is not None:
        return [rule.conclusion.running]
    sides = (rule.left, rule.right) if rule.two_way else (rule.right,)
    return [side for side in sides if side is not None]


def fits(node: Node, pattern: Pattern) -> bool:
    """Whether a term of the pattern can be written as the node; numbers may have been computed."""
    match pattern:
        case Call(operation, _):
            return (node.kind, node.payload) == ("apply", operation) or node.kind == "const"
        case Number() | Size():
            return node.kind == "const"
        case Position():
            return node.kind == "index"
        case Round():
            return node.kind == "cast"
        case Fold(monoid, _, _):
            return node.kind == "reduce" and node.payload[0] == monoid
        case Stream(moment, _, _, _):
            return node.kind == moment
        case Repair():
            return (node.kind, node.payload) == ("apply", "exp")
        case Rescaled() | Streamed():
            return node.kind == "online"
    return True
