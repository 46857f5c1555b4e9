"""Trials of a law in floating point: what each numerics class promises, on one instance.

- **exact**: in float32 with special values both sides have the same bits; all NaN count as one,
  and laws of max and min may exchange zeros;
- **real**: in float64 both sides agree wherever the left is finite, and the right is undefined
  where the left is (of streams, the left alone says where); in float32, with magnitudes up to
  10^4, the right side is finite wherever the left is, and its error on values with a common offset
  is at most a small factor of the left side's own; streamed sums are taken block by block too;
- **fast**: in float64 both sides agree wherever both are finite;
- **approx**: in float64 they differ by at most the stated bound;
- **facts**: the equation that the fact asserts holds, as under real, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import Axis, Const, Index, Online, Reduce, Term, apply, transform, walk

from .blocks import Blocks
from .instance import Instance, patterns_of
from .law import Call, Fold, Rescaled, Rule, Streamed, parts
from .values import OFFSETS, Array, draw

__all__ = ["CLASSES", "Found", "Method", "block_sides", "judged", "methods", "sides"]

CLASSES = ("exact", "real", "fast")
_LOSS = 16.0  # how many times the left side's error the right side may make
_TINY = 1e-6  # results below this are taken for 0, as 1 - sigmoid(30) is
_MORE = 15  # further draws of values before a law is said to lose digits


@dataclass(frozen=True, slots=True)
class Found:
    """A position where the sides disagree, and what they are there."""

    at: dict[str, int]
    left: float | int | bool
    right: float | int | bool


Judge = Callable[[Instance, dict[str, Array]], Found | None]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to try a law: the kind of values, the precision, and the judge of one instance."""

    name: str
    kind: str
    precision: str
    judge: Judge
    forward: bool = False
    redrawn: bool = False  # one set of values proves nothing: a suspicion is tried on more
    equation: bool = False  # tries what a proof of equality proves
    searched: bool = False  # by Hypothesis too
    share: float = 1.0  # of the instances that are asked for

    def attempt(
        self, instance: Instance, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Found] | None:
        """Values that refute the law, and where."""
        if self.redrawn:
            return _inaccurate(instance, rng)
        values = draw(instance, rng, self.kind)
        found = judged(self, instance, values)
        return None if found is None else (values, found)


def judged(method: Method, instance: Instance, values: dict[str, Array]) -> Found | None:
    """What a method finds; nothing where an axis of no positions leaves a maximum without value."""
    try:
        return method.judge(instance, values)
    except (ValueError, IndexError):
        if min(instance.setting.extents.values()) > 0:
            raise
        return None


def methods(rule: Rule, numerics: str) -> tuple[Method, ...]:
    """The trials that a class asks of a law."""
    if numerics == "exact":
        return (EXACT,)
    if numerics == "real":
        if _is_streamed(rule):
            return (EQUAL, replace(FINITE, share=3.0), ACCURATE, BLOCKED)
        # What a premise speaks of is made here, and undefined where its carrier is.
        defined = () if rule.premises else (DEFINED,)
        return (EQUAL, *defined, FINITE, ACCURATE)
    return {"fast": (FAST,), "approx": (NEAR,)}.get(numerics, (EQUAL,))


def sides(instance: Instance, values: dict[str, Array], precision: str) -> tuple[Array, Array]:
    """Both sides over all positions of the axes that either has free."""
    positions = {a: np.arange(a.extent) for a in instance.axes}
    wide = np.float64 if precision == "f64" else np.float32
    fetch = arrays_fetch(
        {n: v if v.dtype.kind != "f" or v.dtype == np.float64 else v.astype(wide)
         for n, v in values.items()}
    )  # fmt: skip
    shape = tuple(a.extent for a in instance.axes)

    def side(term: Term) -> Array:
        value = np.asarray(evaluate(term, fetch, positions, precision=precision))
        return np.broadcast_to(value, shape)

    return side(instance.left), side(instance.right)


def _exact(instance: Instance, values: dict[str, Array]) -> Found | None:
    taken = replace(instance, left=_each(instance.left), right=_each(instance.right))
    left, right = sides(taken, values, "f32")
    if _floats(left) != _floats(right):  # a literal 0 among floats is +0
        left, right = left.astype(np.float32), right.astype(np.float32)
    same = left == right
    if _floats(left) and _floats(right):
        if not _orders(instance.rule):
            same &= np.signbit(left) == np.signbit(right)
        same |= np.isnan(left) & np.isnan(right)
    return _found(instance, left, right, ~same)


def _each(term: Term) -> Term:
    """The term with reductions of constants taken position by position, as kernels take them."""

    def step(part: Term) -> Term:
        if not isinstance(part, Reduce) or part.axis in part.body.free:
            return part
        here = apply("ge", Index(part.axis), Const(0))
        return Reduce(part.monoid, part.axis, apply("where", here, part.body, part.body))

    return transform(term, step)


def _equal(instance: Instance, values: dict[str, Array]) -> Found | None:
    """Equal wherever the left side is defined."""
    left, right = sides(instance, values, "f64")
    return _found(instance, left, right, np.isfinite(left) & ~_close(left, right))


def _defined(instance: Instance, values: dict[str, Array]) -> Found | None:
    """On small integers, whose float64 arithmetic neither overflows nor rounds to zero: where the
    left side has no value the right has none."""
    left, right = sides(instance, values, "f64")
    return _found(instance, left, right, np.isnan(left) & np.isfinite(right))


