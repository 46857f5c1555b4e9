"""Predicates over indices as ranges of loop blocks.

A conjunct `alpha * s + g <= 0`, with g an integer term of other indices, bounds the blocks of s:
past one block it holds nowhere, up to another it holds everywhere. Extremes of g over a block come
from interval arithmetic on the origins; an integer that is read once a block (a length) is its own
extreme. `and` intersects ranges, `or` spans them, `not` moves
inwards; an atom of another form bounds nothing and is whole nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nautile.codegen.tile import Ref, Tile
from nautile.terms import Apply, Axis, Const, Index, Term, apply

__all__ = ["Range", "integer", "ranges"]

_NEGATED = {"le": "gt", "lt": "ge", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_NEVER = Const(2**30)


@dataclass(frozen=True, slots=True)
class Range:
    """Blocks [first, stop) outside which the predicate is false everywhere, and blocks
    [whole_first, whole_stop) in which it is true everywhere; None is unbounded."""

    first: Term | None = None
    stop: Term | None = None
    whole_first: Term | None = None
    whole_stop: Term | None = None

    @property
    def trivial(self) -> bool:
        return self.first is None and self.stop is None and self.whole_first == _NEVER


_UNKNOWN = Range(whole_first=_NEVER)


def ranges(
    predicate: Term,
    axis: Axis,
    tiles: Mapping[Axis, int],
    origins: set[Axis],
    read: frozenset[str] = frozenset(),
) -> Range:
    """The blocks of `axis` that matter to a predicate. `origins` are the axes whose tile origin is
    known where the loop starts; other axes are taken over their whole extent. `read` names the
    tiles that are read before it."""
    return _Ranges(axis, tiles, origins, read).of(predicate, True)


@dataclass(frozen=True, slots=True)
class _Ranges:
    axis: Axis
    tiles: Mapping[Axis, int]
    origins: set[Axis]
    read: frozenset[str]

    def of(self, term: Term, positive: bool) -> Range:
        match term:
            case Const(value):
                return Range() if bool(value) == positive else Range(stop=Const(0))
            case Apply("not", (a,)):
                return self.of(a, not positive)
            case Apply("and" | "or", (a, b)):
                both = self.of(a, positive), self.of(b, positive)
                return _meet(*both) if (term.operation == "and") == positive else _span(*both)
            case Apply("le" | "lt" | "gt" | "ge" | "eq" | "ne", (a, b)):
                operation = term.operation if positive else _NEGATED[term.operation]
                return self._comparison(operation, a, b)
        return _UNKNOWN

    def _comparison(self, operation: str, a: Term, b: Term) -> Range:
        match operation:
            case "le":
                return self._atom(a, b, 0)
            case "lt":
                return self._atom(a, b, 1)
            case "ge":
                return self._atom(b, a, 0)
            case "gt":
                return self._atom(b, a, 1)
            case "eq":
                return _meet(self._atom(a, b, 0), self._atom(b, a, 0))
        return _UNKNOWN

    def _atom(self, low: Term, high: Term, more: int) -> Range:
        """low + more <= high."""
        moved = self._unfloor(low, high, more)
        form = self._linear(integer("sub", integer("add", moved[0], Const(moved[2])), moved[1]))
        if form is None or form[0] == 0:
            return _UNKNOWN
        slope, rest = form
        least, most = self._extreme(rest, False), self._extreme(rest, True)
        if least is None or most is None:
            return _UNKNOWN
        return self._upper(slope, least, most) if slope > 0 else self._lower(-slope, least, most)

    def _unfloor(self, low: Term, high: Term, more: int) -> tuple[Term, Term, int]:
        """s // c <= g is s <= c g + c - 1, and g <= s // c is c g <= s."""
        match low:
            case Apply("floordiv", (a, Const(int(c)))) if c > 0 and self.axis in a.free:
                return a, integer("mul", integer("sub", high, Const(more)), Const(c)), 1 - c
        match high:
            case Apply("floordiv", (a, Const(int(c)))) if c > 0 and self.axis in a.free:
                return integer("mul", integer("add", low, Const(more)), Const(c)), a, 0
        return low, high, more

    def _upper(self, slope: int, least: Term, most: Term) -> Range:
        """slope * s + g <= 0: s is at most floor(-g / slope)."""
        tile = Const(self.tiles[self.axis])
        last = integer("floordiv", integer("neg", least), Const(slope))
        sure = integer("floordiv", integer("neg", most), Const(slope))
        stop = integer("add", integer("floordiv", last, tile), Const(1))
        whole = integer("floordiv", integer("add", sure, Const(1)), tile)
        return Range(stop=stop, whole_stop=whole)

    def _lower(self, slope: int, least: Term, most: Term) -> Range:
        """g <= slope * s: s is at least ceil(g / slope)."""
        tile = Const(self.tiles[self.axis])
        first = integer("floordiv", _ceil(least, slope), tile)
        return Range(first=first, whole_first=_ceil(_ceil(most, slope), self.tiles[self.axis]))

    def _linear(self, term: Term) -> tuple[int, Term] | None:
        """(alpha, g) with term = alpha * s + g, or None."""
        if self.axis not in term.free:
            return 0, term
        match term:
            case Index(_):
                return 1, Const(0)
            case Apply("add" | "sub", (a, b)):
                x, y = self._linear(a), self._linear(b)
                if x is None or y is None:
                    return None
                sign = 1 if term.operation == "add" else -1
                return x[0] + sign * y[0], integer(term.operation, x[1], y[1])
            case Apply("neg", (a,)):
                return self._scaled(a, -1)
            case Apply("mul", (a, Const(int(c)))) | Apply("mul", (Const(int(c)), a)):
                return self._scaled(a, c)
        return None

    def _scaled(self, term: Term, factor: int) -> tuple[int, Term] | None:
        form = self._linear(term)
        return form and (form[0] * factor, integer("mul", form[1], Const(factor)))

    def _extreme(self, term: Term, most: bool) -> Term | None:
        """The least or greatest value of an integer term over the block, in terms of origins."""
        match term:
            case Const(int()):
                return term
            case Index(axis):
                return self._end(axis, most)
            case Ref(tile) if tile.name in self.read and self._is_one(tile):
                return term
            case Apply("add" | "min" | "max", (a, b)):
                return self._both(term.operation, a, b, most, most)
            case Apply("sub", (a, b)):
                return self._both("sub", a, b, most, not most)
            case Apply("neg", (a,)):
                inner = self._extreme(a, not most)
                return inner and integer("neg", inner)
            case Apply("mul", (a, Const(int(c)))) | Apply("mul", (Const(int(c)), a)):
                inner = self._extreme(a, most == (c >= 0))
                return inner and integer("mul", inner, Const(c))
            case Apply("floordiv", (a, Const(int(c)))) if c > 0:
                inner = self._extreme(a, most)
                return inner and integer("floordiv", inner, Const(c))
            case Apply("mod", (_, Const(int(c)))) if c > 0:
                return Const(c - 1 if most else 0)
        return None

    def _is_one(self, tile: Tile) -> bool:
        """Whether the tile holds one integer."""
        alone = all(a in self.origins and self.tiles[a] == 1 for a in tile.axes)
        return alone and tile.dtype in ("i32", "i64")

    def _both(self, operation: str, a: Term, b: Term, x: bool, y: bool) -> Term | None:
        left, right = self._extreme(a, x), self._extreme(b, y)
        return integer(operation, left, right) if left and right else None

    def _end(self, axis: Axis, most: bool) -> Term:
        if axis not in self.origins:
            return Const(axis.extent - 1 if most else 0)
        if not most:
            return Index(axis)
        end = integer("add", Index(axis), Const(self.tiles[axis] - 1))
        ragged = axis.extent % self.tiles[axis] != 0
        return integer("min", end, Const(axis.extent - 1)) if ragged else end


