"""Which operands the copy engine (TMA) brings as tiles: a view of the tensor with strides.

A load's place in its buffer is a sum of strides times atoms: indices, and quotients or remainders
of them. Of a tile's two axes one is contiguous, the other has a stride, and neither is inside an
atom; every stride but the contiguous one is a multiple of 16 bytes.
"""

from __future__ import annotations

import math

from nautile.terms import Apply, Axis, Const, Index, Load, Term

__all__ = ["WIDTHS", "comes", "lies"]

WIDTHS = {"bf16": 2, "f16": 2, "tf32": 4, "f8e4m3": 1, "f8e5m2": 1}  # bytes of operands
ELEMENTS = WIDTHS | {"f32": 4, "i8": 1}  # and of what operands are formed of
ALIGNED = 16  # bytes
_START = Const(1)  # the atom of what is constant


def lies(term: Term, tiled: set[Axis], deep: set[Axis], operand: str) -> bool:
    """Whether the term is a tensor of the operand's type whose tile over the `tiled` axes is
    brought as it lies: contiguous along the depth (`deep`), or for 16 bits along the other axis."""
    return isinstance(term, Load) and term.buffer.dtype == operand and comes(term, tiled, deep)


def comes(term: Load, tiled: set[Axis], deep: set[Axis]) -> bool:
    """Whether the tensor's tile over the `tiled` axes is brought as it lies, in its own type."""
    width = ELEMENTS.get(term.buffer.dtype, 0)
    if not width or not _inside(term):
        return False
    strides = _strides(term)
    inner = {a for a in tiled if strides.get(Index(a)) == 1}
    if len(inner) != 1 or (width != 2 and not inner <= deep):
        return False
    rest = {atom: n for atom, n in strides.items() if atom not in {Index(a) for a in inner}}
    if any(n * width % ALIGNED for n in rest.values()):
        return False
    if any(atom.free & tiled and not isinstance(atom, Index) for atom in strides):
        return False
    return all(strides.get(Index(a), 0) > 0 for a in tiled)


def _strides(load: Load) -> dict[Term, int]:
    """Strides by atom, in elements; a constant start under _START."""
    total: dict[Term, int] = {}
    stride = 1
    for term, extent in reversed(list(zip(load.coordinates, load.buffer.shape, strict=True))):
        _add(term, stride, total)
        stride *= extent
    return {atom: n for atom, n in total.items() if n}


def _add(term: Term, factor: int, total: dict[Term, int]) -> None:
    match term:
        case Const(value):
            total[_START] = total.get(_START, 0) + factor * int(value)
        case Apply("add" | "sub", (a, b)):
            _add(a, factor, total)
            _add(b, factor if term.operation == "add" else -factor, total)
        case Apply("mul", (a, Const(int(n)))) | Apply("mul", (Const(int(n)), a)):
            _add(a, factor * n, total)
        case _:
            total[term] = total.get(term, 0) + factor


def _inside(load: Load) -> bool:
    """Whether no coordinate can leave the buffer, nor waits for a value from memory."""
    ranges = [_range(c) for c in load.coordinates]
    pairs = zip(ranges, load.buffer.shape, strict=True)
    return all(low >= 0 and high < extent for (low, high), extent in pairs)


def _range(term: Term) -> tuple[float, float]:
    """The least and the largest value of an integer term; infinite where nothing is known."""
    match term:
        case Index(axis):
            return 0, axis.extent - 1
        case Const(value):
            return value, value
        case Apply("mod", (_, Const(n))) if n > 0:
            return 0, n - 1
        case Apply("floordiv", (a, Const(n))) if n > 0:
            low, high = _range(a)
            return (low // n, high // n) if math.isfinite(low + high) else (low, high)
        case Apply("add" | "sub" | "mul", (a, b)):
            return _combined(term.operation, _range(a), _range(b))
    return -math.inf, math.inf


def _combined(
    operation: str, a: tuple[float, float], b: tuple[float, float]
) -> tuple[float, float]:
    if operation == "sub":
        return a[0] - b[1], a[1] - b[0]
    if operation == "add":
        return a[0] + b[0], a[1] + b[1]
    if not math.isfinite(sum(map(abs, (*a, *b)))):
        return -math.inf, math.inf
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)
