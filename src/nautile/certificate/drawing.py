"""Tensors that exist only where somebody looks: elements from samples.py, on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile import samples
from nautile.dtypes import DTYPES, round_to
from nautile.oracle import Answers, Fetch
from nautile.oracle.grid import Question
from nautile.terms import Buffer

__all__ = ["Array", "Drawn", "Moved"]

Array = npt.NDArray[Any]
_KEPT = 1 << 23
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
        if key not in self.kept:
            block = self._grid(buffer, question.at)
            while self.kept and self.held + block.size > _KEPT:
                self.held -= self.kept.pop(next(iter(self.kept))).size
            self.kept[key] = block
            self.held += block.size
        return self.kept[key]

    def _grid(self, buffer: Buffer, at: tuple[Array, ...]) -> Array:
        """The elements of a grid of positions, drawn in pieces."""
        rows = _flat(buffer.shape[:-1], at[:-1]).reshape(-1, 1) * buffer.shape[-1]
        step = max(1, _AT_ONCE // max(1, at[-1].size))
        drawn = [
            self._draw(buffer, rows[start : start + step] + at[-1])
            for start in range(0, max(1, len(rows)), step)
        ]
        return np.concatenate(drawn).reshape([a.size for a in at])

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
