"""Questions about elements, turned into rectangular grids of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nautile.oracle.values import Array

__all__ = ["Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """Index arrays (one for each dimension of a tensor, broadcast against each other) as distinct
    positions along each dimension, and how to lay out the answer over their grid."""

    at: tuple[Array, ...]
    back: tuple[Array, ...]

    @classmethod
    def of(cls, index: Sequence[Array]) -> Question:
        found = [np.unique(np.asarray(i), return_inverse=True) for i in index]
        shaped = (b.reshape(np.shape(i)) for (_, b), i in zip(found, index, strict=True))
        return cls(tuple(at for at, _ in found), tuple(shaped))

    def answer(self, grid: Array) -> Array:
        """The elements asked for, given those of the whole grid."""
        walked = self._walked()
        if walked is None:
            return np.asarray(grid[self.back])
        for d, (at, back) in enumerate(zip(self.at, self.back, strict=True)):
            places = back.ravel()
            if not np.array_equal(places, np.arange(len(at))):
                grid = grid.take(places, axis=d)
        shape = np.broadcast_shapes(*(b.shape for b in self.back))
        dimensions = [d for ds in walked for d in ds]
        apart = grid.reshape([shape[d] for d in dimensions])
        return apart.transpose(np.argsort(dimensions)).reshape(shape)

    def _walked(self) -> list[list[int]] | None:
        """The dimensions of the answer that each index array walks, where no two share one; None
        otherwise. A gather along one dimension moves rows, one along all of them moves elements."""
        walked = [[d for d, n in enumerate(back.shape) if n != 1] for back in self.back]
        every = [d for ds in walked for d in ds]
        alike = len({back.ndim for back in self.back}) == 1
        return walked if alike and len(set(every)) == len(every) else None

    def widened(self, shape: Sequence[int], allowed: Callable[[tuple[int, ...]], bool]) -> Question:
        """The same question over a grid that is whole along as many dimensions, the last first, as
        is allowed for its extents: what is asked next is then known already."""
        at, back = list(self.at), list(self.back)
        for d in reversed(range(len(at))):
            extents = tuple(shape[d] if i == d else len(a) for i, a in enumerate(at))
            inside = len(at[d]) < shape[d] and at[d].max(initial=0) < shape[d]
            if inside and allowed(extents):
                back[d] = at[d][back[d]]
                at[d] = np.arange(shape[d])
        return Question(tuple(at), tuple(back))
