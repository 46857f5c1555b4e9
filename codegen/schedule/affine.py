"""Integer terms as sums of atoms: `offset = constant + sum of coefficient * atom`.

An atom is an Index or any integer subterm that is not a sum, difference or constant multiple.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

from nautile.codegen.types import interval
from nautile.terms import Apply, Axis, Const, Index, Load, Term

__all__ = [
    "ONE",
    "Linear",
    "beyond",
    "coefficient",
    "divisor",
    "inside",
    "linear",
    "offset",
    "strides",
]

Linear = Mapping[Term, int]
ONE = Const(1)


def linear(term: Term) -> dict[Term, int]:
    """Coefficients by atom; the constant stands under Const(1)."""
    match term:
        case Const(value) if type(value) is int:
            return {ONE: value} if value else {}
        case Apply("add", (a, b)):
            return _combine(linear(a), linear(b), 1)
        case Apply("sub", (a, b)):
            return _combine(linear(a), linear(b), -1)
        case Apply("neg", (a,)):
            return _combine({}, linear(a), -1)
        case Apply("mul", (a, Const(value))) | Apply("mul", (Const(value), a)) if (
            type(value) is int
        ):
            return _combine({}, linear(a), value)
    return {term: 1}


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def offset(load: Load) -> dict[Term, int]:
    """A Load's element offset from its buffer's start."""
    total: dict[Term, int] = {}
    for term, stride in zip(load.coordinates, strides(load.buffer.shape), strict=True):
        total = _combine(total, linear(term), stride)
    return total


def inside(load: Load) -> bool:
    """Whether no coordinate can leave the buffer while the indices are inside their extents."""
    bounds = [interval(c) for c in load.coordinates]
    ends = zip(bounds, load.buffer.shape, strict=True)
    return all(b is not None and b[0] >= 0 and b[1] < n for b, n in ends)


def beyond(load: Load) -> list[tuple[Term, int]] | None:
    """The coordinates that can leave the buffer, each with its extent; None where nothing is known
    of one (it holds a value from memory)."""
    found = []
    for term, extent in zip(load.coordinates, load.buffer.shape, strict=True):
        bounds = interval(term)
        if bounds is None:
            return None
        if bounds[0] < 0 or bounds[1] >= extent:
            found.append((term, extent))
    return found


def coefficient(form: Linear, axis: Axis) -> int | None:
    """The axis' coefficient where it occurs only as an atom by itself; None where it is inside
    another atom."""
    if any(axis in atom.free and not isinstance(atom, Index) for atom in form):
        return None
    return form.get(Index(axis), 0)


def divisor(form: Linear, without: Axis, limit: int) -> int:
    """The greatest common divisor of `limit` and all coefficients but that of axis `without`."""
    step = limit
    for atom, factor in form.items():
        if atom is not Index(without):
            step = gcd(step, factor)
    return step


def _combine(a: Linear, b: Linear, sign: int) -> dict[Term, int]:
    total = dict(a)
    for atom, factor in b.items():
        total[atom] = total.get(atom, 0) + sign * factor
    return {atom: factor for atom, factor in total.items() if factor}
