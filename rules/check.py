"""Is a law sound? Random instances against the oracle.

What is tried depends on the class that the law is stated under:

- **exact**: in float32 with special values (NaN, infinities, signed zeros, subnormals, huge and
  tiny), both sides have the same bits; all NaN count as one, and laws of max and min may exchange
  zeros;
- **real**: in float64 both sides agree wherever the left is finite; in float32, with magnitudes up
  to 10^4, the right side is finite wherever the left is, and its error on values with a common
  offset is at most a small factor of the left side's own; streamed sums are taken block by block
  too;
- **fast**: in float64 both sides agree wherever both are finite;
- **facts**: the equation that the fact asserts holds, as under real, in float64.

A law that rewrites both ways is tried both ways. The verdict "sound" says that no trial refuted it;
"unknown", that no instance could be made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import Axis, Index, Online, Reduce, Term, walk

from .blocks import Blocks
from .instance import Instance, Unsupported, instantiate, patterns_of
from .law import Call, Fold, Rescaled, Rule, Streamed, parts

__all__ = ["Verdict", "check"]

Array = npt.NDArray[Any]
_LOSS = 16.0  # how many times the left side's error the right side may make
_MORE = 15  # further draws of values before a law is said to lose digits
_SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 1e-38, 3e38, -3e38, 1e-30, 1e20], np.float32
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a law: sound, unsound or unknown, by which method, after how many trials;
    an unsound one with the values that refute it."""

    rule: str
    pack: str
    stated: str
    verdict: str
    method: str
    tried: int
    seconds: float
    counterexample: dict[str, Any] | None = None


def check(rule: Rule, *, trials: int = 200, seed: int = 0) -> Verdict:
    """Try a law on random instances until one refutes it or all have passed."""
    start = time.perf_counter()
    tried, method, found = 0, "", None
    try:
        for direction in _directions(rule):
            for name, trial in _trials(direction):
                method = name
                for i in range(trials):
                    tried += 1
                    found = trial(direction, np.random.default_rng([seed, i]))
                    if found is not None:
                        raise StopIteration
    except StopIteration:
        pass
    except Unsupported as reason:
        return _verdict(rule, "unknown", str(reason), tried, start, None)
    verdict = "sound" if found is None else "unsound"
    methods = method if found else ", ".join(name for name, _ in _trials(rule))
    return _verdict(rule, verdict, methods, tried, start, found)


def _verdict(
    rule: Rule, verdict: str, method: str, tried: int, start: float, found: dict[str, Any] | None
) -> Verdict:
    seconds = time.perf_counter() - start
    return Verdict(rule.name, rule.pack, rule.numerics, verdict, method, tried, seconds, found)


def _directions(rule: Rule) -> Iterator[Rule]:
    yield rule
    if rule.two_way:
        yield replace(rule, left=rule.right, right=rule.left)


_Trial = Callable[[Rule, np.random.Generator], "dict[str, Any] | None"]


def _trials(rule: Rule) -> list[tuple[str, _Trial]]:
    if rule.numerics == "exact":
        return [("float32 bits", _exact)]
    if rule.numerics == "real":
        trials: list[tuple[str, _Trial]] = [("float64", _equal), ("float32 finite", _finite)]
        trials.append(("float32 error", _accurate))
        return [*trials, ("blocks", _blocked)] if _is_streamed(rule) else trials
    if rule.numerics == "fast":
        return [("float64, both finite", _fast)]
    return [("float64", _equal)]


