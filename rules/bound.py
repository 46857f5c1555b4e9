"""Whether a law can be applied: all that a match builds is bound by what it matches."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .carriers import carriers_of, stream_axes
from .conditions import Bare, Carrier, Chain, Compare, Condition, Free, NotFree
from .law import (
    Moment,
    Name,
    Pattern,
    Repair,
    Rescaled,
    Rule,
    Stream,
    axes_of,
    names_of,
    parts,
    relation_parts,
)
from .patterns import Reader

__all__ = ["check_bound"]

_MADE = (Stream, Moment, Repair, Rescaled)


def check_bound(reader: Reader, node: ast.stmt, rule: Rule) -> None:
    """Refuse names and axes that nothing binds, and running values that a rewrite would match."""
    known = _bound_by(rule)
    made = [axis for axis, _ in rule.extents]
    names = {n for p in known for n in names_of(p)} | _constants(rule, made)
    axes = {*made, *(a for p in known for a in axes_of(p))}
    _check_known(reader, node, _used_by(rule), names, axes)
    if rule.two_way:
        assert rule.left is not None
        assert rule.right is not None
        back = {n for p in [rule.right, *known[1:]] for n in names_of(p)}
        ends = {a for p in [rule.right, *known[1:]] for a in axes_of(p)}
        _check_known(reader, node, [rule.left], back | _constants(rule, made), ends | {*made})
    for condition in rule.conditions:
        _check_condition(reader, node, condition, names, axes)
    _check_online(reader, node, rule)


def _constants(rule: Rule, made: list[str]) -> set[str]:
    """Sizes that the law may choose: those in the extents of axes that it makes."""
    if not made:
        return set()
    extents = [p for _, p in rule.extents]
    sides = [s for c in rule.conditions if isinstance(c, Compare) for s in (c.left, c.right)]
    return {n for p in [*extents, *sides] for n in names_of(p) if n[0].isupper()}


def _bound_by(rule: Rule) -> list[Pattern]:
    """The patterns that give names their meaning when the law is applied left to right."""
    known: list[Pattern] = [rule.left] if rule.left is not None else []
    if rule.conclusion is not None:
        known.append(rule.conclusion.subject)
    for premise in rule.premises:
        known += relation_parts(premise)
    for condition in rule.conditions:
        if isinstance(condition, Carrier):
            known += [Name(condition.name), condition.reduction]
    return known


def _used_by(rule: Rule) -> list[Pattern]:
    """The patterns that a match builds."""
    if rule.conclusion is not None:
        return list(relation_parts(rule.conclusion))
    assert rule.left is not None
    assert rule.right is not None
    return [rule.right]


def _check_known(
    reader: Reader, node: ast.stmt, built: list[Pattern], names: set[str], axes: set[str]
) -> None:
    for pattern in built:
        for name in names_of(pattern):
            if name not in names:
                place = _place(node, name)
                reader.refuse(place, "unbound", f"{name} is on one side only: nothing binds it")
        for axis in axes_of(pattern):
            if axis not in axes:
                reader.refuse(_place(node, axis), "unbound", f"axis {axis} is on one side only")


def _check_condition(
    reader: Reader, node: ast.stmt, condition: Condition, names: set[str], axes: set[str]
) -> None:
    asked: Iterable[str] = () if isinstance(condition, Compare) else (condition.name,)
    if isinstance(condition, Compare):
        sides = (condition.left, condition.right)
        asked = [n for side in sides for n in names_of(side)]
        for axis in (a for side in sides for a in axes_of(side)):
            if axis not in axes:
                reader.refuse(_place(node, axis), "unbound", f"no axis {axis} in this law")
    for name in asked:
        if name not in names:
            reader.refuse(_place(node, name), "unbound", f"no term {name} in this law")
    if isinstance(condition, (NotFree, Free, Bare, Chain)) and condition.axis not in axes:
        place = _place(node, condition.axis)
        reader.refuse(place, "unbound", f"no axis {condition.axis} in this law")


def _place(node: ast.stmt, name: str) -> ast.AST:
    """Where the law mentions a name last."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    return max(found, key=lambda n: (n.lineno, n.col_offset), default=node)


def _check_online(reader: Reader, node: ast.stmt, rule: Rule) -> None:
    """What moves with a carrier's running values knows what they are; and running values cannot be
    matched by a rewrite, but for those of a streamed sum."""
    carriers = carriers_of(rule)
    built = [rule.right] if rule.right is not None else list(_used_by(rule))
    for pattern in (p for b in built for p in parts(b)):
        name = _follows(pattern, known_running=bool(rule.premises))
        if name is None:
            continue
        axes = stream_axes(carriers[name]) if name in carriers else frozenset[str]()
        if not axes or (isinstance(pattern, Rescaled) and axes != {pattern.axis}):
            axis = pattern.axis if isinstance(pattern, Rescaled) else "j"
            reader.refuse(
                _place(node, "online"), "unbound",
                f"a running value needs its carrier: add {name} == max[{axis}](b)",
            )  # fmt: skip
    for side in [rule.left] + ([rule.right] if rule.two_way else []):
        if side is not None and any(isinstance(p, _MADE) for p in parts(side)):
            reader.refuse(node, "syntax", "running values cannot be matched, only made")


def _follows(pattern: Pattern, *, known_running: bool) -> str | None:
    """The carrier whose definition a pattern needs; a running value alone comes with a premise."""
    match pattern:
        case Rescaled(_, carrier, _, _) | Repair(carrier, _):
            return carrier
        case Moment(moment, Name(name)) if moment == "before" or not known_running:
            return name
    return None
