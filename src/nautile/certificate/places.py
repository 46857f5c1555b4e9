"""Where to look: positions of output axes that a wrong program is likely to get wrong.

Ends, edges of tiles and their neighbours, the ragged last tile, positions at which a mask turns
(constants that positions are compared with), and random ones. Their number shrinks until the loads
that the look-up needs stay within a budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nautile.terms import Apply, Axis, Const, Index, Load, Online, Reduce, Term, walk

__all__ = ["Grid", "fitted", "places", "spread_within"]

Grid = dict[Axis, npt.NDArray[np.int64]]
_RANDOM = 12


def places(
    axes: Sequence[Axis],
    terms: Iterable[Term],
    tiles: Mapping[Axis, int],
    rng: np.random.Generator,
    *,
    limit: int = 1024,
    loads: int = 1 << 22,
) -> Grid:
    """Positions for each axis, at most `limit` combinations, and about `loads` elements read."""
    terms = tuple(terms)
    turns = _turns(terms)
    wanted = [_candidates(a, tiles.get(a, a.extent), turns, rng) for a in axes]
    counts = fitted(axes, [len(w) for w in wanted], terms, limit, loads)
    return {
        a: np.array(sorted(w[:n]), dtype=np.int64)
        for a, w, n in zip(axes, wanted, counts, strict=True)
    }


def fitted(
    axes: Sequence[Axis], counts: Sequence[int], terms: Iterable[Term], limit: int, loads: int
) -> list[int]:
    """Counts made smaller until their product and what the terms load are within the limits: first
    where most is saved, and the last axis, a row of the judge, rather late."""
    cost = _Loads.of(terms)
    left = list(counts)
    while math.prod(left) > limit:
        weights = [c / (4 if i == len(left) - 1 else 1) for i, c in enumerate(left)]
        left[_largest(weights, left)] -= 1
    while max(left, default=1) > 1 and cost(dict(zip(axes, left, strict=True))) > loads:
        saved = [-cost(dict(zip(axes, _less(left, i), strict=True))) for i in range(len(left))]
        left[_largest(saved, left)] = _less(left, _largest(saved, left))[_largest(saved, left)]
    return left


def _less(counts: Sequence[int], place: int) -> list[int]:
    """The counts with one of them a quarter smaller."""
    return [max(1, min(c - 1, c * 3 // 4)) if i == place else c for i, c in enumerate(counts)]


def _largest(weights: Sequence[float], counts: Sequence[int]) -> int:
    """Where the weight is largest among counts above 1."""
    return max((i for i, c in enumerate(counts) if c > 1), key=lambda i: weights[i])


def _candidates(axis: Axis, tile: int, turns: set[int], rng: np.random.Generator) -> list[int]:
    """Positions in the order of their worth."""
    n = axis.extent
    last = (n - 1) // tile * tile
    edges = [n - 1, 0, tile, tile - 1, last, last - 1, n // 2, 1]
    near = [t + d for t in sorted(turns) for d in (0, -1, 1)][:18]
    chance = rng.integers(0, n, _RANDOM).tolist()
    mixed = [p for pair in zip(chance, [*near, *chance][:_RANDOM], strict=False) for p in pair]
    return [p for p in dict.fromkeys([*edges, *mixed, *near]) if 0 <= p < n]


def _turns(terms: Iterable[Term]) -> set[int]:
    """Whole numbers that positions are compared with, divided by, or shifted by."""
    found: set[int] = set()
    for root in terms:
        for term in walk(root):
            if isinstance(term, Apply) and any(isinstance(t, Index) for t in walk(term)):
                values = [a.value for a in term.arguments if isinstance(a, Const)]
                found |= {abs(int(v)) for v in values if isinstance(v, int) and abs(v) > 1}
    return found


@dataclass(frozen=True, slots=True)
class _Loads:
    """For each load its free axes, and how many elements those that run in full contribute."""

    free: tuple[tuple[tuple[Axis, ...], int], ...]

    @classmethod
    def of(cls, terms: Iterable[Term]) -> _Loads:
        rows = []
        for root in terms:
            parts = list(walk(root))
            bound = {t.axis for t in parts if isinstance(t, (Reduce, Online))}
            for t in parts:
                if isinstance(t, Load):
                    whole = math.prod(a.extent for a in t.free if a in bound)
                    rows.append((tuple(t.free - bound), whole))
        return cls(tuple(rows))

    def __call__(self, size: Mapping[Axis, int]) -> int:
        """Elements read when free axes have `size` positions each."""
        return sum(n * math.prod(size.get(a, a.extent) for a in f) for f, n in self.free)


def spread_within(start: int, stop: int, count: int, rng: np.random.Generator) -> list[int]:
    """Up to `count` positions in [start, stop): the ends, and random ones between."""
    if stop - start <= count:
        return list(range(start, stop))
    chance = rng.integers(start, stop, max(0, count - 2)).tolist()
    return sorted({start, stop - 1, *chance})
