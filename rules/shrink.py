"""A counterexample made smaller: fewer positions, fewer dependences, simpler numbers.

Greedy: whatever change keeps the law refuted by the same method is kept, until none does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .instance import Instance, instance_of
from .law import Rule
from .setting import Chance, Setting, Unsupported
from .trials import Found, Method
from .values import Array, meet, violated

__all__ = ["Refutation", "shrink"]

_STEPS, _SECONDS, _ELEMENTS = 400, 3.0, 48
_SIMPLE = (0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5)

Refutation = tuple[Instance, dict[str, Array], Found]
_Try = tuple[Setting, dict[str, Array]]


def shrink(rule: Rule, method: Method, first: Refutation, until: float = math.inf) -> Refutation:
    """The smallest refutation that single changes lead to from a first one, or that was found when
    the clock (`time.process_time`) was `until`."""
    best, left = first, _STEPS
    if first[0].setting.twins:
        parted = _parted(first[0].setting, first[1])
        best = _refutes(rule, method, *parted) or first
    until = min(until, time.process_time() + _SECONDS)
    again = True
    while again:
        again = False
        for setting, values in _changes(best):
            left -= 1
            if left < 0 or time.process_time() > until:
                return best
            found = _refutes(rule, method, setting, values)
            if found is not None and _size(found) < _size(best):
                best, again = found, True
                break
    return best


def _refutes(
    rule: Rule, method: Method, setting: Setting, values: dict[str, Array]
) -> Refutation | None:
    setting = replace(
        setting,
        axes=dict(setting.axes),
        twins=dict(setting.twins),
        carriers=dict(setting.carriers),
        ends={a: e for a, e in setting.ends.items() if e[-1] == setting.extents[a]},
    )
    try:
        instance = instance_of(rule, setting, forward=method.forward)
        if set(instance.loads) != set(values) or any(
            load.buffer.shape != values[n].shape for n, load in instance.loads.items()
        ):
            return None
        met = meet(instance, values)
        found = None if violated(instance, met) else method.judge(instance, met)
    except (Unsupported, ArithmeticError, ValueError):
        return None
    return None if found is None else (instance, met, found)


def _size(refutation: Refutation) -> tuple[float, ...]:
    """What is to be small: elements, extents, shared terms, and how plain the numbers are."""
    instance, values, _ = refutation
    numbers = [float(x) for v in values.values() for x in v.flat]
    plain = sum(_weight(x) for x in numbers)
    setting = instance.setting
    depends = sum(map(len, setting.axes.values()))
    return len(numbers), sum(setting.extents.values()), len(setting.twins), depends, plain


def _weight(x: float) -> float:
    if x in _SIMPLE:
        return _SIMPLE.index(x) + (0.5 if np.signbit(x) and x == 0 else 0.0)
    if not np.isfinite(x):
        return 12.0
    whole = x == int(x) if abs(x) < 1e15 else False
    return 10.0 + min(abs(x), 1e3) / 1e3 if whole else 20.0 + len(repr(x))


def _changes(refutation: Refutation) -> Iterator[_Try]:
    """Settings and values one step smaller."""
    instance, values, _ = refutation
    setting = replace(instance.setting, source=Chance(np.random.default_rng(0)), ends={})
    for axis, extent in setting.extents.items():
        for smaller in dict.fromkeys((1, extent // 2, extent - 1)):
            if 0 < smaller < extent:
                yield from _cut(setting, values, axis, smaller)
    for name, axes in setting.axes.items():
        for axis in (a for a in axes if setting.extents[a] > 0):
            yield _independent(setting, values, instance, name, axis)
    kept = replace(setting, ends=instance.setting.ends)
    for name, value in values.items():
        if value.dtype.kind != "b" and value.size <= _ELEMENTS:
            yield from ((kept, values | {name: new}) for new in _plainer(value))


def _parted(setting: Setting, values: dict[str, Array]) -> _Try:
    """Names that shared a term with terms of their own, which are equal."""
    axes = setting.axes | {n: setting.axes[t] for n, t in setting.twins.items()}
    apart = replace(setting, axes=axes, twins={}, aliased=False)
    return apart, values | {n: values[t].copy() for n, t in setting.twins.items()}


def _cut(setting: Setting, values: dict[str, Array], axis: str, extent: int) -> Iterator[_Try]:
    small = replace(setting, extents=setting.extents | {axis: extent})
    for part in (slice(0, extent), slice(-extent, None)):
        yield small, {n: np.asarray(v[_at(setting, n, axis, part)]) for n, v in values.items()}


def _at(setting: Setting, name: str, axis: str, part: slice | int) -> tuple[slice | int, ...]:
    own = setting.axes.get(name, frozenset())
    return tuple(part if a == axis else slice(None) for a in setting.extents if a in own)


def _independent(
    setting: Setting, values: dict[str, Array], instance: Instance, name: str, axis: str
) -> _Try:
    axes = setting.axes | {name: setting.axes[name] - {axis}}
    at = instance.setting.extents[axis] - 1 if name in values else 0
    cut = {name: np.asarray(values[name][_at(setting, name, axis, at)])} if name in values else {}
    return replace(setting, axes=axes), values | cut


def _plainer(value: Array) -> Iterator[Array]:
    """The value with one element, or all, plainer."""
    for simple in _SIMPLE:
        if np.any(value != simple):
            yield np.full_like(value, simple)
    for at in np.ndindex(value.shape):
        x = float(value[at])
        for simple in (*_SIMPLE, *([float(round(x, 0)), round(x, 2)] if np.isfinite(x) else [])):
            if _weight(simple) < _weight(x):
                new = value.copy()
                new[at] = simple
                yield new
