"""How many elements of a buffer a block touches, from the coordinates of a load.

Tile sizes come as NumPy vectors, one entry a combination of tiles, so that all tilings of a body
are priced at once. A coordinate's range (largest minus smallest value plus one) is exact for
affine expressions of aligned tiles and their `//` and `%` by constants; an indirect coordinate
(an integer tensor as an index) touches as many elements as its axes have positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nautile.terms import Apply, Axis, Const, Index, Load, Term

__all__ = ["Affine", "Flags", "Vector", "affine", "elements", "product"]

Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + sum of coefficients[axis] * axis`, all integers."""

    coefficients: Mapping[Axis, int]
    constant: int

    def plus(self, other: Affine, factor: int) -> Affine:
        """`self + factor * other`, axes that cancel left out."""
        total = dict(self.coefficients)
        for axis, c in other.coefficients.items():
            total[axis] = total.get(axis, 0) + factor * c
        kept = {a: c for a, c in total.items() if c}
        return Affine(kept, self.constant + factor * other.constant)


def affine(term: Term) -> Affine | None:
    """The affine form of an integer term, or None."""
    match term:
        case Const(value) if isinstance(value, (int, float)) and value == int(_finite(value)):
            return Affine({}, int(value))
        case Index(axis):
            return Affine({axis: 1}, 0)
        case Apply("neg", (argument,)):
            inner = affine(argument)
            return None if inner is None else Affine({}, 0).plus(inner, -1)
        case Apply("add" | "sub", (left, right)):
            a, b = affine(left), affine(right)
            if a is None or b is None:
                return None
            return a.plus(b, 1 if term.operation == "add" else -1)
        case Apply("mul", (left, right)):
            return _scaled(affine(left), affine(right))
    return None


def _finite(value: float) -> float:
    return value if abs(value) < 2**62 else 0.5


def _scaled(a: Affine | None, b: Affine | None) -> Affine | None:
    if a is None or b is None:
        return None
    if not a.coefficients:
        return Affine({}, 0).plus(b, a.constant)
    if not b.coefficients:
        return Affine({}, 0).plus(a, b.constant)
    return None


def product(axes: Iterable[Axis], size: Mapping[Axis, Vector], one: Vector) -> Vector:
    """The product of the sizes of `axes` (1 for an axis without a size)."""
    total = one
    for axis in axes:
        if axis in size:
            total = total * size[axis]
    return total


def elements(load: Load, size: Mapping[Axis, Vector], one: Vector) -> Vector:
    """Distinct elements of the load's buffer for axes that walk `size` positions each."""
    total = one
    for coordinate, extent in zip(load.coordinates, load.buffer.shape, strict=True):
        positions = product(coordinate.free, size, one)
        total = total * np.minimum(np.minimum(_range(coordinate, size, one), positions), extent)
    return np.minimum(total, product(load.free, size, one))


def _range(term: Term, size: Mapping[Axis, Vector], one: Vector) -> Vector:
    form = affine(term)
    if form is not None:
        total = one
        for axis, c in form.coefficients.items():
            total = total + abs(c) * (size.get(axis, one) - 1)
        return total
    if isinstance(term, Apply):
        rule = _RANGES.get(term.operation)
        if rule is not None:
            return rule(term.arguments, size, one)
    return product(term.free, size, one)


def _floordiv(arguments: tuple[Term, ...], size: Mapping[Axis, Vector], one: Vector) -> Vector:
    by = affine(arguments[1])
    if by is None or by.coefficients or by.constant == 0:
        return product(arguments[0].free | arguments[1].free, size, one)
    return np.floor((_range(arguments[0], size, one) - 1) / abs(by.constant)) + 1


def _mod(arguments: tuple[Term, ...], size: Mapping[Axis, Vector], one: Vector) -> Vector:
    by = affine(arguments[1])
    inner = _range(arguments[0], size, one)
    return inner if by is None or by.coefficients else np.minimum(inner, abs(by.constant))


def _sum(arguments: tuple[Term, ...], size: Mapping[Axis, Vector], one: Vector) -> Vector:
    return _range(arguments[0], size, one) + _range(arguments[1], size, one) - 1


def _mul(arguments: tuple[Term, ...], size: Mapping[Axis, Vector], one: Vector) -> Vector:
    for inner, by in (arguments, arguments[::-1]):
        factor = affine(by)
        if factor is not None and not factor.coefficients:
            return (_range(inner, size, one) - 1) * abs(factor.constant) + 1
    return product(arguments[0].free | arguments[1].free, size, one)


_RANGES: Mapping[str, Callable[[tuple[Term, ...], Mapping[Axis, Vector], Vector], Vector]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "add": _sum,
    "sub": _sum,
    "mul": _mul,
}
