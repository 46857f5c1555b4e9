"""Elements that were computed already: grids of positions, by tensor.

A question inside one kept grid is answered from it, so a reader that asks for a row piece by piece,
or two readers of one tensor, cost one evaluation. The oldest grids go when all together pass the
room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nautile.oracle.grid import Question
from nautile.oracle.values import Array

__all__ = ["Answers"]

_GRIDS = 64
"""Grids of one tensor that are kept: all of them are searched."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    at: tuple[Array, ...]
    grid: Array
    bounds: tuple[tuple[int, int], ...]

    def part(self, wanted: Sequence[Array]) -> Array | None:
        """The elements at the wanted positions; None where one of them is not here."""
        places = []
        for mine, theirs in zip(self.at, wanted, strict=True):
            place = _within(mine, theirs)
            if place is None:
                return None
            places.append(place)
        part = self.grid[tuple(p if isinstance(p, slice) else slice(None) for p in places)]
        for d, place in enumerate(places):
            if not isinstance(place, slice):
                part = part.take(place, axis=d)
        return part


def _bounds(at: Sequence[Array]) -> tuple[tuple[int, int], ...]:
    """First and last position along each dimension; nothing lies in empty bounds."""
    return tuple((int(a[0]), int(a[-1])) if len(a) else (0, -1) for a in at)


def _within(mine: Array, theirs: Array) -> Array | slice | None:
    """Where the positions `theirs` stand in `mine`, both in rising order and `theirs` between the
    ends of `mine`; None if some do not."""
    if len(theirs) > len(mine) or not len(theirs):
        return None
    places = mine.searchsorted(theirs)
    if not np.array_equal(mine[places], theirs):
        return None
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


@dataclass(slots=True, eq=False)
class Answers:
    """Computed grids; at most `room` bytes of them."""

    room: int = 1 << 29
    known: dict[Hashable, deque[_Known]] = field(default_factory=dict)
    order: deque[Hashable] = field(default_factory=deque)
    held: int = 0

    def find(self, tensor: Hashable, question: Question) -> Array | None:
        """The grid of a question, the newest answers first; None where it was not computed."""
        bounds = _bounds(question.at)
        for known in reversed(self.known.get(tensor, ())):
            if all(a <= c and d <= b for (a, b), (c, d) in zip(known.bounds, bounds, strict=True)):
                part = known.part(question.at)
                if part is not None:
                    return part
        return None

    def keep(self, tensor: Hashable, question: Question, grid: Array) -> None:
        """Remember a computed grid."""
        own = self.known.setdefault(tensor, deque())
        own.append(_Known(question.at, grid, _bounds(question.at)))
        self.order.append(tensor)
        self.held += grid.nbytes
        if len(own) > _GRIDS:
            self.order.remove(tensor)
            self.held -= own.popleft().grid.nbytes
        while self.held > self.room and len(self.order) > 1:
            self.held -= self.known[self.order.popleft()].popleft().grid.nbytes
