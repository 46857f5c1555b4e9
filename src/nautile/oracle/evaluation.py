"""The evaluator: the meaning of a term at given positions of its free axes.

Values are kept by (term, positions of its free axes), so a subterm that several reductions share is
computed once; the oldest are forgotten when all together pass the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nautile.oracle.reductions import reduction
from nautile.oracle.scope import BUDGET, Positions, Scope, inner
from nautile.oracle.streaming import before, online, running
from nautile.oracle.values import Array, Value, align, cast, constant, operate
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
)

__all__ = ["Evaluator", "Fetch"]

Fetch = Callable[[Buffer, tuple[Array, ...]], Array]
_Key = tuple[Any, ...]


@dataclass(slots=True)
class Evaluator:
    """Evaluates terms that load through one `fetch`, in one precision ("f64", "f32" or "mma")."""

    fetch: Fetch
    precision: str = "f64"
    casts: bool = True
    budget: int = BUDGET
    known: dict[_Key, Value] = field(default_factory=dict)
    held: int = 0
    whole: dict[Axis, Positions] = field(default_factory=dict)

    def everywhere(self, axis: Axis) -> Positions:
        """All positions of an axis."""
        if axis not in self.whole:
            self.whole[axis] = Positions(np.arange(axis.extent))
        return self.whole[axis]

    def value(self, root: Term, scope: Scope) -> Value:
        """The value of `root` in a scope; parts of the same scope first, without recursion."""
        local: dict[Term, Value] = {}
        stack = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if ready:
                local[term] = self._compute(term, scope, local)
            elif term not in local:
                known = self.known.get(self.key(term, scope))
                if known is not None:
                    local[term] = known
                else:
                    stack.append((term, True))
                    stack.extend((c, False) for c in inner(term))
        return local[root]

    def _compute(self, term: Term, scope: Scope, local: Mapping[Term, Value]) -> Value:
        if term in local:
            return local[term]
        result = self._meaning(term, scope, local)
        if not isinstance(term, (Const, Index)):
            self.remember(self.key(term, scope), result)
        return result

    def _meaning(self, term: Term, scope: Scope, local: Mapping[Term, Value]) -> Value:
        match term:
            case Const(value):
                return constant(value)
            case Index(axis):
                return Value((axis,), scope[axis].at)
            case Load(buffer, coordinates):
                return load(self.fetch, buffer, [local[c] for c in coordinates], self.precision)
            case Apply(operation, arguments):
                return operate(operation, [local[a] for a in arguments], self.precision)
            case Cast(dtype, argument):
                return cast(local[argument], dtype, self.precision, rounds=self.casts)
            case Reduce():
                return reduction(self, term, scope)
            case Running(reduced):
                return running(self, reduced, scope)
            case Before(reduced):
                return before(self, reduced, scope)
            case Online():
                return online(self, term, scope)
        raise TypeError(f"not a term: {term!r}")

    def key(self, term: Term, scope: Scope, mark: str = "") -> _Key:
        """What a value depends on: the term and the positions of its free axes."""
        return (term, mark, *(scope[a] for a in sorted(term.free)))

    def remember(self, key: _Key, value: Value) -> None:
        """Keep a value; the oldest ones go when all together pass the budget."""
        self.known[key] = value
        self.held += value.array.size
        while self.held > 2 * self.budget and len(self.known) > 1:
            oldest = next(iter(self.known))
            self.held -= self.known.pop(oldest).array.size


def load(fetch: Fetch, buffer: Buffer, coordinates: list[Value], precision: str) -> Value:
    """Elements of a tensor; positions outside its extents read as 0."""
    axes, arrays = align(coordinates)
    shape = np.broadcast_shapes((1,) * len(axes), *(a.shape for a in arrays))
    index, inside = _clipped(buffer, arrays)
    elements = np.broadcast_to(_carried(fetch(buffer, index), buffer, precision), shape)
    if inside is not None:
        elements = np.where(inside, elements, elements.dtype.type(0))
    return Value(axes, elements)


def _carried(elements: Array, buffer: Buffer, precision: str) -> Array:
    """Elements in a type of the oracle: float64, or float32 in a naive precision; int64; bool.
    A fetch may answer in any storage type, ml_dtypes' own (whose kind is no "f") included."""
    elements = np.asarray(elements)
    if elements.dtype.kind in "iu":
        return elements.astype(np.int64, copy=False)
    if elements.dtype.kind == "b":
        return elements
    wide = precision == "f64" or buffer.dtype == "f64"
    with np.errstate(over="ignore"):
        return elements.astype(np.float64 if wide else np.float32, copy=False)


def _clipped(buffer: Buffer, arrays: list[Array]) -> tuple[tuple[Array, ...], Array | None]:
    """Coordinates moved inside the tensor, and which were inside (None: all)."""
    index: list[Array] = []
    inside: Array | None = None
    for array, extent in zip(arrays, buffer.shape, strict=True):
        array = array.astype(np.int64, copy=False)
        if array.size and (array.min() < 0 or array.max() >= extent):
            good = (array >= 0) & (array < extent)
            inside = good if inside is None else inside & good
            array = np.clip(array, 0, extent - 1)
        index.append(array)
    return tuple(index), inside
