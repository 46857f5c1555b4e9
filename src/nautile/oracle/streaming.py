"""Prefix reductions and online sums, by streaming along the axis as the terms' docstring says.

Whole sums are added pairwise. A stream adds one position after the other, which would lose digits
that no kernel loses (it goes block by block): so sums along a stream are kept in float64, whatever
the precision of their terms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nautile.oracle.operands import rounded
from nautile.oracle.scope import Scope, pieces, sizes, weight
from nautile.oracle.values import Array, Value, spread
from nautile.terms import Axis, Online, Reduce, Term, children

if TYPE_CHECKING:
    from nautile.oracle.evaluation import Evaluator

__all__ = ["before", "online", "running"]

_ACCUMULATE: dict[str, Callable[..., Any]] = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
    "any": np.logical_or.accumulate,
    "all": np.logical_and.accumulate,
}


def running(evaluator: Evaluator, reduced: Term, scope: Scope) -> Value:
    """The reduction's values over 0..j, at the scope's positions j of its axis."""
    assert isinstance(reduced, (Reduce, Online))
    whole = _prefix(evaluator, reduced, scope)
    place = whole.axes.index(reduced.axis)
    return Value(whole.axes, whole.array.take(scope[reduced.axis].at, axis=place))


def before(evaluator: Evaluator, reduced: Term, scope: Scope) -> Value:
    """The reduction's values over 0..j-1; the identity of its monoid at j = 0."""
    assert isinstance(reduced, (Reduce, Online))
    whole = _prefix(evaluator, reduced, scope)
    place = whole.axes.index(reduced.axis)
    at = scope[reduced.axis].at
    array = whole.array.take(np.maximum(at - 1, 0), axis=place)
    first = (at == 0).reshape([-1 if i == place else 1 for i in range(array.ndim)])
    monoid = reduced.monoid if isinstance(reduced, Reduce) else "sum"
    return Value(whole.axes, np.where(first, identity(monoid, array.dtype), array))


def identity(monoid: str, dtype: np.dtype[Any]) -> Any:
    """The value of a reduction over nothing."""
    if monoid in ("max", "min"):
        if dtype.kind == "f":
            return dtype.type(-np.inf if monoid == "max" else np.inf)
        limits = (False, True) if dtype.kind == "b" else (-(2**63), 2**63 - 1)
        return dtype.type(limits[0] if monoid == "max" else limits[1])
    return dtype.type(1 if monoid in ("prod", "all") else 0)


def _prefix(evaluator: Evaluator, reduced: Reduce | Online, scope: Scope) -> Value:
    """The reduction's values over 0..j for every j of its axis."""
    key = evaluator.key(reduced, scope, "prefix")
    known = evaluator.known.get(key)
    if known is None:
        if isinstance(reduced, Online):
            known = _streamed(evaluator, reduced, scope, keep=True)
        else:
            known = _accumulated(evaluator, reduced, scope)
        evaluator.remember(key, known)
    return known


def _accumulated(evaluator: Evaluator, reduced: Reduce, scope: Scope) -> Value:
    axis = reduced.axis
    body = evaluator.value(reduced.body, {**scope, axis: evaluator.everywhere(axis)})
    axes = tuple(sorted({*body.axes, axis}))
    place = axes.index(axis)
    array = _broadcast(spread(body, axes), place, axis.extent)
    with np.errstate(all="ignore"):
        if reduced.monoid in ("argmax", "argmin"):
            return Value(axes, _running_argument(array, place, reduced.monoid))
        if reduced.monoid in ("any", "all"):
            array = array.astype(np.bool_)
        elif array.dtype == np.bool_ and reduced.monoid in ("sum", "prod"):
            array = array.astype(np.int64)
        wide = {"dtype": np.float64} if array.dtype == np.float32 else {}
        kept = _ACCUMULATE[reduced.monoid](array, axis=place, **wide)
        return Value(axes, np.asarray(kept).astype(array.dtype, copy=False))


def _broadcast(array: Array, place: int, extent: int) -> Array:
    shape = list(array.shape)
    shape[place] = extent
    return np.broadcast_to(array, shape)


