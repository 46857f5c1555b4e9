"""Streams taken block by block, the way kernels take them.

An online sum promises that its repair and its offset hold for a block of positions at once as for
its positions one by one (`nautile.terms`). `Blocks` evaluates terms by that promise: within a block
every running value is the one at the block's end, every value before is the one at its start. A law
that holds one by one but not here is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Index,
    Load,
    Online,
    Running,
    Term,
    children,
    rebuild,
)

__all__ = ["Blocks"]

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Blocks:
    """Evaluation over tensors `values`; `ends` are the ends of each axis' blocks."""

    values: dict[str, Array]
    ends: Mapping[Axis, list[int]]
    known: dict[Term, Array] = field(default_factory=dict)

    def __call__(self, term: Term, axes: tuple[Axis, ...]) -> Array:
        """The term over all positions of the axes, in their order."""
        return self._over(self._settled(term), axes)

    def _over(self, term: Term, axes: tuple[Axis, ...]) -> Array:
        positions = {a: np.arange(a.extent) for a in axes}
        value = evaluate(term, arrays_fetch(self.values), positions)
        return np.broadcast_to(np.asarray(value), [a.extent for a in axes])

    def _settled(self, term: Term) -> Term:
        """The term with its online sums read from tensors."""
        if isinstance(term, Online):
            return self._load(self._states(term)[-1], tuple(sorted(term.free)))
        return rebuild(term, tuple(self._settled(c) for c in children(term)))

    def _load(self, data: Array, axes: tuple[Axis, ...]) -> Load:
        name = f"state_{len(self.values)}"
        self.values[name] = data
        return Load(Buffer(name, data.shape, "f64"), tuple(Index(a) for a in axes))

    def _states(self, online: Online) -> Array:
        """The sum before the first block and after each, over the sorted free axes."""
        if online not in self.known:
            self.known[online] = self._streamed(online)
        return self.known[online]

    def _streamed(self, online: Online) -> Array:
        axis, free = online.axis, tuple(sorted(online.free))
        parts = [self._over(self._moving(t, axis), (axis, *free)) for t in children(online)]
        repair, body, offset = parts if len(parts) == 3 else [*parts, np.zeros_like(parts[1])]
        states, start = [np.zeros(body.shape[1:])], 0
        with np.errstate(all="ignore"):
            for end in self.ends[axis]:
                kept = np.where(repair[start] == 0, 0.0, states[-1] * repair[start])
                states.append(kept + offset[start] + body[start:end].sum(axis=0))
                start = end
        return np.stack(states)

    def _moving(self, term: Term, axis: Axis) -> Term:
        """The term with running values over the axis read from tensors, a block's all the same."""
        if isinstance(term, (Running, Before)) and term.axis == axis:
            states = self._prefixes(term.reduction, axis)
            block = np.searchsorted(self.ends[axis], np.arange(axis.extent), side="right")
            at = block + 1 if isinstance(term, Running) else block
            free = tuple(sorted(term.reduction.free))
            return self._load(states[at], (axis, *free))
        return rebuild(term, tuple(self._moving(c, axis) for c in children(term)))

    def _prefixes(self, reduction: Term, axis: Axis) -> Array:
        if isinstance(reduction, Online):
            return self._states(reduction)
        axes = (axis, *sorted(reduction.free))
        whole = self._over(Running(reduction), axes)
        first = self._over(Before(reduction), axes)[:1]
        return np.concatenate([first, whole[np.array(self.ends[axis]) - 1]])
