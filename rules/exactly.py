"""Laws in exact arithmetic: over a prime field, and over the rationals in their order.

Where only + - * /, powers by whole numbers, masks and sums occur, both sides are rational functions
of their names: equal at random points of a field of 2^31 - 1 elements, they are equal but for a
chance of about degree / 2^24 each (Schwartz 1980, Zippel 1979; points are integers below 2^24).
Where the order of numbers matters (max, min, comparisons, absolute values, the places of maxima),
small fractions are tried instead.
Values that are divided by zero, or by what is infinite, are undefined and say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from nautile.terms import (
    Apply,
    Axis,
    Before,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    walk,
)

from .instance import Instance, patterns_of
from .law import (
    Call,
    Fold,
    Moment,
    Number,
    Pattern,
    Repair,
    Rescaled,
    Round,
    Rule,
    Stream,
    Streamed,
    parts,
)
from .setting import Unsupported
from .trials import Found, Method
from .values import Array

__all__ = ["exact_methods", "exact_sides"]

PRIME = 2**31 - 1
_RING = {"add", "sub", "mul", "div", "neg", "pow", "where", "and", "or", "not", "eq", "ne"}
_ORDER = _RING | {"max", "min", "abs", "sign", "lt", "le", "gt", "ge", "floor", "floordiv", "mod"}
_FOLDS = {"sum", "prod", "any", "all"}
_POWER = 8


def exact_methods(rule: Rule, numerics: str) -> Iterator[Method]:
    """The exact method that a law's operations allow, if the class speaks of real numbers."""
    if numerics == "exact" or numerics == "approx":
        return
    used = {p for s in patterns_of(rule) for p in parts(s)}
    relations = {r.relation for r in (*rule.premises, rule.conclusion) if r is not None}
    if relations - {"drop"} or any(map(_inexact, used)):
        return
    if all(_within(p, _RING, _FOLDS) for p in used):
        yield FIELD
    elif all(_within(p, _ORDER, {*_FOLDS, "max", "min", "argmax", "argmin"}) for p in used):
        yield RATIONALS


def _inexact(pattern: Pattern) -> bool:
    """What has no exact value: roundings, streams whose repair is an exponential, constants that
    are no fractions, powers that are no small whole numbers."""
    match pattern:
        case Round() | Rescaled() | Streamed() | Stream() | Moment() | Repair():
            return True
        case Number(value):
            return not np.isfinite(value)
        case Call("pow", (_, exponent)):
            whole = isinstance(exponent, Number) and exponent.value == int(exponent.value)
            return not whole or not 0 <= exponent.value <= _POWER  # type: ignore[union-attr]
    return False


def _within(pattern: Pattern, operations: set[str], folds: set[str]) -> bool:
    match pattern:
        case Call(operation, _):
            return operation in operations
        case Fold(monoid, _, _):
            return monoid in folds
    return True


