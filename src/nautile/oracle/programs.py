"""Terms and programs evaluated: the oracle's entry points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.dtypes import is_float, round_to
from nautile.errors import InputError
from nautile.inline import Definitions
from nautile.oracle.evaluation import Evaluator, Fetch
from nautile.oracle.grid import Question
from nautile.oracle.scope import BUDGET, Positions, Scope, halves, sizes, weight
from nautile.oracle.values import Array, Value, cast, spread
from nautile.terms import Axis, Buffer, Program, Term

__all__ = ["arrays_fetch", "evaluate", "lazy", "run"]

_LARGEST = 1 << 26
"""Elements of a definition that `run` keeps; larger ones are evaluated where they are read."""


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
        return _evaluated(evaluator, terms, scope)
    return tuple(_evaluated(evaluator, t, scope) for t in terms)


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
    return np.array(array.transpose([axes.index(a) for a in scope]), order="C")


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
) -> Fetch:
    """A fetch that evaluates defined buffers at the positions that are asked for, each definition
    reading others the same way, and passes everything else on to `fetch`. Answers are kept while
    they fit into twice the budget, so that one question asked twice costs once. With `widen`, up to
    so many elements are evaluated at once around what is asked, for readers that walk on."""
    kept: dict[Any, Array] = {}

    def read(buffer: Buffer, index: tuple[Array, ...]) -> Array:
        if buffer.name not in definitions:
            return fetch(buffer, index)
        axes, term = definitions[buffer.name]
        question = Question.of(index).widened(buffer.shape, widen)
        key = (buffer.name, *question.key)
        if key not in kept:
            at = dict(zip(axes, question.at, strict=True))
            found = evaluate(term, read, at, precision=precision, casts=casts, budget=budget)
            _forget(kept, 2 * budget - found.size)
            kept[key] = found
        return question.answer(kept[key])

    return read


def _forget(kept: dict[Any, Array], room: int) -> None:
    """Drop the oldest answers until the rest takes no more than `room` elements."""
    held = sum(a.size for a in kept.values())
    while kept and held > room:
        held -= kept.pop(next(iter(kept))).size


def run(
    program: Program,
    arrays: Mapping[str, npt.ArrayLike],
    *,
    storage: bool = True,
    precision: str = "f64",
) -> dict[str, Array]:
    """Every output of the program on the given inputs, by buffer name.

    Inputs are rounded to their declared types and outputs to theirs; `storage=False` ignores
    storage types and casts to floats. Scalars with a default may be left out. Definitions carry
    float32 in a compiled program but are exact here. Raises InputError for a missing or misshapen
    input.
    """
    known: dict[str, Array] = {b.name: _input(program, b, arrays, storage) for b in program.inputs}
    fetch: Fetch = arrays_fetch(known)
    for d in program.definitions:
        if d.buffer.size > _LARGEST:
            fetch = lazy({d.name: (d.axes, d.body)}, fetch, precision=precision, casts=storage)
        else:
            at = {a: np.arange(a.extent) for a in d.axes}
            array = evaluate(d.body, fetch, at, precision=precision, casts=storage)
            fetch = _with(fetch, d.name, array)
    outputs = {}
    for o in program.outputs:
        at = {a: np.arange(a.extent) for a in o.axes}
        array = evaluate(o.term, fetch, at, precision=precision, casts=storage)
        outputs[o.buffer.name] = stored(array, o.buffer.dtype) if storage else array
    return outputs


def _with(fetch: Fetch, name: str, array: Array) -> Fetch:
    def read(buffer: Buffer, index: tuple[Array, ...]) -> Array:
        return np.asarray(array[index]) if buffer.name == name else fetch(buffer, index)

    return read


def stored(array: Array, dtype: str) -> Array:
    """What is read back after a store: rounded to the type, in float64, int64 or bool."""
    return cast(Value((), array), dtype, "f64").array


def _input(
    program: Program, buffer: Buffer, arrays: Mapping[str, npt.ArrayLike], storage: bool
) -> Array:
    if buffer.name not in arrays and buffer.name not in program.defaults:
        raise InputError(f"{program.name} needs a value for {buffer.name!r}", code="input.missing")
    array = np.asarray(arrays.get(buffer.name, program.defaults.get(buffer.name)))
    if array.shape != buffer.shape:
        message = f"{buffer.name!r} has shape {array.shape}, expected {buffer.shape}"
        raise InputError(message, code="input.shape")
    if not is_float(buffer.dtype):
        return cast(Value((), array), buffer.dtype, "f64").array
    return round_to(array, buffer.dtype) if storage else array.astype(np.float64)
