"""Where an index expression can lie: interval arithmetic over the extents of its axes.

Where intervals are too wide (`d + 64 - 128 * (d // 64)`) and the axes have few positions, every
position is tried. Parts that depend on data (elements of integer tensors) are unbounded here; what
they may be is the caller's promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping

import numpy as np
import numpy.typing as npt

from nautile.terms import Apply, Axis, Const, Index, Reduce, Term, children, walk

__all__ = ["Interval", "interval", "tried"]

Interval = tuple[int, int] | None
Integers = npt.NDArray[np.int64]

_MOST_POSITIONS = 1 << 20
_EXACT: dict[str, Callable[..., Integers]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "floordiv": np.floor_divide,
    "mod": np.mod,
}


def interval(term: Term, known: MutableMapping[Term, Interval]) -> Interval:
    """The least and largest value of an integer term, or None where data decide."""
    if term not in known:
        for part in walk(term):
            if part not in known:
                known[part] = _of(part, tuple(known[c] for c in children(part)))
    return known[term]


def tried(term: Term) -> Interval:
    """The least and largest value over all positions, or None where they are too many, or where
    the term has other parts than integer arithmetic on indices."""
    axes = sorted(term.free)
    if math.prod(a.extent for a in axes) > _MOST_POSITIONS:
        return None
    grid = np.ix_(*(np.arange(a.extent, dtype=np.int64) for a in axes))
    values: dict[Term, Integers] = {}
    for part in walk(term):
        value = _value(part, dict(zip(axes, grid, strict=True)), values)
        if value is None:
            return None
        values[part] = value
    return int(values[term].min()), int(values[term].max())


def _value(
    term: Term, positions: dict[Axis, Integers], known: dict[Term, Integers]
) -> Integers | None:
    match term:
        case Const(value) if isinstance(value, int) and abs(value) < 2**31:
            return np.asarray(value, dtype=np.int64)
        case Index(axis):
            return positions[axis]
        case Apply(operation, arguments) if operation in _EXACT:
            return _EXACT[operation](*(known[a] for a in arguments))
    return None


def _of(term: Term, inner: tuple[Interval, ...]) -> Interval:
    match term:
        case Const(value) if isinstance(value, int) and not isinstance(value, bool):
            return (value, value)
        case Index(axis) | Reduce("argmax" | "argmin", axis, _):
            return (0, axis.extent - 1)
        case Apply(operation, _):
            return _applied(operation, inner)
    return None


def _applied(operation: str, inner: tuple[Interval, ...]) -> Interval:
    if operation == "where":
        return _hull(*inner[1:])
    if operation in ("max", "min"):
        return _extreme(operation, *inner)
    if operation == "mod":
        return _mod(*inner)
    bounded = [i for i in inner if i is not None]
    return _arithmetic(operation, bounded) if len(bounded) == len(inner) else None


def _arithmetic(operation: str, inner: list[tuple[int, int]]) -> Interval:
    (a, b), (c, d) = inner[0], inner[-1]
    match operation:
        case "add":
            return (a + c, b + d)
        case "sub":
            return (a - d, b - c)
        case "neg":
            return (-b, -a)
        case "abs":
            return (0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b)))
        case "sign":
            return ((a > 0) - (a < 0), (b > 0) - (b < 0))
        case "mul":
            corners = (a * c, a * d, b * c, b * d)
            return (min(corners), max(corners))
        case "floordiv" if c == d and c > 0:
            return (a // c, b // c)
    return None


def _hull(a: Interval, b: Interval) -> Interval:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


_FAR = 2**63


def _extreme(operation: str, a: Interval, b: Interval) -> Interval:
    """Clamping bounds even what data decide, on one side; the other side stays far away."""
    if a is None and b is None:
        return None
    (low, high), (least, most) = a or (-_FAR, _FAR), b or (-_FAR, _FAR)
    if operation == "max":
        found = (max(low, least), max(high, most))
    else:
        found = (min(low, least), min(high, most))
    return found


def _mod(a: Interval, b: Interval) -> Interval:
    if b is None or b[0] != b[1] or b[0] <= 0:
        return None
    divisor = b[0]
    if a is not None and a[0] // divisor == a[1] // divisor:
        return (a[0] % divisor, a[1] % divisor)
    return (0, divisor - 1)