def _running_argument(array: Array, place: int, monoid: str) -> Array:
    """Position of the extreme of 0..j: the last position that beat all before it. NaN beats all."""
    x = np.moveaxis(array, place, 0)
    best = _ACCUMULATE["max" if monoid == "argmax" else "min"](x, axis=0)
    beats = np.ones(x.shape, dtype=np.bool_)
    beats[1:] = (best[1:] != best[:-1]) & (best[:-1] == best[:-1])
    at = np.arange(len(x)).reshape([-1] + [1] * (x.ndim - 1))
    return np.moveaxis(np.maximum.accumulate(np.where(beats, at, 0), axis=0), 0, place)


def online(evaluator: Evaluator, term: Online, scope: Scope) -> Value:
    """An online sum: s <- (0 if repair = 0 else s * repair) + offset + body, along the axis; in
    precision "mma" the body's operands are those of the tensor cores."""
    term = rounded(term) if evaluator.precision == "mma" else term
    return _streamed(evaluator, term, scope, keep=False)


def _streamed(evaluator: Evaluator, term: Online, scope: Scope, *, keep: bool) -> Value:
    """The online sum after the last position, or (`keep`) after each."""
    history: list[Array] = []
    axes = tuple(sorted(term.free))
    for repair, body, offset in _blocks(evaluator, term, scope, axes):
        kind = body.dtype
        state = history[-1] if history else np.zeros(body.shape[1:])
        states = _steps(state, repair, body, offset, whole=not keep)
        history = [*history, *states] if keep else list(deque(states, maxlen=1))
    if not keep:
        return Value(axes, _rounded(history[-1], kind))
    order = tuple(sorted({*axes, term.axis}))
    return Value(order, _rounded(np.stack(history, axis=order.index(term.axis)), kind))


def _rounded(states: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        return states.astype(kind, copy=False)


def _blocks(
    evaluator: Evaluator, term: Online, scope: Scope, rest: tuple[Axis, ...]
) -> Iterator[tuple[Array, Array, Array | None]]:
    """Repairs, bodies and offsets of consecutive positions over (the streamed axis, *rest)."""
    axis = term.axis
    size = sizes(scope) | {axis: axis.extent}
    heavy = sum(weight(t, size, axis) for t in children(term))
    for at in pieces(evaluator.everywhere(axis), heavy, evaluator.budget):
        within = {**scope, axis: at}
        parts = [evaluator.value(t, within) for t in children(term)]
        shape = [len(scope[a].at) for a in rest]
        repair, body, *offset = (_axis_first(p, axis, rest, len(at.at)) for p in parts)
        if body.dtype.kind != "f":
            body = body.astype(repair.dtype if repair.dtype.kind == "f" else np.float64)
        yield repair, np.broadcast_to(body, [len(at.at), *shape]), offset[0] if offset else None


def _axis_first(value: Value, axis: Axis, rest: tuple[Axis, ...], n: int) -> Array:
    axes = tuple(sorted({*rest, axis}))
    array = np.moveaxis(spread(value, axes), axes.index(axis), 0)
    return np.broadcast_to(array, (n, *array.shape[1:]))


def _steps(
    state: Array, repair: Array, body: Array, offset: Array | None, *, whole: bool
) -> Iterator[Array]:
    """The states of the stream. A run of positions at which every repair is 1 is summed at once
    (its last state alone, where `whole`: then only the last matters)."""
    with np.errstate(all="ignore"):
        moved = body if offset is None else body + offset.astype(body.dtype, copy=False)
    plain = (repair == 1).reshape(len(repair), -1).all(axis=1)
    ends = [*np.flatnonzero(~plain), len(body)]
    j = 0
    with np.errstate(all="ignore"):
        while j < len(body):
            if plain[j]:
                stop = ends[np.searchsorted(ends, j)]
                run = moved[j:stop]
                sums = run.sum(axis=0)[None] if whole else np.add.accumulate(run, axis=0)
                states, j = state + sums, stop
            else:
                r = repair[j].astype(body.dtype, copy=False)
                states = (np.where(r == 0, body.dtype.type(0), state * r) + moved[j])[None]
                j += 1
            state = states[-1]
            yield from states
