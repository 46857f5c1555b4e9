"""The side condition that a refuted law lacks: the first of the language's that repairs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from .conditions import Compare, Condition, Kind, NotFree, Sign
from .egglog import booleans
from .guards import constants
from .instance import patterns_of
from .law import Call, Name, Number, Pattern, Rule, Size, axes_of, names_of

__all__ = ["missing", "spelled"]


def missing(rule: Rule, sound: Callable[[Rule], bool]) -> str | None:
    """The text of a condition with which `sound` holds of the law; None where none does alone."""
    for condition in _candidates(rule):
        if sound(replace(rule, conditions=(*rule.conditions, condition))):
            return spelled(condition, rule)
    return None


def _candidates(rule: Rule) -> Iterator[Condition]:
    """Conditions that the law does not have: of extents, of values, of dependence."""
    patterns = patterns_of(rule)
    axes = dict.fromkeys(a for p in patterns for a in axes_of(p))
    names = [n for n in dict.fromkeys(n for p in patterns for n in names_of(p)) if n[0].islower()]
    had = set(rule.conditions)
    yield from _divisible(rule, list(axes), names)
    signed = {c.name for c in rule.conditions if isinstance(c, Sign)}
    kinds = {c.name: c.kind for c in rule.conditions if isinstance(c, Kind)}
    truths = {n for p in patterns for n in booleans(p)}
    numbers = [n for n in names if kinds.get(n) != "boolean" and n not in truths]
    for relation in ("!=", ">=", "<=", ">", "<"):
        yield from (Sign(n, relation) for n in numbers if n not in signed)
    for n in numbers:
        if n in signed and Sign(n, ">=") in had:
            yield Sign(n, ">")
    for axis in axes:
        yield from (c for n in names if (c := NotFree(axis, n)) not in had)
    whole = constants(rule)
    constant = (Kind("finite", n) for n in numbers if n not in whole)
    yield from (c for c in constant if c not in had)
    running = [n for r in rule.premises for n in names_of(r.running)]
    tame = (Kind("tame", n) for n in dict.fromkeys(running))
    yield from (c for c in tame if c not in had)
    yield from (Compare(Size(a), ">", Number(1)) for a in axes)


def _divisible(rule: Rule, axes: list[str], names: list[str]) -> Iterator[Condition]:
    """One extent or integer is a multiple of another; a product of two is a third."""
    kinds = {c.name: c.kind for c in rule.conditions if isinstance(c, Kind)}
    sizes: list[Pattern] = [Name(n) for n, kind in kinds.items() if kind == "size"]
    declared = {a for a, e in rule.extents if e != Size(a)}
    sizes += [Size(a) for a in axes if a not in declared]
    if not rule.extents and not any(isinstance(s, Name) for s in sizes):
        return
    whole: list[Pattern] = [Name(n) for n in names if kinds.get(n) == "integer"]
    for divided in (*whole, *sizes):
        for by in sizes:
            if by != divided:
                yield Compare(Call("mod", (divided, by)), "==", Number(0))
    if rule.extents:
        for whole_, one, two in ((w, a, b) for w in sizes for a in sizes for b in sizes):
            if whole_ not in (one, two) and str(one) < str(two):
                yield Compare(whole_, "==", Call("mul", (one, two)))


def spelled(condition: Condition, rule: Rule) -> str:
    """A condition as it is written, extents by the names that the law gives them."""
    match condition:
        case NotFree(axis, name):
            return f"{axis} not in {name}"
        case Sign(name, relation):
            return f"{name} {relation} 0"
        case Kind(kind, name):
            return f"{kind}({name})"
        case Compare(left, relation, right):
            return f"{_extent(left, rule)} {relation} {_extent(right, rule)}"
    raise TypeError(condition)


def _extent(pattern: Pattern, rule: Rule) -> str:
    match pattern:
        case Size(axis):
            named = re.search(rf"\[{axis}: ?([A-Z]\w*)\]", rule.text)
            return named.group(1) if named else f"size({axis})"
        case Name(name):
            return name
        case Number(value):
            return str(value)
        case Call(operation, (a, b)):
            sign = {"mod": "%", "mul": "*"}[operation]
            return f"{_extent(a, rule)} {sign} {_extent(b, rule)}"
    raise TypeError(pattern)
