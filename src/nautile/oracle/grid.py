"""Questions about elements, turned into rectangular grids of positions."""

from __future__ import annotations

from collections.abc import Sequence
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

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal for equal grids."""
        return tuple(a.tobytes() for a in self.at)

    def answer(self, grid: Array) -> Array:
        """The elements asked for, given those of the whole grid."""
        if self._is_mesh():
            shape = np.broadcast_shapes(*(b.shape for b in self.back))
            return grid.reshape(shape)
        return np.asarray(grid[self.back])

    def _is_mesh(self) -> bool:
        """Whether the index arrays are the grid itself, dimension by dimension."""
        last = -1
        for at, back in zip(self.at, self.back, strict=True):
            long = [d for d, n in enumerate(back.shape) if n > 1]
            if len(long) > 1 or back.size != len(at) or (long and long[0] <= last):
                return False
            if long:
                last = long[0]
                if not np.array_equal(back.ravel(), np.arange(back.size)):
                    return False
        return bool(self.back)
