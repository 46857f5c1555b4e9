"""Terms looked at: at chosen positions, and with definitions behind the loads."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.inline import Definitions
from nautile.oracle.answers import Answers
from nautile.oracle.evaluation import Evaluator, Fetch
from nautile.oracle.grid import Question
from nautile.oracle.scope import BUDGET, Positions, Scope, halves, sizes, weight
from nautile.oracle.values import Array, Value, spread
from nautile.oracle.work import work_of
from nautile.terms import Axis, Buffer, Term

__all__ = ["arrays_fetch", "evaluate", "lazy"]

_CHEAP = 1 << 22
"""Products that are not worth a second question."""
_STACK, _FRAMES = 1000, 24
"""Python's frames, those of all else and of one definition that reads another."""


def evaluate(
    terms: Term | Sequence[Term],
    fetch: Fetch,
    positions: Mapping[Axis, npt.ArrayLike],
    *,
    precision: str = "f64",
    casts: bool = True,
    budget: int = BUDGET,
) -> Any:
    """The terms at all combinations of the given positions of their free axes.

    The result (a tuple of results for a sequence of terms) has one dimension for each axis of
    `positions`, in that order. `fetch(buffer, index)` supplies loads: `index` holds one integer
    array for each dimension of the buffer, and the answer has their broadcast shape. `precision`
    "f64" is the meaning; "f32" is what a naive implementation in float32 computes (values that are
    float64 stay so); "mma" is the same with tensor cores, where a float32 operand of a contraction
    rounds to the type of a bf16, f16 or fp8 neighbour. `casts=False` ignores roundings to float
    types. `budget` bounds the elements held by one scope. Raises KeyError where a free axis has no
    positions.
    """
    scope = {a: Positions(np.asarray(p, dtype=np.int64).ravel()) for a, p in positions.items()}
    evaluator = Evaluator(fetch, precision, casts, budget)
    if isinstance(terms, Term):
        return _own(_evaluated(evaluator, terms, scope))
    return tuple(_own(_evaluated(evaluator, t, scope)) for t in terms)


def _own(array: Array) -> Array:
    """An array of its own in row-major order."""
    return np.array(array, order="C")


def _evaluated(evaluator: Evaluator, term: Term, scope: Scope) -> Array:
    """One term over all axes of the scope, in its order; halved while it does not fit."""
    cut = halves(scope) if weight(term, sizes(scope)) > evaluator.budget else None
    if cut is None:
        return _laid_out(evaluator.value(term, scope), scope)
    axis, *parts = cut
    arrays = [_evaluated(evaluator, term, part) for part in parts]
    return np.concatenate(arrays, axis=list(scope).index(axis))


def _laid_out(value: Value, scope: Scope) -> Array:
    axes = tuple(sorted(scope))
    array = np.broadcast_to(spread(value, axes), [len(scope[a].at) for a in axes])
    return array.transpose([axes.index(a) for a in scope])


def arrays_fetch(arrays: Mapping[str, npt.ArrayLike]) -> Fetch:
    """A fetch that reads whole arrays by buffer name."""
    kept = {name: np.asarray(a) for name, a in arrays.items()}

    def fetch(buffer: Buffer, index: tuple[Array, ...]) -> Array:
        return np.asarray(kept[buffer.name][index])

    return fetch


def lazy(
    definitions: Definitions,
    fetch: Fetch,
    *,
    precision: str = "f64",
    casts: bool = True,
    budget: int = BUDGET,
    widen: int = 0,
    answers: Answers | None = None,
) -> Fetch:
    """A fetch that evaluates defined buffers at the positions that are asked for, each definition
    reading others the same way, and passes everything else on to `fetch`. What was computed is kept
    in `answers` (one store may serve several fetches), so that one element asked for twice costs
    once. With `widen`, up to so many elements are evaluated at once around what is asked, where
    that costs little more: a reader that walks along a row gets the whole row's reduction once."""
    deepest = _STACK + _FRAMES * len(definitions)  # each may read the one before
    sys.setrecursionlimit(max(sys.getrecursionlimit(), deepest))
    store = Answers() if answers is None else answers
    return _Lazy(definitions, fetch, precision, casts, budget, widen, store)


@dataclass(slots=True, eq=False)
class _Lazy:
    definitions: Definitions
    fetch: Fetch
    precision: str
    casts: bool
    budget: int
    widen: int
    answers: Answers
    costs: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)

    def __call__(self, buffer: Buffer, index: tuple[Array, ...]) -> Array:
        if buffer.name not in self.definitions:
            return self.fetch(buffer, index)
        question = Question.of(index)
        found = self.answers.find((self, buffer.name), question)
        if found is None:
            question = self._widened(buffer.name, question)
            found = self._evaluated(buffer.name, question)
            self.answers.keep((self, buffer.name), question, found)
        return question.answer(found)

    def _evaluated(self, name: str, question: Question) -> Array:
        axes, term = self.definitions[name]
        scope = {a: Positions(at) for a, at in zip(axes, question.at, strict=True)}
        evaluator = Evaluator(self, self.precision, self.casts, self.budget)
        return _evaluated(evaluator, term, scope)

    def _widened(self, name: str, question: Question) -> Question:
        if not self.widen:
            return question
        asked = self._cost(name, tuple(len(a) for a in question.at))

        def allowed(extents: tuple[int, ...]) -> bool:
            most = max(_CHEAP, 2 * asked)
            return math.prod(extents) <= self.widen and self._cost(name, extents) <= most

        return question.widened([a.extent for a in self.definitions[name][0]], allowed)

    def _cost(self, name: str, extents: tuple[int, ...]) -> int:
        """Elements and products of a grid of these extents."""
        key = (name, extents)
        if key not in self.costs:
            axes, term = self.definitions[name]
            size = dict(zip(axes, extents, strict=True))
            self.costs[key] = math.prod(extents) + work_of(term, size, self.definitions)
        return self.costs[key]
