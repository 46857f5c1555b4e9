"""Programs too long to look at, over shorter axes.

One element of a loss over a large vocabulary may need 10**12 products. An identity between two
terms that holds for every extent can be looked at on shorter reductions: both sides keep their
constants and their tensors, and every axis walks its first positions only. A position that two
axes make together, `i * length + j` with j below the length (where a reduction is split), walks as
many: both axes become shorter, and the length with them; what is added to it (a window's first
position) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nautile.certificate.subject import Side, Subject, Target
from nautile.terms import (
    Apply,
    Axis,
    Const,
    Index,
    Online,
    Output,
    Reduce,
    Term,
    children,
    rebuild,
    walk,
)

__all__ = ["shortened"]

Lengths = Mapping[Axis, int]


def shortened(subject: Subject, target: Target, longest: int) -> tuple[Subject, Target]:
    """Both sides of a target with no axis longer than `longest`."""
    sides = (subject.source, subject.chosen, subject.meant)
    terms = (t for s in sides for _, t in s.definitions.values())
    short = _Shorter(longest, _pairs((target.term, target.output.term, *terms), longest))
    output = target.output
    made = Output(output.buffer, short.axes(output.axes), short.term(output.term))
    near = replace(target, axes=short.axes(target.axes), term=short.term(target.term), output=made)
    source, chosen, meant = (short.side(s) for s in sides)
    return replace(subject, source=source, chosen=chosen, meant=meant), near


class _Shorter:
    """Axes of at most `longest` positions; those of pairs have lengths of their own."""

    def __init__(self, longest: int, pairs: Lengths) -> None:
        self.longest, self.pairs = longest, pairs

    def side(self, side: Side) -> Side:
        terms = {n: (self.axes(a), self.term(t)) for n, (a, t) in side.definitions.items()}
        return replace(side, definitions=terms)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(self.axis(a) for a in axes)

    def axis(self, axis: Axis) -> Axis:
        return replace(axis, extent=self.pairs.get(axis, min(axis.extent, self.longest)))

    def term(self, root: Term) -> Term:
        done: dict[Term, Term] = {}
        for term in walk(root):
            inner = tuple(done[c] for c in children(term))
            match term:
                case Index(axis):
                    done[term] = Index(self.axis(axis))
                case Reduce(monoid, axis, _):
                    done[term] = Reduce(monoid, self.axis(axis), *inner)
                case Online(axis):
                    done[term] = Online(self.axis(axis), *inner)
                case _:
                    done[term] = self._position(term) or rebuild(term, inner)
        return done[root]

    def _position(self, term: Term) -> Term | None:
        """A position of two axes, its length that of the second one."""
        match term:
            case Apply("add", (whole, Const(int()))) if _pair(whole):
                return self._position(whole)
        pair = _pair(term)
        if pair is None or pair[1] not in self.pairs:
            return None
        first, second = (Index(self.axis(a)) for a in pair)
        return Apply("add", (Apply("mul", (first, Const(second.axis.extent))), second))


def _pair(term: Term) -> tuple[Axis, Axis] | None:
    """The axes i and j of `i * length + j`, where j has that many positions."""
    match term:
        case Apply("add", (Apply("mul", (Index(i), Const(length))), Index(j))):
            return (i, j) if length == j.extent else None
    return None


def _start(term: Term) -> tuple[tuple[Axis, Axis], int] | None:
    """The axes of a position, and what is added to it."""
    match term:
        case Apply("add", (whole, Const(int(start)))) if pair := _pair(whole):
            return pair, start
    pair = _pair(term)
    return (pair, 0) if pair else None


def _pairs(roots: Iterable[Term], longest: int) -> dict[Axis, int]:
    """Extents of the axes that make positions together, more than `longest` of them. Where no two
    lengths make `longest` positions, they stay as they are, as does the axis that they replace."""
    terms = list(walk(*roots))
    found: dict[Axis, int] = {}
    for pair, start in filter(None, map(_start, terms)):
        first, second = (a.extent for a in pair)
        if start + first * second > longest >= first * second:
            found |= dict(zip(pair, (first, second), strict=True))
        elif first * second > longest and found.keys().isdisjoint(pair):
            fitted = _fitted(first, second, longest)
            found |= dict(zip(pair, fitted or (first, second), strict=True))
            if fitted is None:
                found |= {a: a.extent for a in _replaced(terms, pair[1], first * second)}
    return found


def _fitted(first: int, second: int, longest: int) -> tuple[int, int] | None:
    """Two lengths of at most so many positions that make `longest` together: the second as it is,
    or else a power of two that leaves about four of the first."""
    powers = [2**k for k in range(longest.bit_length())]
    lengths = sorted(powers, key=lambda n: abs((longest // n).bit_length() - 3))
    for n in (second, *lengths):
        if n <= second and longest % n == 0 and longest // n <= first:
            return longest // n, n
    return None


def _replaced(terms: Iterable[Term], place: Axis, most: int) -> Iterator[Axis]:
    """The axes of which `place` may be a chunk."""
    for term in terms:
        axis = term.axis if isinstance(term, (Index, Reduce, Online)) else place
        alike = (axis.family, axis.number) == (place.family, place.number)
        if alike and place.extent < axis.extent <= most:
            yield axis
