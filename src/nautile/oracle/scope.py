"""Scopes: at which positions of each axis a term is looked at, and how much that takes.

A scope maps each axis in sight to positions; a binder opens a scope in which its own axis runs over
its whole extent. Where the parts of a scope would not fit into the budget together, a reduced axis
is walked in pieces and the positions of a result are halved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nautile.oracle.contraction import product_size
from nautile.oracle.values import Array
from nautile.terms import Axis, Before, Online, Reduce, Running, Term, children

__all__ = ["BUDGET", "Positions", "Scope", "halves", "inner", "pieces", "sizes", "weight"]

BUDGET = 1 << 24
"""Elements that the parts of one scope may take together (128 MB in float64)."""


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Positions along one axis; two of them are the same only if they are one object."""

    at: Array


Scope = Mapping[Axis, Positions]


def inner(term: Term) -> tuple[Term, ...]:
    """The children that live in the term's own scope."""
    return () if isinstance(term, (Reduce, Running, Before, Online)) else children(term)


def sizes(scope: Scope) -> dict[Axis, int]:
    """The number of positions of each axis."""
    return {a: len(p.at) for a, p in scope.items()}


def weight(root: Term, size: dict[Axis, int], axis: Axis | None = None) -> int:
    """Elements of all parts of a scope together (of those with `axis` free, where given)."""
    total, seen, stack = 0, set(), [root]
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if axis is None or axis in term.free:
            total += product_size(term.free, size)
        if isinstance(term, (Running, Before)):
            stack.append(term.reduction)
        elif isinstance(term, Online):
            within = size | {term.axis: term.axis.extent}
            total += sum(weight(t, within) for t in (term.repair, term.offset) if t is not None)
        else:
            stack.extend(inner(term))
    return total


def pieces(whole: Positions, elements: int, budget: int) -> Iterator[Positions]:
    """Positions in pieces, so that each has its share of `elements` within the budget."""
    n = len(whole.at)
    if elements <= budget:
        yield whole
        return
    step = max(1, n * budget // elements)
    for start in range(0, n, step):
        yield Positions(whole.at[start : start + step])


def halves(positions: Mapping[Axis, Positions]) -> tuple[Axis, Scope, Scope] | None:
    """The scope cut in two along its longest axis; None where nothing is left to cut."""
    axis = max(positions, key=lambda a: len(positions[a].at), default=None)
    if axis is None or len(positions[axis].at) < 2:
        return None
    at = positions[axis].at
    middle = math.ceil(len(at) / 2)
    left, right = Positions(at[:middle]), Positions(at[middle:])
    return axis, {**positions, axis: left}, {**positions, axis: right}
