"""Tensors that exist only where somebody looks: elements from samples.py, on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile import samples
from nautile.dtypes import DTYPES, round_to, storage
from nautile.oracle import Answers, Fetch
from nautile.oracle.grid import Question
from nautile.terms import Buffer

__all__ = ["Array", "Drawn", "Moved"]

Array = npt.NDArray[Any]
_KEPT = 1 << 28
"""Bytes of drawn elements that are kept, in the types in which they are stored."""
_AT_ONCE = 1 << 14
"""Elements drawn together: their temporaries stay in a cache (15 times faster than 2**20)."""


@dataclass(slots=True)
class Drawn:
    """A fetch of sampled tensors, the same elements that samples.py gives on any machine. `kinds`
    says how each is drawn; elements are rounded to the type that the load names, and come in
    float64, int64 or bool. `fetches` are those of definitions that read these tensors, by what they
    depend on, and `answers` is what they computed."""

    seed: int
    kinds: Mapping[str, str]
    answers: Answers = field(default_factory=Answers)
    fetches: dict[Any, Fetch] = field(default_factory=dict)
    kept: dict[Any, Array] = field(default_factory=dict)
    held: int = 0

    def __call__(self, buffer: Buffer, index: tuple[Array, ...]) -> Array:
        if not index:
            return self._draw(buffer, np.zeros((), dtype=np.int64))
        question = Question.of(index)
        return question.answer(self._block(buffer, question))

    def _block(self, buffer: Buffer, question: Question) -> Array:
        """The elements of the question's grid, kept for the next question."""
        key = (buffer.name, buffer.dtype, *(a.tobytes() for a in question.at))
        block = self.kept.get(key)
        if block is None:
            block = self.kept[key] = self._grid(buffer, question.at)
            self.held += block.nbytes
            while self.held > _KEPT and len(self.kept) > 1:
                self.held -= self.kept.pop(next(iter(self.kept))).nbytes
        return block.astype(np.float64) if DTYPES[buffer.dtype].kind == "float" else block

    def _grid(self, buffer: Buffer, at: tuple[Array, ...]) -> Array:
        """The elements of a grid of positions, drawn in pieces."""
        rows = _flat(buffer.shape[:-1], at[:-1]).reshape(-1, 1) * buffer.shape[-1]
        drawn = np.empty((len(rows), at[-1].size), dtype=self._kept_as(buffer))
        step = max(1, _AT_ONCE // max(1, at[-1].size))
        for start in range(0, len(rows), step):
            drawn[start : start + step] = self._draw(buffer, rows[start : start + step] + at[-1])
        return drawn.reshape([a.size for a in at])

    def _kept_as(self, buffer: Buffer) -> np.dtype[np.generic]:
        """A type that holds the drawn elements exactly."""
        kind = DTYPES[buffer.dtype].kind
        return np.dtype(np.int64) if kind == "integer" else storage(buffer.dtype)

    def _draw(self, buffer: Buffer, flat: Array) -> Array:
        drawn = samples.values(self.kinds[buffer.name], self.seed, buffer.name, flat)
        kind = DTYPES[buffer.dtype].kind
        if kind == "float":
            return round_to(drawn, buffer.dtype)
        return np.asarray(drawn != 0 if kind == "bool" else drawn.astype(np.int64))


@dataclass(slots=True)
class Moved(Drawn):
    """The same tensors, every float moved by less than the share `by`: how far a result follows
    tells how well its inputs determine it."""

    number: int = 0
    by: float = 2.0**-22

    def _kept_as(self, buffer: Buffer) -> np.dtype[np.generic]:
        kept = Drawn._kept_as(self, buffer)
        return np.dtype(np.float64) if DTYPES[buffer.dtype].kind == "float" else kept

    def _draw(self, buffer: Buffer, flat: Array) -> Array:
        drawn = Drawn._draw(self, buffer, flat)
        if DTYPES[buffer.dtype].kind != "float":
            return drawn
        name = f"{buffer.name} moved {self.number}"
        share = samples.values("uniform:-1:1", self.seed, name, flat)
        return np.asarray(drawn * (1 + self.by * share))


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
