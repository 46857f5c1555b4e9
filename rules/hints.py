"""Words among a law's conditions that ask nothing of its terms: how it is to be run, and its bound.

The grammar is that of `nautile.rules.parser`.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from .law import Call, Rule
from .patterns import Reader

__all__ = ["APPROX", "hint"]

APPROX = "an approximate law says how far it is off: within(1e-3)"
_MATCHES = 1_000_000


def hint(reader: Reader, node: ast.expr, rule: Rule) -> Rule | None:
    """The law with a hint taken in; None where the expression is no hint."""
    match node:
        case ast.Name("instead"):
            if rule.two_way or rule.is_fact:
                message = "only a law left >> right can drop its left side"
                reader.refuse(node, "syntax", message)
            return replace(rule, instead=True)
        case ast.Name("parted"):
            if not _makes_product(rule):
                reader.refuse(node, "syntax", "only a law that makes a product of names is parted")
            return replace(rule, parted=True)
        case ast.Name("directed"):
            if not rule.two_way:
                reader.refuse(node, "syntax", "a law left >> right is directed as it stands")
            return replace(rule, directed=True)
        case ast.Call(ast.Name("backoff" | "deprecated" | "within" as word), arguments, []):
            return _valued(reader, node, word, arguments, rule)
    return None


def _valued(
    reader: Reader, node: ast.Call, word: str, arguments: list[ast.expr], rule: Rule
) -> Rule:
    match word, arguments:
        case "backoff", [ast.Constant(value)] if type(value) is int and 1 <= value <= _MATCHES:
            return replace(rule, limit=int(_number(value)))
        case "deprecated", [ast.Name(name)]:
            return replace(rule, deprecated=name)
        case "within", [ast.Constant(value)] if type(value) in (int, float):
            if rule.numerics == "approx" and 0 < _number(value) < 1:
                return replace(rule, bound=_number(value))
            reader.refuse(node, "syntax", "an approximate law has a bound between 0 and 1")
    forms = {"backoff": f"n), n from 1 to {_MATCHES}", "deprecated": "law)", "within": "1e-3)"}
    return reader.refuse(node, "arity", f"write {word}({forms[word]}")


def _number(value: Any) -> float:
    return float(min(max(value, -1e300), 1e300))


def _makes_product(rule: Rule) -> bool:
    sides = [rule.right, *([rule.left] if rule.two_way else [])]
    return all(isinstance(s, Call) and s.operation == "mul" for s in sides)