def _exact(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    instance = instantiate(rule, rng)
    values = _values(instance, rng, _special)
    left, right = _sides(instance, values, "f32")
    same = (
        (left == right) & (np.signbit(left) == np.signbit(right))
        if _floats(left)
        else left == right
    )
    if _orders(rule):
        same = left == right
    if _floats(left) and _floats(right):
        same |= np.isnan(left) & np.isnan(right)
    return _found(instance, values, left, right, ~same)


def _equal(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    """Equal wherever the left side is defined."""
    instance = instantiate(rule, rng)
    values = _values(instance, rng, _ordinary)
    left, right = _sides(instance, values, "f64")
    return _found(instance, values, left, right, np.isfinite(left) & ~_close(left, right))


def _fast(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    instance = instantiate(rule, rng)
    values = _values(instance, rng, _ordinary)
    left, right = _sides(instance, values, "f64")
    both = np.isfinite(left) & np.isfinite(right)
    return _found(instance, values, left, right, both & ~_close(left, right))


def _finite(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    instance = instantiate(rule, rng)
    values = _values(instance, rng, _large)
    left, right = _sides(instance, values, "f32")
    return _found(instance, values, left, right, np.isfinite(left) & ~np.isfinite(right))


def _is_streamed(rule: Rule) -> bool:
    return any(isinstance(p, (Streamed, Rescaled)) for x in patterns_of(rule) for p in parts(x))


def _blocked(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    """Equal wherever the left side is finite, streams taken block by block."""
    instance = instantiate(rule, rng, forward=True)
    values = _values(instance, rng, _ordinary)
    wide = {n: v.astype(np.float64) if _floats(v) else v for n, v in values.items()}
    ends = {a: _ends(a.extent, rng) for a in _all_axes(instance.right)}
    left, right = (
        Blocks(dict(wide), ends)(t, instance.axes) for t in (instance.left, instance.right)
    )
    return _found(instance, values, left, right, np.isfinite(left) & ~_close(left, right))


def _ends(extent: int, rng: np.random.Generator) -> list[int]:
    """The ends of random blocks that cover an axis."""
    return [i for i in range(1, extent) if rng.random() < 0.5] + [extent]


def _all_axes(term: Term) -> set[Axis]:
    return {t.axis for t in walk(term) if isinstance(t, (Index, Reduce, Online))}


def _accurate(rule: Rule, rng: np.random.Generator) -> dict[str, Any] | None:
    """The root mean square errors in float32, on values with a common offset, whose differences
    have few digits left: what takes a difference later than its source loses them. A source that is
    exact by luck proves nothing: a suspicion is tried on more values."""
    instance = instantiate(rule, rng)
    found, errors = None, []
    for _ in range(1 + _MORE):
        values = _values(instance, rng, _offset)
        left, right = _sides(instance, values, "f32")
        error = _errors(left, right, _sides(instance, values, "f64")[0])
        if error is None:
            continue
        errors.append(error)
        theirs, ours, size = (_rms(np.array(e)) for e in zip(*errors, strict=True))
        if ours <= _LOSS * theirs + 64 * 2.0**-24 * size:
            return None
        found = _found(instance, values, left, right, left == left)
    return found if errors else None


def _errors(left: Array, right: Array, truth: Array) -> tuple[float, float, float] | None:
    """The errors of both sides and the size of the truth, where all are finite."""
    use = np.isfinite(truth) & np.isfinite(left) & np.isfinite(right)
    if not _floats(left) or not use.any():
        return None
    left_, right_, truth = (np.where(use, x, 0.0).astype(np.float64) for x in (left, right, truth))
    return _rms(left_ - truth), _rms(right_ - truth), _rms(truth)


def _sides(instance: Instance, values: dict[str, Array], precision: str) -> tuple[Array, Array]:
    """Both sides over all positions of the axes that either has free."""
    positions = {a: np.arange(a.extent) for a in instance.axes}
    wide = np.float64 if precision == "f64" else np.float32
    fetch = arrays_fetch({n: v.astype(wide) if _floats(v) else v for n, v in values.items()})

    def side(term: Term) -> Array:
        return np.asarray(evaluate(term, fetch, positions, precision=precision))

    return side(instance.left), side(instance.right)


def _values(
    instance: Instance,
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array],
) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for name, load in instance.loads.items():
        shape, kind = load.buffer.shape, instance.kinds.get(name, "float")
        if kind == "boolean":
            values[name] = rng.random(shape) < 0.5
        elif kind == "integer":
            values[name] = rng.integers(-9, 10, shape)
        else:
            drawn = np.asarray(draw(rng, shape), np.float32)
            values[name] = _signed(drawn, instance.signs.get(name, []))
            if name in instance.finite:
                values[name] = np.where(np.isfinite(values[name]), values[name], np.float32(1))
    return values


def _signed(x: Array, signs: list[str]) -> Array:
    """Values that meet conditions such as a > 0."""
    for sign in signs:
        x = np.where(np.isnan(x), np.float32(1), x)
        if sign in (">", ">="):
            x = np.abs(x)
        elif sign in ("<", "<="):
            x = -np.abs(x)
        if sign in (">", "<", "!="):
            x = np.where(x == 0, np.float32(-1 if sign == "<" else 1), x)
    return x


def _special(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    ordinary = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)
    return np.where(rng.random(shape) < 0.35, rng.choice(_SPECIAL, shape), ordinary)


def _ordinary(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if rng.random() < 0.3:
        return rng.integers(-2, 3, shape).astype(np.float32)
    return np.asarray(rng.normal(size=shape))


def _large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * 10.0 ** rng.uniform(-2, 4))


def _offset(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(1000.0 + rng.normal(size=shape) * 0.01)


def _close(left: Array, right: Array) -> Array:
    if left.dtype.kind != "f":
        return np.asarray(left == right)
    with np.errstate(all="ignore"):
        near = np.abs(left - right) <= 1e-8 * (np.abs(left) + np.abs(right)) + 1e-9
    return np.asarray(near | (left == right))


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def _floats(x: Array) -> bool:
    return x.dtype.kind == "f"


def _orders(rule: Rule) -> bool:
    """True when max or min occurs: which of two zeros they return is not fixed."""
    return any(
        isinstance(p, (Call, Fold))
        and getattr(p, "operation", getattr(p, "monoid", "")) in ("max", "min")
        for pattern in patterns_of(rule)
        for p in parts(pattern)
    )


def _found(
    instance: Instance, values: dict[str, Array], left: Array, right: Array, bad: Array
) -> dict[str, Any] | None:
    """The counterexample at the first bad position, if there is one."""
    if not np.any(bad):
        return None
    at = tuple(map(int, np.argwhere(bad)[0]))
    where = {a.family: i for a, i in zip(instance.axes, at, strict=True)}
    shown = {n: {"axes": [a.family for a in _axes(instance, n)], "data": v.tolist()}
             for n, v in values.items()}  # fmt: skip
    return {"values": shown, "at": where, "left": left[at].item(), "right": right[at].item()}


def _axes(instance: Instance, name: str) -> tuple[Any, ...]:
    return tuple(c.axis for c in instance.loads[name].coordinates)  # type: ignore[attr-defined]
