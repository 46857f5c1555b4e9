"""Proofs of laws, for all extents and ranks.

A law's equation over the reals is proved by one normal form of both sides (`nautile.rules.normal`),
or by z3 (`nautile.rules.smt`), all at once or for both values of a truth value that does not vary
inside. The bits of a law are proved where its names are integers and truth values (normal form over
these); where it only chooses among values, mentions the same ones on both sides, and chooses alike;
where both sides are one term once its truth values are known; or by z3 over binary32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from .conditions import Kind, NotFree
from .egglog import booleans
from .instance import patterns_of
from .law import Call, Fold, Name, Number, Pattern, Round, Rule, names_of, over, parts
from .normal import proved_by_normal_form
from .smt import proved_by_z3

__all__ = ["proof_of"]

_CASES = 3
_CHOICES = {"where", "and", "or", "not", "neg", "max", "min"}
_SELECTING = {"max", "min", "any", "all"}
_WHOLE = _CHOICES | {"add", "sub", "mul", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge"}


def proof_of(rule: Rule, kind: str, until: float = math.inf) -> str | None:
    """How the law's equation over the "reals" (or its "bits") is proved; None where it is not, or
    where the clock (`time.process_time`) is `until` before one is found."""
    if kind == "reals" and proved_by_normal_form(rule):
        return "normal form"
    if rule.conclusion is not None or rule.premises or not rule.is_applied:
        return None
    if kind == "bits":
        if _is_whole(rule) and proved_by_normal_form(rule):
            return "normal form of integers"
        if _chooses(rule) and proved_by_normal_form(rule):
            return "choices"
    cases = list(_cases(rule))
    if len(cases) > 1 and all(time.process_time() < until and _case(case, kind) for case in cases):
        return "cases"
    in_time = time.process_time() < until
    return "z3" if in_time and proved_by_z3(rule, kind) else None


def _case(rule: Rule, kind: str) -> bool:
    if rule.left == rule.right:
        return True
    formal = (kind == "reals" or _chooses(rule)) and proved_by_normal_form(rule)
    return formal or proved_by_z3(rule, kind)


def _is_whole(rule: Rule) -> bool:
    """True where all numbers are integers, whose arithmetic is exact."""
    whole = {c.name for c in rule.conditions if isinstance(c, Kind)
             and c.kind in ("integer", "size", "i32", "i64", "boolean", "bool")}  # fmt: skip
    whole |= {n for p in patterns_of(rule) for n in booleans(p)}
    for part in (p for s in patterns_of(rule) for p in parts(s)):
        match part:
            case Name(name) if name not in whole:
                return False
            case Number(value) if not isinstance(value, (bool, int)):
                return False
            case Call(operation, _) if operation not in _WHOLE:
                return False
            case Round():
                return False
    return True


def _chooses(rule: Rule) -> bool:
    """True where the law only chooses among values: equal for all real values, it chooses the same
    one. A maximum looks at all of its arguments, and hands NaN on: both sides mention the same."""
    assert rule.left is not None
    assert rule.right is not None
    every = [p for s in (rule.left, rule.right) for p in parts(s)]
    calls = {p.operation for p in every if isinstance(p, Call)}
    folds = {p.monoid for p in every if isinstance(p, Fold)}
    if calls - _CHOICES or folds - _SELECTING or any(isinstance(p, Round) for p in every):
        return False
    if any(isinstance(p, Number) and not isinstance(p.value, bool) for p in every):
        return False
    looks = bool({"max", "min"} & (calls | folds))
    alike = "where" not in calls and set(names_of(rule.left)) == set(names_of(rule.right))
    return alike or not looks


def _cases(rule: Rule) -> Iterator[Rule]:
    """The law for each choice of the truth values that do not vary inside of it."""
    assert rule.left is not None
    assert rule.right is not None
    sides = rule.left, rule.right
    axes = {p.axis for s in sides for p in parts(s) if isinstance(p, Fold)}
    barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
    truths = dict.fromkeys(n for s in sides for n in booleans(s))
    still = [n for n in truths if all((a, n) in barred for a in axes)][:_CASES]
    for values in product((True, False), repeat=len(still)):
        known = dict(zip(still, values, strict=True))
        left, right = (_decided(s, known) for s in sides)
        yield replace(rule, left=left, right=right)


def _decided(pattern: Pattern, known: dict[str, bool]) -> Pattern:
    """The pattern with truth values known, and what follows at once."""
    if isinstance(pattern, Name):
        return Number(known[pattern.name]) if pattern.name in known else pattern
    pattern = over(pattern, lambda p: _decided(p, known))
    match pattern:
        case Call("where", (Number(bool() as value), a, b)):
            return a if value else b
        case Call("not", (Number(bool() as value),)):
            return Number(not value)
        case Call("and" | "or" as operation, (a, b)):
            for one, other in ((a, b), (b, a)):
                if isinstance(one, Number) and isinstance(one.value, bool):
                    return other if one.value == (operation == "and") else one
        case Fold("sum", _, Number(value)) if value == 0 and str(value) in ("0", "0.0"):
            return Number(value)
    return pattern
