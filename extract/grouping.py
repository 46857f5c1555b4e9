"""Positions of an axis that read the same become rows of one block.

Where some load has `h // G` for a coordinate (query heads that share a key head), the results at
the G positions of a group multiply the same tile. Over two axes in place of h, the group and the
place in it, they are rows of one contraction: h = group * G + row. A short axis that is the rows of
such a contraction already (a few queries) joins them: h = group * G + row // T, t = row mod T.

Only tensors that no program names may be stored so; whoever reads them does it at h // G and
(h mod G) * T + t.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd

from nautile.extract.body import analyse
from nautile.terms import (
    Apply,
    Axis,
    Buffer,
    Const,
    Index,
    Load,
    Output,
    Reduce,
    Term,
    apply,
    transform,
    walk,
)

__all__ = ["grouped", "most_shared"]

Outputs = tuple[Output, ...]
MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Group:
    """The axis, how many of its positions read the same, the short axis that joins the rows (or
    None), and the two new axes."""

    axis: Axis
    size: int
    few: Axis | None
    group: Axis
    row: Axis

    @property
    def times(self) -> int:
        return self.few.extent if self.few else 1

    def position(self, axis: Axis) -> Term:
        """A former axis' position in the new axes."""
        row: Term = Index(self.row)
        if axis == self.few:
            return apply("mod", row, Const(self.times))
        place = row if self.times == 1 else apply("floordiv", row, Const(self.times))
        return apply("add", apply("mul", Index(self.group), Const(self.size)), place)

    def coordinates(self, axes: Iterable[Axis]) -> tuple[Term, ...]:
        """Where an element of a tensor over the former axes lies over the new ones."""
        at: list[Term] = []
        for axis in axes:
            if axis == self.axis:
                at.append(apply("floordiv", Index(axis), Const(self.size)))
                at.append(self._row())
            elif axis != self.few:
                at.append(Index(axis))
        return tuple(at)

    def _row(self) -> Term:
        place: Term = apply("mod", Index(self.axis), Const(self.size))
        if self.few is None:
            return place
        return apply("add", apply("mul", place, Const(self.times)), Index(self.few))

    def axes(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """The new axes of a tensor, in the former order."""
        found: list[Axis] = []
        for axis in axes:
            if axis != self.few:
                found += [self.group, self.row] if axis == self.axis else [axis]
        return tuple(found)

    def term(self, root: Term) -> Term:
        """The term over the new axes."""

        def step(t: Term) -> Term:
            if isinstance(t, Index) and t.axis in (self.axis, self.few):
                return self.position(t.axis)
            return self._simpler(t)

        return transform(root, step)

    def _simpler(self, t: Term) -> Term:
        """`(group * G + x) // (m G)` is group // m and `(group * G + x) mod G` is x: 0 <= x < G."""
        match t:
            case Apply("floordiv" | "mod", (Apply("add", (first, place)), Const(int(n)))) if (
                first is apply("mul", Index(self.group), Const(self.size)) and n % self.size == 0
            ):
                if t.operation == "floordiv":
                    return _divided(Index(self.group), n // self.size)
                return place if n == self.size else t
        return t

    def output(self, o: Output) -> Output:
        axes = self.axes(o.axes)
        buffer = Buffer(o.buffer.name, tuple(a.extent for a in axes), o.buffer.dtype)
        return Output(buffer, axes, self.term(o.term))


def grouped(stored: Outputs, readers: Outputs) -> tuple[Outputs, Outputs]:
    """What one launch stores, over grouped axes where that makes a contraction of it, and what
    reads it, changed accordingly."""
    found = _group(stored)
    if found is None:
        return stored, readers
    made = tuple(found.output(o) for o in stored)
    moved = {o.buffer.name: (o, new.buffer) for o, new in zip(stored, made, strict=True)}

    def step(t: Term) -> Term:
        if isinstance(t, Load) and t.buffer.name in moved:
            former, buffer = moved[t.buffer.name]
            own = dict(zip(former.axes, t.coordinates, strict=True))
            at = found.coordinates(former.axes)
            return Load(buffer, tuple(_placed(c, own) for c in at))
        return t

    return made, tuple(Output(o.buffer, o.axes, transform(o.term, step)) for o in readers)


def most_shared(outputs: Outputs) -> int:
    """How many positions of one axis read the same, at most."""
    return max(_shared(outputs).values(), default=1)


def _placed(term: Term, own: Mapping[Axis, Term]) -> Term:
    def step(t: Term) -> Term:
        return own[t.axis] if isinstance(t, Index) else t

    return transform(term, step)


def _group(outputs: Outputs) -> _Group | None:
    """The grouping that gives the contractions rows, if there is one."""
    free = frozenset.intersection(*(frozenset(o.axes) for o in outputs))
    before = _rows(outputs)
    for axis, size in _shared(outputs).items():
        few = before if before in free and before != axis else None
        if axis not in free or (before is not None and few is None):
            continue
        if few is not None and size * few.extent > MOST_ROWS:
            continue
        found = _Group(axis, size, few, *_fresh(axis, size, few, outputs))
        if _rows(tuple(found.output(o) for o in outputs)) == found.row:
            return found
    return None


def _rows(outputs: Outputs) -> Axis | None:
    """The longest axis that is the rows of every contraction of the tensor cores, or None."""
    found = [c for c in analyse(outputs).contractions.values() if c.operand]
    sides = [frozenset(a for a in c.rows | c.columns if a.extent > 1) for c in found]
    common = frozenset.intersection(*sides) if sides else frozenset()
    return max(common, key=lambda a: (a.extent, a), default=None)


def _shared(outputs: Outputs) -> dict[Axis, int]:
    """For each axis by whose quotient alone some load moves, how many positions share it."""
    sizes: dict[Axis, list[int]] = {}
    for load in (t for t in walk(*(o.term for o in outputs)) if isinstance(t, Load)):
        for t in walk(*load.coordinates):
            match t:
                case Apply("floordiv", (Index(axis), Const(int(n)))) if n > 1:
                    sizes.setdefault(axis, []).append(n)
    found = {axis: reduce(gcd, n) for axis, n in sizes.items()}
    return {a: n for a, n in found.items() if 1 < n <= MOST_ROWS and a.extent % n == 0}


def _fresh(axis: Axis, size: int, few: Axis | None, outputs: Outputs) -> tuple[Axis, Axis]:
    terms = walk(*(o.term for o in outputs))
    taken = {a.family for o in outputs for a in o.axes}
    taken |= {t.axis.family for t in terms if isinstance(t, (Index, Reduce))}
    rows = size * (few.extent if few else 1)
    names = []
    for stem in ("group", "row"):
        name, n = f"{axis.family}_{stem}", 2
        while name in taken:
            name, n = f"{axis.family}_{stem}{n}", n + 1
        names.append(name)
    return Axis(names[0], 0, axis.extent // size), Axis(names[1], 0, rows)


def _divided(term: Term, by: int) -> Term:
    return term if by == 1 else apply("floordiv", term, Const(by))
