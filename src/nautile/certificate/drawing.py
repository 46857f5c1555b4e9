"""Tensors that exist only where somebody looks: elements from samples.py, on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile import samples
from nautile.dtypes import DTYPES, round_to
from nautile.oracle.grid import Question
from nautile.terms import Buffer

__all__ = ["Array", "Drawn"]

Array = npt.NDArray[Any]
_KEPT = 1 << 23


@dataclass(slots=True)
class Drawn:
    """A fetch of sampled tensors, the same elements that samples.py gives on any machine. `kinds`
    says how each is drawn; elements are rounded to the type that the load names, and come in
    float64, int64 or bool."""

    seed: int
    kinds: Mapping[str, str]
    kept: dict[Any, Array] = field(default_factory=dict)
    held: int = 0

    def __call__(self, buffer: Buffer, index: tuple[Array, ...]) -> Array:
        if not index:
            return self._draw(buffer, np.zeros((), dtype=np.int64))
        question = Question.of(index)
        return question.answer(self._block(buffer, question))

    def _block(self, buffer: Buffer, question: Question) -> Array:
        """The elements of the question's grid, kept for the next question."""
        key = (buffer.name, buffer.dtype, *question.key)
        if key not in self.kept:
            block = self._draw(buffer, _flat(buffer.shape, question.at))
            while self.kept and self.held + block.size > _KEPT:
                self.held -= self.kept.pop(next(iter(self.kept))).size
            self.kept[key] = block
            self.held += block.size
        return self.kept[key]

    def _draw(self, buffer: Buffer, flat: Array) -> Array:
        drawn = samples.values(self.kinds[buffer.name], self.seed, buffer.name, flat)
        kind = DTYPES[buffer.dtype].kind
        if kind == "float":
            return round_to(drawn, buffer.dtype)
        return np.asarray(drawn != 0 if kind == "bool" else drawn.astype(np.int64))


def _flat(shape: tuple[int, ...], at: tuple[Array, ...]) -> Array:
    """Row-major indices of the grid of positions."""
    flat = np.zeros((1,) * len(shape), dtype=np.int64)
    step = 1
    for d in reversed(range(len(shape))):
        place = [1] * len(shape)
        place[d] = -1
        flat = flat + at[d].astype(np.int64).reshape(place) * step
        step *= shape[d]
    return flat