def _fast(instance: Instance, values: dict[str, Array]) -> Found | None:
    left, right = sides(instance, values, "f64")
    both = np.isfinite(left) & np.isfinite(right)
    return _found(instance, left, right, both & ~_close(left, right))


def _near(instance: Instance, values: dict[str, Array]) -> Found | None:
    left, right = (side.astype(np.float64) for side in sides(instance, values, "f64"))
    with np.errstate(all="ignore"):
        off = np.abs(left - right) > instance.rule.bound * np.maximum(1.0, np.abs(left))
    return _found(instance, left, right, np.isfinite(left) & (off | ~np.isfinite(right)))


def _finite(instance: Instance, values: dict[str, Array]) -> Found | None:
    left, right = sides(instance, values, "f32")
    return _found(instance, left, right, np.isfinite(left) & ~np.isfinite(right))


def _blocked(instance: Instance, values: dict[str, Array]) -> Found | None:
    """Equal wherever the left side is finite, streams taken block by block."""
    left, right = block_sides(instance, values)
    return _found(instance, left, right, np.isfinite(left) & ~_close(left, right))


def block_sides(instance: Instance, values: dict[str, Array]) -> tuple[Array, Array]:
    """Both sides in float64, streams taken in the blocks of the instance's setting."""
    wide = {n: v.astype(np.float64) if _floats(v) else v for n, v in values.items()}
    ends = {a: instance.setting.blocks(a.family) for a in _all_axes(instance.right)}
    ends |= {a: instance.setting.blocks(a.family) for a in _all_axes(instance.left)}
    left, right = (
        Blocks(dict(wide), ends)(t, instance.axes) for t in (instance.left, instance.right)
    )
    return left, right


def _inaccurate(
    instance: Instance, rng: np.random.Generator
) -> tuple[dict[str, Array], Found] | None:
    """The root mean square errors in float32, on values with a common offset, whose differences
    have few digits left: what takes a difference later than its source loses them. A source that is
    exact by luck proves nothing: a suspicion is tried on more values."""
    found, errors = None, []
    kind = tuple(OFFSETS)[int(rng.integers(len(OFFSETS)))]
    if min(instance.setting.extents.values()) < 1:
        return None
    for _ in range(1 + _MORE):
        values = draw(instance, rng, kind)
        left, right = sides(instance, values, "f32")
        error = _errors(left, right, sides(instance, values, "f64")[0])
        if error is None:
            continue
        errors.append(error)
        theirs, ours, size = (_rms(np.array(e)) for e in zip(*errors, strict=True))
        if not _worse(theirs, ours, size):
            return None
        found = values, _found(instance, left, right, left == left)
    return None if found is None or found[1] is None else (found[0], found[1])


def _loses(instance: Instance, values: dict[str, Array]) -> Found | None:
    """One set of values by itself, where a suspicion was confirmed."""
    left, right = sides(instance, values, "f32")
    error = _errors(left, right, sides(instance, values, "f64")[0])
    if error is None or not _worse(*error):
        return None
    return _found(instance, left, right, left == left)


def _worse(theirs: float, ours: float, size: float) -> bool:
    """Whether an error is more than a small factor of the left side's, or of the last digit."""
    return ours > _LOSS * theirs + 64 * 2.0**-24 * max(size, _TINY)


def _errors(left: Array, right: Array, truth: Array) -> tuple[float, float, float] | None:
    """The errors of both sides and the size of the truth, where all are finite."""
    use = np.isfinite(truth) & np.isfinite(left) & np.isfinite(right)
    if not _floats(left) or not use.any():
        return None
    left_, right_, truth = (np.where(use, x, 0.0).astype(np.float64) for x in (left, right, truth))
    return _rms(left_ - truth), _rms(right_ - truth), _rms(truth)


def _is_streamed(rule: Rule) -> bool:
    return any(isinstance(p, (Streamed, Rescaled)) for x in patterns_of(rule) for p in parts(x))


def _all_axes(term: Term) -> set[Axis]:
    return {t.axis for t in walk(term) if isinstance(t, (Index, Reduce, Online))}


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


def _found(instance: Instance, left: Array, right: Array, bad: Array) -> Found | None:
    """The first bad position, if there is one."""
    if not np.any(bad):
        return None
    at = tuple(map(int, np.argwhere(bad)[0]))
    where = {a.family: i for a, i in zip(instance.axes, at, strict=True)}
    return Found(where, left[at].item(), right[at].item())


EXACT = Method("float32 bits", "special", "f32", _exact, equation=True, searched=True, share=2.0)
EQUAL = Method("float64", "ordinary", "f64", _equal, equation=True, searched=True)
DEFINED = Method("float64 undefined", "small", "f64", _defined)
FINITE = Method("float32 finite", "large", "f32", _finite, searched=True)
ACCURATE = Method("float32 error", "offset", "f32", _loses, redrawn=True)
BLOCKED = Method("blocks", "ordinary", "f64", _blocked, forward=True)
FAST = Method("float64, both finite", "ordinary", "f64", _fast, equation=True, searched=True)
NEAR = Method("float64, within the bound", "ordinary", "f64", _near, searched=True)