def _meet(a: Range, b: Range) -> Range:
    return Range(
        _pick("max", a.first, b.first),
        _pick("min", a.stop, b.stop),
        _pick("max", a.whole_first, b.whole_first),
        _pick("min", a.whole_stop, b.whole_stop),
    )


def _span(a: Range, b: Range) -> Range:
    """Either: empty where both are; whole where one of them is, as far as that is a range."""
    first = integer("min", a.first, b.first) if a.first and b.first else None
    stop = integer("max", a.stop, b.stop) if a.stop and b.stop else None
    return Range(first, stop, *_either_whole(a, b))


def _either_whole(a: Range, b: Range) -> tuple[Term | None, Term | None]:
    if a.whole_first is None and b.whole_first is None:
        both = a.whole_stop and b.whole_stop
        return None, integer("max", a.whole_stop, b.whole_stop) if both else None  # type: ignore[arg-type]
    if a.whole_stop is None and b.whole_stop is None:
        return integer("min", a.whole_first, b.whole_first), None  # type: ignore[arg-type]
    best = b if a.whole_first == _NEVER else a
    return best.whole_first, best.whole_stop


def _pick(operation: str, a: Term | None, b: Term | None) -> Term | None:
    if a is None or b is None:
        return a or b
    return integer(operation, a, b)


def _ceil(term: Term, divisor: int) -> Term:
    return integer("floordiv", integer("add", term, Const(divisor - 1)), Const(divisor))


def integer(operation: str, *arguments: Term) -> Term:
    """An integer operation on terms, constants folded."""
    if all(isinstance(a, Const) for a in arguments):
        values = [int(a.value) for a in arguments if isinstance(a, Const)]
        return Const(_FOLD[operation](*values))
    match operation, arguments:
        case ("add" | "sub", (a, Const(0))) | ("mul" | "floordiv", (a, Const(1))):
            return a
        case "add", (Const(0), a):
            return a
        case "add", (Const(), a):
            return integer("add", a, arguments[0])
        case "add" | "sub", (Apply("add", (a, Const(int(c)))), Const(int(d))):
            return integer("add", a, Const(c + d if operation == "add" else c - d))
        case "sub", (a, Const(int(c))):
            return integer("add", a, Const(-c))
        case "neg", (Apply("sub", (a, b)),):
            return integer("sub", b, a)
        case "neg", (Apply("neg", (a,)),):
            return a
        case "neg", (Apply("mul", (a, Const(int(c)))),):
            return integer("mul", a, Const(-c))
        case "sub", (Const(0), a):
            return integer("neg", a)
        case "mul", (a, Const(-1)):
            return integer("neg", a)
    return apply(operation, *arguments)


_FOLD: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "neg": lambda a: -a,
    "min": min,
    "max": max,
}