@dataclass(slots=True)
class _Exact:
    """Evaluation over all positions of `axes`: arrays with one dimension an axis, of extent 1 where
    the value does not depend on it, and masks of what is undefined. Numbers are field elements in
    int64 (`prime`), or Fractions."""

    values: Mapping[str, Array]
    axes: tuple[Axis, ...]
    prime: int | None
    known: dict[Term, tuple[Array, Array]] = field(default_factory=dict)

    def value(self, root: Term) -> tuple[Array, Array]:
        """The value and where it is undefined."""
        for term in walk(root):
            if term not in self.known and not isinstance(term, (Running, Before, Online)):
                self.known[term] = self._compute(term)
        return self.known[root]

    def _compute(self, term: Term) -> tuple[Array, Array]:
        match term:
            case Const(value):
                return self._constant(value)
            case Index(axis):
                shape = [a.extent if a == axis else 1 for a in self.axes]
                return self._numbers(np.arange(axis.extent)).reshape(shape), _nowhere(self.axes)
            case Load():
                return self._loaded(term), _nowhere(self.axes)
            case Apply(operation, arguments):
                return self._applied(operation, [self.known[a] for a in arguments])
            case Reduce(monoid, axis, body):
                return self._reduced(monoid, axis, *self.known[body])
        raise Unsupported(f"no exact value of {type(term).__name__}")

    def _constant(self, value: bool | int | float) -> tuple[Array, Array]:
        if isinstance(value, bool):
            return np.full([1] * len(self.axes), value), _nowhere(self.axes)
        number = Fraction(value)
        if self.prime is not None:
            inverse = pow(number.denominator, -1, self.prime)
            array = np.array(number.numerator * inverse % self.prime)
        else:
            array = np.array(number, dtype=object)
        return array.reshape([1] * len(self.axes)), _nowhere(self.axes)

    def _numbers(self, array: Array) -> Array:
        if self.prime is not None:
            return np.asarray(array % self.prime, np.int64)
        return np.frompyfunc(lambda x: Fraction(int(x)), 1, 1)(array)  # type: ignore[no-any-return]

    def _loaded(self, load: Load) -> Array:
        """The tensor at the load's coordinates, which are integers of the axes."""
        data = self.values[load.buffer.name]
        index = [np.asarray(self.known[c][0]) for c in load.coordinates]
        whole = [np.vectorize(int, otypes=[np.int64])(i) for i in index]
        inside = np.ones([1] * len(self.axes), bool)
        for i, extent in zip(whole, load.buffer.shape, strict=True):
            inside = inside & (i >= 0) & (i < extent)
        clipped = [np.clip(i, 0, e - 1) for i, e in zip(whole, load.buffer.shape, strict=True)]
        found = data[tuple(clipped)] if clipped else data.reshape([1] * len(self.axes))
        nothing: Any = Fraction(0) if data.dtype == object else data.dtype.type(0)
        return np.asarray(np.where(inside, found, nothing))

    def _applied(self, operation: str, arguments: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        arrays, gaps = [a for a, _ in arguments], [g for _, g in arguments]
        if operation == "where":
            chosen = np.where(arrays[0], gaps[1], gaps[2])
            return np.where(*arrays), gaps[0] | chosen
        undefined = gaps[0]
        for gap in gaps[1:]:
            undefined = undefined | gap
        if operation in ("div", "floordiv", "mod"):
            zero = arrays[1] == 0
            undefined = undefined | zero
            arrays[1] = np.where(zero, self._constant(1)[0], arrays[1])
        return self._operated(operation, arrays), undefined

    def _operated(self, operation: str, arrays: list[Array]) -> Array:
        if operation in _LOGIC:
            return np.asarray(_LOGIC[operation](*arrays))
        if self.prime is None:
            return np.asarray(_RATIONAL[operation](*arrays))
        if operation == "div":
            return arrays[0] * _inverse(arrays[1], self.prime) % self.prime
        if operation == "pow":
            return _power(arrays[0], int(arrays[1].flat[0]), self.prime)
        return np.asarray(_MODULAR[operation](*arrays)) % self.prime

    def _reduced(
        self, monoid: str, axis: Axis, body: Array, undefined: Array
    ) -> tuple[Array, Array]:
        place = self.axes.index(axis)
        shape = list(body.shape)
        shape[place] = axis.extent
        array = np.broadcast_to(body, shape)
        gaps = np.asarray(undefined.any(axis=place, keepdims=True))
        if axis.extent == 0 and monoid not in ("sum", "prod", "any", "all"):
            raise Unsupported("an empty maximum")
        if monoid in ("argmax", "argmin"):
            best = (np.argmax if monoid == "argmax" else np.argmin)(array, axis=place)
            return self._numbers(np.expand_dims(best, place)), gaps
        return self._folded(monoid, array, place), gaps

    def _folded(self, monoid: str, array: Array, place: int) -> Array:
        parts_ = [np.take(array, [i], axis=place) for i in range(array.shape[place])]
        if not parts_:
            return self._constant(0 if monoid == "sum" else monoid in ("prod", "all"))[0]
        total = parts_[0]
        operation = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(monoid, monoid)
        for part in parts_[1:]:
            total = self._operated(operation, [total, part])
        return total


def _nowhere(axes: tuple[Axis, ...]) -> Array:
    return np.zeros([1] * len(axes), bool)


def _inverse(array: Array, prime: int) -> Array:
    return _power(array, prime - 2, prime)


def _power(base: Array, exponent: int, prime: int) -> Array:
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base % prime
        base, exponent = base * base % prime, exponent >> 1
    return result


def _elementwise(of: Callable[..., Any]) -> Callable[..., Array]:
    def applied(*arrays: Array) -> Array:
        return np.asarray(np.frompyfunc(of, len(arrays), 1)(*arrays), dtype=object)

    return applied


_LOGIC: dict[str, Callable[..., Any]] = {
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_MODULAR: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
}  # fmt: skip
_RATIONAL: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "div": np.true_divide, "floordiv": _elementwise(lambda a, b: Fraction(a // b)),
    "mod": _elementwise(lambda a, b: Fraction(a % b)),
    "pow": _elementwise(lambda a, n: a ** int(n)),
    "max": _elementwise(max), "min": _elementwise(min), "abs": _elementwise(abs),
    "sign": _elementwise(lambda a: Fraction((a > 0) - (a < 0))),
    "floor": _elementwise(lambda a: Fraction(a.__floor__())),
}  # fmt: skip


def exact_sides(
    instance: Instance, values: dict[str, Array], prime: int | None
) -> tuple[Array, Array, Array, tuple[Axis, ...]]:
    """Both sides over all axes, where either is undefined, and the axes."""
    used = {t.axis for t in walk(instance.left, instance.right) if isinstance(t, (Index, Reduce))}
    axes = tuple(sorted(used | set(instance.axes)))
    exact = _Exact({n: _exactly(v, prime) for n, v in values.items()}, axes, prime)
    (left, gap), (right, hole) = exact.value(instance.left), exact.value(instance.right)
    shape = [a.extent for a in axes]
    undefined = np.broadcast_to(gap | hole, shape)
    return np.broadcast_to(left, shape), np.broadcast_to(right, shape), undefined, axes


def _judge(instance: Instance, values: dict[str, Array], prime: int | None) -> Found | None:
    left, right, undefined, axes = exact_sides(instance, values, prime)
    bad = np.asarray(left != right, bool) & ~undefined
    if not bad.any():
        return None
    at = tuple(map(int, np.argwhere(bad)[0]))
    where = {a.family: i for a, i in zip(axes, at, strict=True) if a in instance.axes}
    return Found(where, _plain(left[at]), _plain(right[at]))


def _plain(number: Any) -> float | int | bool:
    if isinstance(number, Fraction):
        return int(number) if number.denominator == 1 else float(number)
    found: float | int | bool = number.item() if isinstance(number, np.generic) else number
    return found


def _exactly(value: Array, prime: int | None) -> Array:
    """Values as field elements, or as fractions with small denominators."""
    if value.dtype.kind == "b":
        return value
    if prime is None:
        convert = np.frompyfunc(lambda x: Fraction(float(x)).limit_denominator(64), 1, 1)
        return np.asarray(convert(value), dtype=object)
    whole = np.vectorize(lambda x: _element(float(x), prime), otypes=[np.int64])(value)
    return np.asarray(whole).reshape(value.shape)


def _element(x: float, prime: int) -> int:
    number = Fraction(x)
    return number.numerator * pow(number.denominator, -1, prime) % prime


def _field(instance: Instance, values: dict[str, Array]) -> Found | None:
    return _judge(instance, values, PRIME)


def _rational(instance: Instance, values: dict[str, Array]) -> Found | None:
    return _judge(instance, values, None)


FIELD = Method("prime field", "wide", "mod 2147483647", _field, equation=True)
RATIONALS = Method("rationals", "small", "fractions", _rational, equation=True, share=0.5)
