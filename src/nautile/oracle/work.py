"""How much a look-up costs: what reductions walk, those of definitions on the way included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nautile.inline import Definitions
from nautile.terms import Apply, Axis, Load, Online, Reduce, Term, walk

__all__ = ["READ", "work_of"]

POINTWISE = 256  # how many products of a matrix product one other element is worth
READ = 128
"""How many products an element is worth that is drawn (12 ns) where it is read."""


def work_of(
    term: Term,
    size: Mapping[Axis, int],
    definitions: Definitions,
    *,
    pointwise: int = POINTWISE,
    read: int = 0,
) -> int:
    """Elements of all reductions' bodies, when free axes have `size` positions each and definitions
    are evaluated once, wherever they are read. An element that is no product of two smaller
    tensors' elements counts `pointwise` times (matrix products are the cheapest by far), an element
    of a tensor that is none of the definitions `read` times (see READ)."""
    weights = _Weights(pointwise, read)
    wanted: dict[str, dict[Axis, int]] = {}
    total = _visit(term, size, definitions, wanted, weights)
    done: set[tuple[str, tuple[int, ...]]] = set()
    while fresh := [(n, s) for n, s in wanted.items() if (n, tuple(s.values())) not in done]:
        for name, sizes in fresh:
            done.add((name, tuple(sizes.values())))
            total += _visit(definitions[name][1], dict(sizes), definitions, wanted, weights)
    return total


@dataclass(frozen=True, slots=True)
class _Weights:
    pointwise: int
    read: int


def _visit(
    root: Term,
    size: Mapping[Axis, int],
    definitions: Definitions,
    wanted: dict[str, dict[Axis, int]],
    weights: _Weights,
) -> int:
    """The reductions of one term, and the definitions that it asks for (in `wanted`)."""
    parts = list(walk(root))
    seen = {**size, **{t.axis: t.axis.extent for t in parts if isinstance(t, (Reduce, Online))}}
    total = 0
    for t in parts:
        if isinstance(t, (Reduce, Online)):
            elements = math.prod(seen.get(a, a.extent) for a in {*t.body.free, t.axis})
            total += elements * (1 if _contracts(t.body) else weights.pointwise)
        if isinstance(t, Load) and t.buffer.name in definitions:
            axes = definitions[t.buffer.name][0]
            known = wanted.setdefault(t.buffer.name, dict.fromkeys(axes, 1))
            for axis, coordinate in zip(axes, t.coordinates, strict=True):
                read = math.prod(seen.get(a, a.extent) for a in coordinate.free)
                known[axis] = max(known[axis], min(read, axis.extent))
        elif isinstance(t, Load):
            total += weights.read * _elements(t, seen)
    return total


def _elements(load: Load, size: Mapping[Axis, int]) -> int:
    """How many elements of its tensor a load reads at most."""
    pairs = zip(load.coordinates, load.buffer.shape, strict=True)
    return math.prod(min(n, math.prod(size.get(a, a.extent) for a in c.free)) for c, n in pairs)


def _contracts(body: Term) -> bool:
    """A product whose factors each lack an axis of it."""
    return (
        isinstance(body, Apply)
        and body.operation == "mul"
        and all(factor.free != body.free for factor in body.arguments)
    )
