"""Constant expressions: evaluated in float64 (integers exactly) when a program is read."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["fold"]

Value = bool | int | float

_LARGEST_INTEGER = 2**63 - 1


def fold(operation: str, values: tuple[Value, ...]) -> Value | None:
    """The value of an operation on numbers, or None where it has no finite one worth keeping
    (a division by zero, a logarithm of a negative number, an integer beyond 64 bits): the operation
    then stays in the term and follows IEEE arithmetic."""
    if operation == "pow" and _huge_power(values):
        return None
    try:
        result = _TABLE[operation](*values)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return None
    if isinstance(result, int) and not isinstance(result, bool):
        return result if abs(result) <= _LARGEST_INTEGER else None
    return result if isinstance(result, (bool, float)) else None


def _huge_power(values: tuple[Value, ...]) -> bool:
    base, exponent = values
    if not isinstance(base, int) or not isinstance(exponent, int):
        return False
    return exponent > 0 and abs(base).bit_length() * exponent > 128


def _extreme(pick: Callable[..., Value], a: Value, b: Value) -> Value:
    """max or min as IEEE 754-2019 has them: NaN is handed on, -0 is below +0."""
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        if math.isnan(x) or math.isnan(y):
            return math.nan
        return pick(x, y, key=lambda v: (v, math.copysign(1.0, v)))
    return pick(a, b)


def _where(condition: Value, a: Value, b: Value) -> Value:
    chosen = a if condition else b
    return float(chosen) if isinstance(a, float) or isinstance(b, float) else chosen


def _sign(a: Value) -> Value:
    if a != a or a == 0:
        return a
    return type(a)(1 if a > 0 else -1)


_TABLE: dict[str, Callable[..., Value]] = {
    "or": lambda a, b: a or b,
    "and": lambda a, b: a and b,
    "not": lambda a: not a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "neg": lambda a: -a,
    "pow": lambda a, b: a**b,
    "abs": abs,
    "sign": _sign,
    "max": lambda a, b: _extreme(max, a, b),
    "min": lambda a, b: _extreme(min, a, b),
    "exp": math.exp,
    "exp2": math.exp2,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1.0 / math.sqrt(a),
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda a: 1.0 / (1.0 + math.exp(-a)),
    "sin": math.sin,
    "cos": math.cos,
    "floor": lambda a: float(math.floor(a)),
    "round": lambda a: float(round(a)),
    "where": _where,
}
