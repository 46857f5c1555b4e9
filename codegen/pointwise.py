"""Pointwise terms in NumPy with the arithmetic of the GPU: float32 unless an operand is float64,
every cast a rounding. The interpreter's inner level; `operators.py` is its C++ twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.codegen.operators import operand_kinds
from nautile.codegen.types import carrier, dtype_of
from nautile.dtypes import DTYPES, storage
from nautile.errors import LoweringError
from nautile.terms import Apply, Cast, Const, Term, children, walk

__all__ = ["ARRAY", "FUNCTIONS", "Array", "evaluate", "rounded"]

Array = npt.NDArray[Any]
ARRAY: dict[str, Any] = {
    "bool": np.bool_,
    "i32": np.int64,
    "i64": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}


def rounded(x: Array, dtype: str) -> Array:
    """The values rounded to `dtype`, in its carrier's array type (integers truncate)."""
    kind = ARRAY[carrier(dtype)]
    if dtype in ("f32", "f64", "bool", "i32", "i64"):
        return x.astype(kind)
    if dtype == "tf32":
        bits = x.astype(np.float32).view(np.uint32)
        near = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.where(np.isfinite(x), near, x).astype(np.float32)
    narrow = x.astype(np.int64) if DTYPES[dtype].kind == "integer" else x.astype(np.float32)
    return narrow.astype(storage(dtype)).astype(kind)


def evaluate(root: Term, leaf: Callable[[Term], Array | None], types: Mapping[Term, str]) -> Array:
    """The value of a pointwise term; `leaf` gives the arrays of Refs, Loads and Indices (None for
    other terms), all of them broadcastable; `types` may hold types that are known already."""
    values: dict[Term, Array] = {}
    kinds: dict[Term, str] = dict(types)
    for term in walk(root):
        kinds.setdefault(term, dtype_of(term))
        found = leaf(term)
        values[term] = found if found is not None else _node(term, values, kinds)
    return values[root]


def _node(term: Term, values: Mapping[Term, Array], kinds: Mapping[Term, str]) -> Array:
    if isinstance(term, Const):
        return np.asarray(term.value, ARRAY[carrier(kinds[term])])
    if isinstance(term, Cast):
        return rounded(values[term.argument], term.dtype)
    if not isinstance(term, Apply):
        raise LoweringError(f"{type(term).__name__} is not pointwise")
    inner = children(term)
    wanted = operand_kinds(term.operation, [kinds[c] for c in inner])
    args = [_operand(c, values[c], k) for c, k in zip(inner, wanted, strict=True)]
    result: Array = np.asarray(FUNCTIONS[term.operation](*args))
    return result.astype(ARRAY[carrier(kinds[term])])


def _operand(term: Term, value: Array, kind: str) -> Array:
    """The value in a carrier: a number has all its digits beside a float64 one."""
    return np.asarray(term.value if isinstance(term, Const) else value).astype(ARRAY[kind])


def _sigmoid(x: Array) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _rsqrt(x: Array) -> Any:
    return x.dtype.type(1) / np.sqrt(x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
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
    "rsqrt": _rsqrt,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "round": np.rint,
    "where": np.where,
}
