"""Values for the tensors of an instance, under the law's conditions.

Kinds of values: "ordinary" (of size 1, small integers among them), "special" (NaN, infinities,
signed zeros, subnormals, huge and tiny), "large" (up to 10^4), "small" (integers from -3 to 3),
"wide" (integers up to 2^24); and the `OFFSETS`, all values near one number, so that differences
have few digits left: "offset" (1000), "below" (-1000), and "near" and "under" (30 and -30), whose
exponentials float32 holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .conditions import Bound, Compare, Differs
from .instance import Instance
from .law import names_of
from .setting import holds

__all__ = ["OFFSETS", "SPECIAL", "Array", "draw", "meet", "violated"]

Array = npt.NDArray[Any]
SPECIAL = (
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, -1e-40, 1e-38, 3e38, -3e38, 1e-30,
    1e20,
)  # fmt: skip
OFFSETS = {"offset": 1000.0, "below": -1000.0, "near": 30.0, "under": -30.0}
_Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
_SPECIAL = np.array(SPECIAL, np.float32)
_TESTS: dict[str, Callable[..., Any]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
    "!=": np.not_equal,
}
_TRIES = 64  # integers among which one that meets a comparison is looked for


def draw(instance: Instance, rng: np.random.Generator, kind: str) -> dict[str, Array]:
    """Values of one kind for all tensors of an instance, as float32, float64, int64 or bool."""
    values: dict[str, Array] = {}
    for name, load in instance.loads.items():
        shape, dtype = load.buffer.shape, load.buffer.dtype
        if dtype == "bool":
            values[name] = rng.random(shape) < 0.5
        elif dtype == "i64":
            values[name] = rng.integers(-9, 10, shape)
        else:
            wide = np.float64 if dtype == "f64" else np.float32
            with np.errstate(over="ignore"):
                values[name] = np.asarray(_DRAWS[kind](rng, shape), wide)
    return meet(instance, values)


def meet(instance: Instance, values: dict[str, Array]) -> dict[str, Array]:
    """The values, changed where they do not meet the law's conditions."""
    met = {name: np.asarray(value) for name, value in values.items()}
    for name, value in met.items():
        if value.dtype.kind == "f":
            value = _signed(value, instance.signs.get(name, []))
            if name in instance.finite:
                value = np.where(np.isfinite(value), value, value.dtype.type(1))
        elif value.dtype.kind == "i":
            value = _signed(value, instance.signs.get(name, []))
        met[name] = np.asarray(_bounded(instance, name, value))
    for condition in instance.rule.conditions:
        if isinstance(condition, Compare):
            _compare(instance, condition, met)
        elif isinstance(condition, Differs) and condition.name in met:
            value = met[condition.name]
            met[condition.name] = np.where(value == condition.number, value + 1, value)
    return met


def violated(instance: Instance, values: dict[str, Array]) -> bool:
    """Whether the values do not meet the conditions, as where no values do."""
    for name, signs in instance.signs.items():
        value = values.get(name)
        if value is not None and not all(np.all(_holds(s, value, 0)) for s in signs):
            return True
    for c in instance.rule.conditions:
        match c:
            case Bound(name, relation, number) if name in values:
                limit = values[name].dtype.type(number)
                if not np.all(_holds(relation, values[name], limit)):
                    return True
            case Differs(name, number) if name in values:
                if np.any(values[name] == number):
                    return True
            case Compare() if not _compared(instance, c, values):
                return True
    return False


def _holds(relation: str, value: Array, limit: Any) -> Array:
    """What is known of signs and ranges does not exclude NaN."""
    return np.asarray(_TESTS[relation](value, limit) | (value != value))


def _compared(instance: Instance, condition: Compare, values: dict[str, Array]) -> bool:
    """Whether a comparison holds of all elements; those of several names are met in turn."""
    numbers: dict[str, Any] = dict(instance.setting.extents)
    own = [n for p in (condition.left, condition.right) for n in names_of(p) if n in values]
    numbers |= {n: values[n].flat[0].item() for n in own if values[n].size}
    if any(not values[n].size for n in own):
        return True
    return all(
        holds(condition, numbers | {n: x.item()}) for n in own or [""] for x in _flat(values, n)
    )


def _flat(values: dict[str, Array], name: str) -> Any:
    return values[name].flat if name in values else [np.int64(0)]


def _signed(x: Array, signs: list[str]) -> Array:
    """Values that meet conditions such as a > 0."""
    one = x.dtype.type(1)
    for sign in signs:
        if sign in (">", ">="):
            x = np.abs(x)
        elif sign in ("<", "<="):
            x = -np.abs(x)
        if sign in (">", "<", "!="):
            x = np.where(x == 0, -one if sign == "<" else one, x)
    return x


def _bounded(instance: Instance, name: str, x: Array) -> Array:
    """Values that meet conditions such as a <= 1: others are moved to where it holds."""
    for c in instance.rule.conditions:
        if not isinstance(c, Bound) or c.name != name or x.dtype.kind not in "fi":
            continue
        step = x.dtype.type(1) if x.dtype.kind == "i" else x.dtype.type(1e-3)
        limit, strict = x.dtype.type(c.number), "=" not in c.relation
        with np.errstate(all="ignore"):
            if c.relation[0] == ">":
                x = np.where(x < limit, 2 * limit - x, x)
                x = np.where(x == limit, limit + (step if strict else 0), x)
            else:
                x = np.where(x > limit, 2 * limit - x, x)
                x = np.where(x == limit, limit - (step if strict else 0), x)
    return x


def _compare(instance: Instance, condition: Compare, values: dict[str, Array]) -> None:
    """Integers and constants for which a comparison holds, nearest to what was drawn."""
    names = [n for p in (condition.left, condition.right) for n in names_of(p)]
    own = [n for n in dict.fromkeys(names) if n in values]
    for name in own:
        values[name] = _met(instance, condition, name, values)


def _met(instance: Instance, condition: Compare, name: str, values: dict[str, Array]) -> Array:
    numbers: dict[str, Any] = dict(instance.setting.extents)
    numbers |= {n: v.flat[0].item() for n, v in values.items() if v.size and n != name}
    value = values[name]

    def met(x: Any) -> Any:
        near = [x, *(x + s * d for d in range(1, _TRIES) for s in (1, -1))]
        return next((y for y in near if holds(condition, numbers | {name: y})), x)

    flat = [met(x.item()) for x in value.flat]
    return np.array(flat, value.dtype).reshape(value.shape)


def _special(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    ordinary = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)
    among = _SPECIAL[: 5 if rng.random() < 0.5 else None]
    often = (0.0, 0.25, 0.9)[int(rng.integers(3))]
    return np.where(rng.random(shape) < often, rng.choice(among, shape), ordinary)


def _ordinary(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if rng.random() < 0.3:
        return rng.integers(-2, 3, shape).astype(np.float32)
    return np.asarray(rng.normal(size=shape))


def _large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * 10.0 ** rng.uniform(-2, 4))


def _around(offset: float) -> _Draw:
    return lambda rng, shape: np.asarray(offset + rng.normal(size=shape) * 0.01)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.integers(-3, 4, shape), np.float32)


def _wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.integers(1, 2**24, shape), np.float32)


_DRAWS: dict[str, _Draw] = {
    "special": _special,
    "ordinary": _ordinary,
    "large": _large,
    "small": _small,
    "wide": _wide,
    **{kind: _around(offset) for kind, offset in OFFSETS.items()},
}
