"""How an element of a buffer is reached: its offset as a term, and whether neighbours along the
column axis lie side by side, aligned for vector accesses."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from nautile.codegen.affine import integer
from nautile.codegen.tile import Ref
from nautile.codegen.types import interval
from nautile.dtypes import DTYPES
from nautile.terms import Apply, Axis, Buffer, Const, Index, Term, substitute, walk

__all__ = ["FIRST", "Access", "divisor", "in_range", "offset_of", "split_axis"]


FIRST = Axis("#first", 0, 1)  # the first column of a vector


@dataclass(frozen=True, slots=True)
class Access:
    """A Read or Write of `buffer` seen along `column`. `offset` counts elements; `guards` are the
    coordinates that may leave the buffer, with their extents; `base` is the offset less the column
    where all neighbouring columns are neighbours in memory and nothing is guarded, else None;
    `start` is the same where guards concern whole rows (a row that a tensor of indices picks)."""

    buffer: Buffer
    column: Axis
    offset: Term
    base: Term | None
    start: Term | None
    guards: tuple[tuple[Term, int], ...]

    @staticmethod
    def of(buffer: Buffer, coordinates: tuple[Term, ...], column: Axis) -> Access:
        offset = offset_of(buffer, coordinates)
        guards = tuple(
            (c, n) for c, n in zip(coordinates, buffer.shape, strict=True) if not in_range(c, n)
        )
        split = split_axis(offset, column)
        start = split[1] if split is not None and split[0] == 1 else None
        if any(column in c.free for c, _ in guards):
            start = None
        return Access(buffer, column, offset, None if guards else start, start, guards)

    @property
    def steady(self) -> bool:
        """Whether whole vectors lie inside the buffer or outside."""
        return self.start is not None or not self.guards

    @property
    def bytes(self) -> int:
        return DTYPES[self.buffer.dtype].bytes

    @property
    def first(self) -> Term:
        """The offset of a vector's first element, over FIRST."""
        if self.start is not None:
            return integer("add", self.start, Index(FIRST))
        return substitute(self.offset, {self.column: Index(FIRST)})

    def width(self, extent: int) -> int:
        """The widest aligned vector, in elements, that whole rows of `extent` columns allow."""
        largest = max(1, 16 // self.bytes)
        if self.start is not None:
            return gcd(gcd(divisor(self.start), extent), largest) or 1
        width = 1 if self.guards else gcd(extent, largest)
        while width > 1 and not (
            _slope(self.offset, self.column, width) == 1
            and _multiple(self.offset, self.column, width)
        ):
            width //= 2
        return width


def _slope(term: Term, column: Axis, width: int) -> int | None:
    """How far the term moves with each column of a vector of `width` that starts at a multiple of
    it, where it moves evenly."""
    if column not in term.free:
        return 0
    match term:
        case Index(_):
            return 1
        case Apply("floordiv" | "mod", (a, Const(int(n)))) if n % width == 0:
            if _slope(a, column, width) == 1 and _multiple(a, column, width):
                return 1 if term.operation == "mod" else 0
        case Apply("add", (a, b)):
            x, y = _slope(a, column, width), _slope(b, column, width)
            return None if x is None or y is None else x + y
        case Apply("mul", (a, Const(int(n)))):
            x = _slope(a, column, width)
            return None if x is None else x * n
    return None


def _multiple(term: Term, column: Axis, width: int) -> bool:
    """Whether the term is a multiple of `width` at the columns that are."""
    match term:
        case Index(axis) if axis == column:
            return True
        case Apply("mod", (a, Const(int(n)))) if n % width == 0:
            return _multiple(a, column, width)
        case Apply("add", (a, b)):
            return _multiple(a, column, width) and _multiple(b, column, width)
        case Apply("mul", (a, Const(int(n)))):
            return n % width == 0 or _multiple(a, column, width)
    return divisor(term) % width == 0


def offset_of(buffer: Buffer, coordinates: tuple[Term, ...]) -> Term:
    """The row-major element number."""
    total: Term = Const(0)
    stride = buffer.size
    for coordinate, extent in zip(coordinates, buffer.shape, strict=True):
        stride //= max(1, extent)
        total = integer("add", total, integer("mul", coordinate, Const(stride)))
    return _recombined(total)


def _recombined(total: Term) -> Term:
    """The sum with x in place of (x // n) * n + x % n, as far as that goes."""
    parts = _summands(total)
    pair = _digits(parts)
    if pair is None:
        return total
    while pair is not None:
        high, low, whole = pair
        factor = parts[low][1]
        parts = [p for n, p in enumerate(parts) if n not in (high, low)] + [(whole, factor)]
        pair = _digits(parts)
    total = Const(0)
    for term, factor in parts:
        total = integer("add", total, integer("mul", term, Const(factor)))
    return total


def _summands(root: Term, factor: int = 1) -> list[tuple[Term, int]]:
    """(term, factor) of what is added up."""
    match root:
        case Apply("add", (a, b)):
            return [*_summands(a, factor), *_summands(b, factor)]
        case Apply("mul", (a, Const(int(c)))):
            return _summands(a, factor * c)
    return [(root, factor)]


def _digits(parts: list[tuple[Term, int]]) -> tuple[int, int, Term] | None:
    """Places of (x // n, f n) and (x % n, f), and x."""
    for low, (term, factor) in enumerate(parts):
        match term:
            case Apply("mod", (whole, Const(int(n)))):
                above = Apply("floordiv", (whole, Const(n))), factor * n
                if above in parts:
                    return parts.index(above), low, whole
    return None


def in_range(coordinate: Term, extent: int) -> bool:
    """Whether the coordinate is known to stay inside a dimension (for positions inside extents)."""
    if any(isinstance(t, Ref) for t in walk(coordinate)):
        return False
    known = interval(coordinate)
    return known is not None and known[0] >= 0 and known[1] < extent


def split_axis(term: Term, axis: Axis) -> tuple[int, Term] | None:
    """(slope, rest) with term = slope * axis + rest, or None where it is not affine in the axis."""
    if axis not in term.free:
        return 0, term
    match term:
        case Index(_):
            return 1, Const(0)
        case Apply("add" | "sub", (a, b)):
            x, y = split_axis(a, axis), split_axis(b, axis)
            if x is None or y is None:
                return None
            sign = 1 if term.operation == "add" else -1
            return x[0] + sign * y[0], integer(term.operation, x[1], y[1])
        case Apply("mul", (a, Const(int(c)))) | Apply("mul", (Const(int(c)), a)):
            x = split_axis(a, axis)
            return x and (x[0] * c, integer("mul", x[1], Const(c)))
    return None


def divisor(term: Term) -> int:
    """A number that divides the term's value; 0 where the value is 0."""
    match term:
        case Const(int(value)):
            return abs(value)
        case Apply("add" | "sub", (a, b)):
            return gcd(divisor(a), divisor(b))
        case Apply("mul", (a, b)):
            return divisor(a) * divisor(b)
        case Apply("neg", (a,)):
            return divisor(a)
    return 1
