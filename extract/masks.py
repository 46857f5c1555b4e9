"""Affine masks: which blocks of a streamed pass do any work.

A pass over an axis may skip a block where every reduction of the pass adds nothing: a max or an
online sum over `where(p, x, -inf)`, a sum over `where(p, x, 0)`. `p` counts where it is a
conjunction of comparisons of affine index expressions; conjuncts that are not are never charged
for (they keep every block).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import numpy as np

from nautile.extract.body import monoid_of
from nautile.extract.footprint import Affine, affine
from nautile.terms import Apply, Axis, Cast, Const, Online, Reduce, Term, children

__all__ = ["Conjunct", "Mask", "alive", "alive_and_busy", "conjuncts", "pass_mask", "span"]

Conjunct = tuple[tuple[tuple[Axis, int], ...], int]  # sum c * axis + constant <= 0
Mask = frozenset[Conjunct]
NONE: Mask = frozenset()
_Memo = dict[tuple[Term, str], Mask]


def pass_mask(reductions: Iterable[Term]) -> Mask:
    """The conjuncts outside of which every one of the reductions adds nothing."""
    memo: _Memo = {}
    common: Mask | None = None
    for root in reductions:
        assert isinstance(root, (Reduce, Online))
        own = _neutral(root, memo)
        common = own if common is None else common & own
    return common or NONE


def _neutral(root: Reduce | Online, memo: _Memo) -> Mask:
    monoid = monoid_of(root)
    if monoid == "sum":
        return _vanishes(root.body, memo)
    return _sinks(root.body, memo) if monoid == "max" else NONE


def _once(term: Term, find: Callable[[Term, _Memo], Mask], memo: _Memo) -> Mask:
    """What `find` says of the term, remembered."""
    key = (term, find.__name__)
    if key not in memo:
        memo[key] = NONE
        memo[key] = find(term, memo)
    return memo[key]


def _sinks(term: Term, memo: _Memo) -> Mask:
    """Conjuncts outside of which the term is -inf."""
    return _once(term, _sinks_now, memo)


def _sinks_now(term: Term, memo: _Memo) -> Mask:
    match term:
        case Apply("where", (condition, value, other)) if _is(other, -math.inf):
            return conjuncts(condition) | _sinks(value, memo)
        case Apply("sub", (left, _)):
            return _sinks(left, memo)
        case Apply("add", (left, right)):
            return _sinks(left, memo) | _sinks(right, memo)
        case Apply("mul", (left, right)):
            for value, factor in ((left, right), (right, left)):
                if _positive(factor):
                    return _sinks(value, memo)
        case Apply("div", (value, by)) if _positive(by):
            return _sinks(value, memo)
        case Cast(_, argument):
            return _sinks(argument, memo)
    return NONE


def _vanishes(term: Term, memo: _Memo) -> Mask:
    """Conjuncts outside of which the term is 0."""
    return _once(term, _vanishes_now, memo)


def _vanishes_now(term: Term, memo: _Memo) -> Mask:
    match term:
        case Apply("where", (condition, value, other)) if _is(other, 0):
            return conjuncts(condition) | _vanishes(value, memo)
        case Apply("exp" | "exp2", (argument,)):
            return _sinks(argument, memo)
        case Apply("mul", (left, right)):
            one = _vanishes(left, memo) - _infinite(right, memo)
            return one | _vanishes(right, memo) - _infinite(left, memo)
        case Apply("div", (left, _)):
            return _vanishes(left, memo)
        case Apply("add" | "sub", (left, right)):
            return _vanishes(left, memo) & _vanishes(right, memo)
        case Apply("neg", (argument,)) | Cast(_, argument):
            return _vanishes(argument, memo)
        case Reduce("sum", _, body):
            return frozenset(c for c in _vanishes(body, memo) if _within(c, term))
    return NONE


def _infinite(term: Term, memo: _Memo) -> Mask:
    """Conjuncts outside of which the term may be an infinity, which nothing times makes 0."""
    return _once(term, _infinite_now, memo)


def _infinite_now(term: Term, memo: _Memo) -> Mask:
    found = NONE
    match term:
        case Apply("where", (condition, _, other)) if isinstance(other, Const):
            endless = _is(other, math.inf) or _is(other, -math.inf)
            found = conjuncts(condition) if endless else NONE
    if isinstance(term, Apply | Cast | Reduce):
        for child in children(term):
            found |= _infinite(child, memo)
    if isinstance(term, Apply) and term.operation in ("exp", "exp2"):
        found -= _sinks(term.arguments[0], memo)
    return found


def _within(conjunct: Conjunct, term: Term) -> bool:
    return all(axis in term.free for axis, _ in conjunct[0])


def _is(term: Term, value: float) -> bool:
    return isinstance(term, Const) and not isinstance(term.value, bool) and term.value == value


def _positive(term: Term) -> bool:
    return (
        isinstance(term, Const) and not isinstance(term.value, bool) and 0 < term.value < math.inf
    )


def conjuncts(condition: Term) -> Mask:
    """The affine conjuncts of a condition, each as `sum c * axis + constant <= 0`."""
    match condition:
        case Apply("and", (left, right)):
            return conjuncts(left) | conjuncts(right)
        case Apply(("le" | "lt" | "ge" | "gt" | "eq") as operation, (left, right)):
            a, b = affine(left), affine(right)
            if a is not None and b is not None:
                return _comparison(operation, a, b)
    return NONE


def _comparison(operation: str, a: Affine, b: Affine) -> Mask:
    below, above = a.plus(b, -1), b.plus(a, -1)
    if operation == "eq":
        return frozenset({_conjunct(below, 0), _conjunct(above, 0)})
    form = below if operation in ("le", "lt") else above
    return frozenset({_conjunct(form, 1 if operation in ("lt", "gt") else 0)})


def _conjunct(form: Affine, strict: int) -> Conjunct:
    return tuple(sorted(form.coefficients.items())), form.constant + strict


def span(mask: Mask, axis: Axis) -> tuple[int, int]:
    """The first position of the axis at which the mask may hold, and the one after the last; the
    whole axis where it never holds."""
    first, stop = 0, axis.extent
    for form, constant in mask:
        slope = dict(form).get(axis, 0)
        least = constant + sum(min(0, c * (a.extent - 1)) for a, c in form if a != axis)
        if slope > 0:
            stop = min(stop, -least // slope + 1)
        elif slope < 0:
            first = max(first, -(-least // -slope))
    return (first, stop) if first < stop else (0, axis.extent)


def alive(mask: Mask, tiles: Mapping[Axis, int], stream: Axis) -> float:
    """The share of the blocks over the mask's axes (tiles of the given sizes) that the streamed
    pass has to run; axes without a tile count as one block."""
    return alive_and_busy(mask, tiles, stream)[0]


def alive_and_busy(mask: Mask, tiles: Mapping[Axis, int], stream: Axis) -> tuple[float, float]:
    """The share of the blocks that the pass has to run, and of the places along the other axes
    where it has to run any. (Where it has to run none, it runs one.)"""
    axes = sorted({a for form, _ in mask for a, _ in form} | {stream})
    return _alive_and_busy(mask, tuple((a, tiles.get(a, a.extent)) for a in axes), stream)


@lru_cache(maxsize=16384)
def _alive_and_busy(
    mask: Mask, tiles: tuple[tuple[Axis, int], ...], stream: Axis
) -> tuple[float, float]:
    sizes = {a: max(1, n) for a, n in tiles}
    axes = list(sizes)
    starts = [np.arange(0, a.extent, sizes[a]) for a in axes]
    if math.prod(len(s) for s in starts) > 4_000_000:
        return 1.0, 1.0
    grids = dict(zip(axes, np.meshgrid(*starts, indexing="ij", sparse=True), strict=True))
    keep = np.ones((1,) * len(axes), dtype=bool)
    for form, constant in mask:
        least = np.full((1,) * len(axes), constant)
        for axis, c in form:
            last = np.minimum(grids[axis] + sizes[axis], axis.extent) - 1
            least = least + c * (grids[axis] if c > 0 else last)
        keep = keep & (least <= 0)
    whole = np.broadcast_to(keep, [len(s) for s in starts])
    runs = whole.sum(axis=axes.index(stream))
    return float(np.maximum(runs, 1).mean()) * runs.size / whole.size, float((runs > 0).mean())
