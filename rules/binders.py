"""Binders of normal forms: the names of bound axes, and reductions closed over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import permutations
from itertools import product as combinations
from typing import Any

from .polynomial import Atom, Large, Poly

__all__ = ["bound_in", "closed", "components", "renamed", "unbound"]


def bound_in(of: Any) -> frozenset[str]:
    """The binders around, not inside, that something mentions."""
    if isinstance(of, str):
        return frozenset({of}) if of.startswith("#") else frozenset()
    if isinstance(of, tuple):
        return frozenset[str]().union(*map(bound_in, of))
    return frozenset()


def renamed(of: Any, names: Mapping[str, str]) -> Any:
    """The same over other binders, terms and factors in order again."""
    if isinstance(of, str):
        return names.get(of, of)
    if isinstance(of, tuple):
        return _ordered(tuple(renamed(x, names) for x in of))
    return of


def _ordered(of: tuple[Any, ...]) -> tuple[Any, ...]:
    """Terms of a poly and factors of a monomial are sorted; they are tuples of pairs that end in a
    number."""
    pairs = all(isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], Fraction) for x in of)
    return tuple(sorted(of, key=repr)) if of and pairs else of


def _depth(of: Any) -> int:
    if isinstance(of, str):
        return int(of[1:].partition(".")[0]) if of.startswith("@") else 0
    return max(map(_depth, of), default=0) if isinstance(of, tuple) else 0


def closed(binders: tuple[str, ...], poly: Poly) -> Any:
    """A body with its binders named by depth and order: of all orders of binders over one axis the
    one with the least text, so that equal reductions are equal atoms."""
    depth = 1 + _depth(poly)
    by_axis: dict[str, list[str]] = {}
    for binder in binders:
        by_axis.setdefault(binder.partition(":")[2], []).append(binder)
    if len(binders) > 4:
        raise Large
    best: Any = None
    orders = [list(permutations(by_axis[a])) for a in sorted(by_axis)]
    for chosen in combinations(*orders):
        flat = [b for group in chosen for b in group]
        names = {b: f"@{depth}.{i}:{b.partition(':')[2]}" for i, b in enumerate(flat)}
        found = tuple(names.values()), renamed(poly, names)
        if best is None or repr(found) < repr(best):
            best = found
    return best


def unbound(of: Any) -> Any:
    """With the binders around replaced by their axes."""
    return renamed(of, {b: b.partition(":")[2] for b in bound_in(of)})


def components(
    binders: list[str], atoms: list[tuple[Atom, Fraction]]
) -> Iterator[tuple[tuple[str, ...], list[tuple[Atom, Fraction]]]]:
    """Groups of atoms that share binders, each with its binders."""
    left = list(atoms)
    waiting = set(binders)
    while left:
        group = [left.pop(0)]
        mine = set(bound_in(group[0][0])) & waiting
        grown = True
        while grown:
            near = [a for a in left if bound_in(a[0]) & mine]
            grown = bool(near)
            for a in near:
                left.remove(a)
                group.append(a)
                mine |= bound_in(a[0]) & waiting
        yield tuple(sorted(mine)), group
