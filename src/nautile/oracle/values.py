"""Values: arrays over named axes, and the scalar operations on them.

A value's axes are in the order of Axis, so two values align by inserting dimensions of extent 1.
Floats are float64, or float32 where the oracle imitates a naive implementation; integers are int64
and truth values bool, both exact. A `weak` value is a constant, which takes its neighbour's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.dtypes import is_float, round_to
from nautile.operations import OPERATIONS
from nautile.terms import Axis

__all__ = ["SCALAR", "Array", "Value", "align", "cast", "constant", "operate", "spread", "widest"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """`array` over `axes`, one dimension an axis."""

    axes: tuple[Axis, ...]
    array: Array
    weak: bool = False


def constant(value: bool | int | float) -> Value:
    """A constant; integers beyond 64 bits become floats."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    return Value((), np.asarray(value), weak=True)


def spread(value: Value, axes: Sequence[Axis]) -> Array:
    """The array with one dimension for each of `axes` (sorted, a superset of the value's own)."""
    if value.axes == tuple(axes):
        return value.array
    own = set(value.axes)
    return value.array[tuple(slice(None) if a in own else None for a in axes)]


def align(values: Iterable[Value]) -> tuple[tuple[Axis, ...], list[Array]]:
    """The union of the axes, and the arrays spread over it."""
    values = list(values)
    axes = tuple(sorted({a for v in values for a in v.axes}))
    return axes, [spread(v, axes) for v in values]


def widest(values: Iterable[Value], precision: str) -> type[np.floating[Any]]:
    """The float type of an operation's arithmetic."""
    if precision == "f64":
        return np.float64
    wide = any(v.array.dtype == np.float64 and not v.weak for v in values)
    return np.float64 if wide else np.float32


def operate(name: str, values: Sequence[Value], precision: str) -> Value:
    """One scalar operation, pointwise, with NumPy's rules for NaN, infinities, `//` and `%`."""
    axes, arrays = align(values)
    arrays = _converted(name, arrays, widest(values, precision))
    with np.errstate(all="ignore"):
        return Value(axes, np.asarray(SCALAR[name](*arrays)))


def _converted(name: str, arrays: list[Array], real: type[np.floating[Any]]) -> list[Array]:
    """Arguments in the type that the operation computes in."""
    if name in ("and", "or", "not"):
        return [a.astype(np.bool_) for a in arrays]
    if name == "where":
        return [arrays[0].astype(np.bool_), *_common(arrays[1:], real)]
    if OPERATIONS[name].result == "float":
        return [a.astype(real, copy=False) for a in arrays]
    arrays = _common(arrays, real)
    if name in _ARITHMETIC and arrays[0].dtype == np.bool_:
        return [a.astype(np.int64) for a in arrays]
    return arrays


def _common(arrays: Sequence[Array], real: type[np.floating[Any]]) -> list[Array]:
    kinds = {a.dtype.kind for a in arrays}
    if "f" in kinds:
        return [a.astype(real, copy=False) for a in arrays]
    if "i" in kinds:
        return [a.astype(np.int64, copy=False) for a in arrays]
    return list(arrays)


def cast(value: Value, dtype: str, precision: str, *, rounds: bool = True) -> Value:
    """The value rounded to an element type. Integer types truncate, bool tells zero from the rest;
    `rounds = False` leaves floats as they are."""
    array = value.array
    if dtype == "bool":
        return Value(value.axes, array != 0)
    if not is_float(dtype):
        with np.errstate(invalid="ignore"):
            kept = array if array.dtype.kind == "i" else array.astype(np.int64)
            return Value(value.axes, kept.astype(_INTEGERS[dtype]).astype(np.int64))
    real = np.float64 if precision == "f64" or dtype == "f64" else np.float32
    rounded = round_to(array, dtype) if rounds else array
    return Value(value.axes, np.asarray(rounded).astype(real))


_INTEGERS = {"i64": np.int64, "i32": np.int32, "i8": np.int8}
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "abs", "sign", "floordiv", "mod"})
_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x.astype(np.float64)), dtype=np.float64).astype(x.dtype)


SCALAR: dict[str, Callable[..., Any]] = {
    "or": np.logical_or,
    "and": np.logical_and,
    "not": np.logical_not,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "neg": np.negative,
    "pow": np.power,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "round": np.rint,
    "where": np.where,
}
