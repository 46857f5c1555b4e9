"""Whole programs evaluated on arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nautile.dtypes import is_float, round_to
from nautile.errors import InputError
from nautile.oracle.evaluation import Fetch
from nautile.oracle.lookup import arrays_fetch, evaluate, lazy
from nautile.oracle.values import Array, Value, cast
from nautile.terms import Buffer, Program

__all__ = ["run", "stored"]

_LARGEST = 1 << 26
"""Elements of a definition that `run` keeps; larger ones are evaluated where they are read."""


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
