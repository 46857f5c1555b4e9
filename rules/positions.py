"""What brackets behind a name and declared extents say of a law.

`a[j]` is a term that may depend on j, and on no other axis of the law. Where a term stands at
other positions, as in `sum[j: J](x[j]) >> sum[p: P](sum[q: Q](x[p*Q + q]))`, its first use with
plain axes says what it depends on, and the others replace those axes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from .conditions import Carrier, Compare, Condition, Kind, NotFree
from .law import (
    Access,
    Call,
    Name,
    Pattern,
    Position,
    Relation,
    Rule,
    Size,
    axes_of,
    names_of,
    over,
    parts,
    relation_parts,
)
from .patterns import Reader

__all__ = ["completed"]

_INDEX = ("add", "sub", "mul", "neg", "floordiv", "mod")


def completed(reader: Reader, node: ast.stmt, rule: Rule) -> Rule:
    """The law with terms at positions resolved, extents declared, and the kinds of its names that
    its form tells: upper-case names are sizes, operands of // and % integers."""
    formals = _formals(reader, node, rule)
    axes = dict.fromkeys(a for p in _patterns(rule) for a in axes_of(p))
    rule = _over_rule(rule, lambda pattern: _placed(reader, node, pattern, formals))
    barred = [NotFree(a, n) for n, own in formals.items() for a in axes if a not in own]
    rule = replace(rule, conditions=(*rule.conditions, *barred))
    rule = _extents(reader, rule)
    return replace(rule, conditions=(*rule.conditions, *_kinds(rule)))


def _patterns(rule: Rule) -> Iterator[Pattern]:
    yield from (s for s in (rule.left, rule.right) if s is not None)
    for relation in (*rule.premises, *([rule.conclusion] if rule.conclusion else [])):
        yield from relation_parts(relation)
    for condition in rule.conditions:
        if isinstance(condition, Carrier):
            yield condition.reduction
        elif isinstance(condition, Compare):
            yield from (condition.left, condition.right)


def _formals(reader: Reader, node: ast.stmt, rule: Rule) -> dict[str, tuple[str, ...]]:
    """The axes of each term that stands at positions."""
    found: dict[str, tuple[str, ...]] = {}
    seen = [p for s in _patterns(rule) for p in parts(s) if isinstance(p, Access)]
    for access in seen:
        axes = tuple(p.axis for p in access.indices if isinstance(p, Position))
        if len(set(axes)) == len(access.indices):
            found.setdefault(access.name, axes)
    for access in seen:
        wanted = found.get(access.name)
        if wanted is None:
            message = f"write {access.name} once over plain axes, as in {access.name}[j]"
            reader.refuse(node, "syntax", message)
        if len(wanted) != len(access.indices):
            message = f"{access.name} has {len(wanted)} axes here and {len(access.indices)} there"
            reader.refuse(node, "syntax", message)
    return found


def _placed(
    reader: Reader, node: ast.stmt, pattern: Pattern, formals: dict[str, tuple[str, ...]]
) -> Pattern:
    pattern = over(pattern, lambda p: _placed(reader, node, p, formals))
    if not isinstance(pattern, Access):
        return pattern
    axes = formals[pattern.name]
    if pattern.indices == tuple(map(Position, axes)):
        return Name(pattern.name)
    if not all(_is_index(i) for i in pattern.indices):
        reader.refuse(node, "syntax", f"positions of {pattern.name} are made of axes and sizes")
    return Access(pattern.name, axes, pattern.indices)


def _is_index(pattern: Pattern) -> bool:
    match pattern:
        case Call(operation, arguments):
            return operation in _INDEX and all(map(_is_index, arguments))
        case Name(name):
            return name[0].isupper()
    return isinstance(pattern, (Position, Size)) or type(getattr(pattern, "value", None)) is int


def _over_rule(rule: Rule, step: Callable[[Pattern], Pattern]) -> Rule:

    def side(pattern: Pattern | None) -> Pattern | None:
        return None if pattern is None else step(pattern)

    def relation(of: Relation) -> Relation:
        subject, carrier, slope, running, *centre = map(step, relation_parts(of))
        return Relation(of.relation, subject, carrier, slope, running, *centre)

    def condition(of: Condition) -> Condition:
        return Carrier(of.name, step(of.reduction)) if isinstance(of, Carrier) else of

    return replace(
        rule,
        left=side(rule.left),
        right=side(rule.right),
        conclusion=None if rule.conclusion is None else relation(rule.conclusion),
        premises=tuple(map(relation, rule.premises)),
        conditions=tuple(map(condition, rule.conditions)),
    )


def _extents(reader: Reader, rule: Rule) -> Rule:
    """Declared extents: of axes that are matched they are conditions, of others what they make."""
    matched = {a for p in [rule.left, *_bound(rule)] if p is not None for a in axes_of(p)}
    if rule.two_way and rule.right is not None:
        matched &= set(axes_of(rule.right))
    made = {a: e for a, e in reader.extents if a not in matched}
    asked = [Compare(Size(a), "==", e) for a, e in reader.extents if a in matched and e != Size(a)]
    return replace(rule, conditions=(*rule.conditions, *asked), extents=tuple(made.items()))


def _bound(rule: Rule) -> Iterator[Pattern]:
    if rule.conclusion is not None:
        yield rule.conclusion.subject
    for premise in rule.premises:
        yield from relation_parts(premise)
    for condition in rule.conditions:
        if isinstance(condition, Carrier):
            yield condition.reduction


def _kinds(rule: Rule) -> Iterator[Condition]:
    """The kinds of names that the form of the law tells."""
    said = {c.name for c in rule.conditions if isinstance(c, Kind)}
    every = [*_patterns(rule), *(e for _, e in rule.extents)]
    names = dict.fromkeys(n for p in every for n in names_of(p))
    sizes = [n for n in names if n[0].isupper()]
    yield from (Kind("size", n) for n in sizes)
    whole = dict.fromkeys(n for p in every for n in _divided(p))
    yield from (Kind("integer", n) for n in whole if n not in said and n not in sizes)


def _divided(pattern: Pattern) -> Iterator[str]:
    for part in parts(pattern):
        if isinstance(part, Call) and part.operation in ("floordiv", "mod"):
            yield from _scalar(part)


def _scalar(pattern: Pattern) -> Iterator[str]:
    """Names that a sum or product of integers is made of."""
    if isinstance(pattern, Name):
        yield pattern.name
    elif isinstance(pattern, Call) and pattern.operation in (*_INDEX, "max", "min"):
        for argument in pattern.arguments:
            yield from _scalar(argument)
