"""Patterns of laws evaluated as they are read: scalar by scalar, position by position.

Nothing here knows of terms, arrays or the checker: a reduction is a loop, a running value a shorter
one, a streamed sum what its definition says. Numbers are float64 or float32 scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from nautile.rules.carriers import moment_of
from nautile.rules.law import (
    Call,
    Fold,
    Moment,
    Name,
    Number,
    Pattern,
    Round,
    Size,
    Stream,
    Streamed,
)

__all__ = ["Env", "Undecided", "Value", "World", "styled"]

_SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, 1.0, -1.0, 2.5]

Env = Mapping[str, int]
Value = Any


class Undecided(Exception):
    """The law has a form that is not evaluated here."""


def _exp(x: Value) -> Value:
    return np.exp(x)


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "neg": lambda a: -a, "pow": np.power,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b), "or": lambda a, b: bool(a) or bool(b),
    "not": lambda a: not a, "where": lambda c, a, b: a if c else b,
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "sign": np.sign,
    "exp": _exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt,
    "rsqrt": lambda a: type(a)(1) / np.sqrt(a), "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "sigmoid": lambda a: type(a)(1) / (type(a)(1) + np.exp(-a)),
    "erf": lambda a: type(a)(math.erf(float(a))), "floor": np.floor, "round": np.round,
}  # fmt: skip
_FOLDS: dict[str, tuple[Value, Callable[[Value, Value], Value]]] = {
    "sum": (0.0, lambda a, b: a + b), "prod": (1.0, lambda a, b: a * b),
    "max": (-math.inf, np.maximum), "min": (math.inf, np.minimum),
    "any": (False, lambda a, b: bool(a) or bool(b)),
    "all": (True, lambda a, b: bool(a) and bool(b)),
}  # fmt: skip
_ROUND = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@dataclass(slots=True)
class World:
    """Extents, the tensors behind names, what other names are defined as, and the float in use."""

    extents: dict[str, int]
    tensors: dict[str, tuple[tuple[str, ...], Any]] = field(default_factory=dict)
    defined: dict[str, Callable[[Env], Value]] = field(default_factory=dict)
    carriers: dict[str, Pattern] = field(default_factory=dict)
    wide: bool = True
    rough: frozenset[str] = frozenset()  # hardly any product with 0.7 is exact

    def number(self, value: Value) -> Value:
        """A number in the float in use."""
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        return np.float64(value) if self.wide else np.float32(value)

    def of(self, pattern: Pattern, env: Env) -> Value:
        """The value of a pattern (without abbreviations) at a position."""
        match pattern:
            case Name(name):
                return self.name(name, env)
            case Number(value):
                return self.number(value)
            case Size(axis):
                return self.number(self.extents[axis])
            case Call(operation, arguments):
                return self._call(operation, arguments, env)
            case Round(dtype, inner) if dtype in _ROUND:
                return self.number(np.asarray(self.of(inner, env)).astype(_ROUND[dtype]))
            case Fold(monoid, axis, body):
                return self._fold(monoid, axis, body, env, self.extents[axis])
            case Stream(moment, monoid, axis, body):
                return self._fold(monoid, axis, body, env, env[axis] + (moment == "running"))
            case Moment(moment, Streamed() as streamed):
                return self._streamed(streamed, env, env[streamed.axis] + (moment == "running"))
            case Moment("running", Name(name)) if name in self.carriers:
                return self.of(moment_of(self.carriers[name], "running"), env)
            case Streamed():
                return self._streamed(pattern, env, self.extents[pattern.axis])
        raise Undecided(type(pattern).__name__)

    def name(self, name: str, env: Env) -> Value:
        """The value that a name stands for at a position."""
        if name in self.defined:
            return self.defined[name](env)
        if name in self.carriers:
            return self.of(self.carriers[name], env)
        axes, tensor = self.tensors[name]
        value = self.number(tensor[tuple(env[a] for a in axes)])
        return value * self.number(0.7) if name in self.rough else value

    def _call(self, operation: str, arguments: tuple[Pattern, ...], env: Env) -> Value:
        if operation not in _OPERATIONS:
            raise Undecided(operation)
        values = [self.of(a, env) for a in arguments]
        result = _OPERATIONS[operation](*values)
        return self.number(result)

    def _fold(self, monoid: str, axis: str, body: Pattern, env: Env, end: int) -> Value:
        values = [self.of(body, {**env, axis: i}) for i in range(end)]
        if monoid in ("argmax", "argmin"):
            if not values:
                raise Undecided("the place in nothing")
            ordered = np.array(values, float)
            return self.number((np.argmax if monoid == "argmax" else np.argmin)(ordered))
        if monoid not in _FOLDS:
            raise Undecided(monoid)
        start, combine = _FOLDS[monoid]
        total = self.number(start)
        for value in values:
            total = self.number(combine(total, value))
        return total

    def _streamed(self, streamed: Streamed, env: Env, end: int) -> Value:
        total = self.number(0.0)
        for i in range(end):
            here = {**env, streamed.axis: i}
            repair = self.of(streamed.repair, here)
            if i:
                total = self.number(0.0) if repair == 0 else total * repair
                total = total + self.of(streamed.offset, here)
            total = total + self.of(streamed.body, here)
        return total


def styled(style: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A tensor of special, large, ordinary values, or of values around a large offset."""
    if style == "special":
        return np.where(
            rng.random(shape) < 0.4, rng.choice(_SPECIAL, shape), rng.normal(size=shape)
        )
    if style == "large":
        return rng.uniform(-1, 1, shape) * 10.0 ** rng.uniform(-2, 4)
    if style == "offset":
        return rng.choice([-1000.0, 1000.0]) + 0.01 * rng.normal(size=shape)
    if rng.random() < 0.4:
        return rng.integers(-2, 3, shape).astype(np.float32)
    return rng.normal(size=shape)
