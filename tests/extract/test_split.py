"""Splits of reductions over chunks: what the launches give one after the other is what one gives,
for every monoid, for online sums with any repair and offset, and for positions that do not divide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nautile.extract.split import Outputs, Split, launches
from nautile.oracle import arrays_fetch, evaluate, lazy
from nautile.terms import (
    MONOIDS,
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    apply,
    reduce_,
    transform,
    walk,
)

Array = npt.NDArray[Any]
N, J, E = Axis("n", 0, 3), Axis("j", 0, 12), Axis("e", 0, 2)
INF = float("inf")


def load(name: str, *axes: Axis, dtype: str = "f32") -> Load:
    return Load(Buffer(name, tuple(a.extent for a in axes), dtype), tuple(map(Index, axes)))


X, V = load("X", N, J), load("V", J, E)
POSITIONS = Index(J)


def output(term: Term, *axes: Axis) -> Output:
    return Output(Buffer("y", tuple(a.extent for a in axes), "f32"), axes, term)


def names() -> Callable[[], str]:
    count = itertools.count()
    return lambda: f"state{next(count)}"


def value(launched: tuple[Outputs, ...], arrays: Mapping[str, Array]) -> Array:
    """The last launch's first output, states evaluated where they are read."""
    made = {o.buffer.name: (o.axes, o.term) for group in launched[:-1] for o in group}
    last = launched[-1][0]
    at = {a: np.arange(a.extent) for a in last.axes}
    return np.asarray(evaluate(last.term, lazy(made, arrays_fetch(dict(arrays))), at))


def check(made: Output, arrays: Mapping[str, Array], length: int) -> tuple[Outputs, ...]:
    """Split, compare with the whole, and give the launches."""
    parts = launches((made,), Split(J, length), names())
    assert parts
    np.testing.assert_allclose(value(parts, arrays), value(((made,),), arrays), rtol=1e-12)
    return parts


def special(seed: int) -> Array:
    """Values with infinities, NaN, ties and whole rows of -inf."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, (3, 12)).astype(float)
    x[rng.random(x.shape) < 0.3] = -INF
    if seed % 3 == 1:
        x[seed % 3] = -INF
    if seed % 4 == 2:
        x[0, rng.integers(12)] = [np.nan, INF][seed % 8 // 4]
    return x


LENGTHS = (1, 3, 4, 5, 7, 11)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("monoid", MONOIDS)
def test_every_monoid_is_merged_by_itself(monoid: str, length: int) -> None:
    for seed in range(12):
        check(output(reduce_(monoid, J, X), N), {"X": special(seed)}, length)


@pytest.mark.parametrize("monoid", ["sum", "max", "min", "argmax", "argmin", "prod"])
def test_integers_stay_integers(monoid: str) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (3, 12))
    made = output(reduce_(monoid, J, load("X", N, J, dtype="i32")), N)
    for length in LENGTHS:
        parts = check(made, {"X": x}, length)
        states = [o.buffer.dtype for o in parts[0]]
        assert set(states) <= {"i32", "i64"}


def online(weight: Term | None = None, x: Term = X) -> Online:
    """sum[j](exp(x - max x) * weight) in one pass."""
    top = reduce_("max", J, x)
    start = apply("eq", Before(top), Const(-INF))
    change = apply("exp", apply("sub", Before(top), Running(top)))
    body: Term = apply("exp", apply("sub", x, Running(top)))
    body = body if weight is None else apply("mul", body, weight)
    return Online(J, apply("where", start, Const(0.0), change), body)


def attention() -> Output:
    return output(apply("div", online(V), online()), N, E)


@pytest.mark.parametrize("length", LENGTHS)
def test_an_online_sum_is_merged_by_its_repair(length: int) -> None:
    v = np.random.default_rng(0).normal(size=(12, 2))
    for seed in range(12):
        check(attention(), {"X": special(seed), "V": v}, length)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_chunk_that_a_mask_empties_adds_nothing(length: int) -> None:
    rng = np.random.default_rng(3)
    until = apply("mul", Index(N), Const(4))
    x = apply("where", apply("lt", POSITIONS, until), X, Const(-INF))
    made = output(apply("div", online(V, x), online(None, x)), N, E)
    arrays = {"X": rng.normal(size=(3, 12)) * 40, "V": rng.normal(size=(12, 2))}
    check(made, arrays, length)
    found = value(launches((made,), Split(J, length), names()), arrays)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1:]).all()


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_chunks_cover_what_a_mask_leaves(length: int) -> None:
    """Positions 3..8 of 12; the last chunk may run on beneath the mask, and beyond the end."""
    within = apply("and", apply("le", Const(3), POSITIONS), apply("lt", POSITIONS, Const(9)))
    x = apply("where", within, X, Const(-INF))
    made = output(apply("div", online(V, x), online(None, x)), N, E)
    arrays = {"X": special(0), "V": np.random.default_rng(0).normal(size=(12, 2))}
    parts = launches((made,), Split(J, length, 3, 9), names())
    np.testing.assert_allclose(value(parts, arrays), value(((made,),), arrays), rtol=1e-12)
    assert parts[0][0].buffer.shape[1] == -(-6 // length)


def test_a_span_that_is_too_short_is_the_whole_axis() -> None:
    made = output(reduce_("sum", J, X), N)
    (states, _) = launches((made,), Split(J, 4, 4, 8), names())
    assert states[0].buffer.shape == (3, 3)
    late = apply("where", apply("lt", Const(5), POSITIONS), X, Const(0.0))
    (states, _) = launches((output(reduce_("sum", J, late), N),), Split(J, 4, 6), names())
    assert states[0].buffer.shape == (3, 2)


def mean(moment: Callable[[Term], Term]) -> Term:
    count = reduce_("sum", J, apply("add", apply("mul", Const(0.0), X), Const(1.0)))
    return apply("div", moment(reduce_("sum", J, X)), moment(count))


def second_moment() -> Online:
    """sum[j]((x - mean x)**2) by Chan's pairwise update."""
    count = reduce_("sum", J, apply("add", apply("mul", Const(0.0), X), Const(1.0)))
    gap = apply("sub", mean(Before), mean(Running))
    moved = apply("mul", Before(count), apply("mul", gap, gap))
    offset = apply("where", apply("eq", Before(count), Const(0.0)), Const(0.0), moved)
    own = apply("sub", X, mean(Running))
    return Online(J, Const(1.0), apply("mul", own, own), offset)


@pytest.mark.parametrize("length", LENGTHS)
def test_an_offset_moves_a_partial_sum(length: int) -> None:
    x = np.random.default_rng(5).normal(size=(3, 12)) + 1e3
    parts = check(output(second_moment(), N), {"X": x}, length)
    expected = ((x - x.mean(1, keepdims=True)) ** 2).sum(1)
    np.testing.assert_allclose(value(parts, {"X": x}), expected, rtol=1e-9)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_carrier_may_be_online_itself(length: int) -> None:
    """sum[j](v * log(s_j / s)) with s an online sum: affine in log s, whose offset reads two."""
    total, weight = online(), reduce_("sum", J, load("W", J))
    top = reduce_("max", J, X)

    def log(moment: Callable[[Term], Term]) -> Term:
        return apply("add", moment(top), apply("log", moment(total)))

    offset = apply("mul", apply("sub", log(Before), log(Running)), Before(weight))
    offset = apply("where", apply("eq", Before(weight), Const(0.0)), Const(0.0), offset)
    body = apply("mul", load("W", J), apply("sub", X, log(Running)))
    rng = np.random.default_rng(8)
    arrays = {"X": rng.normal(size=(3, 12)) * 9, "W": rng.uniform(1, 2, 12)}
    made = output(Online(J, Const(1.0), body, offset), N)
    check(made, arrays, length)
    x, w = arrays["X"], arrays["W"]
    expected = (w * (x - np.log(np.exp(x).sum(1, keepdims=True)))).sum(1)
    np.testing.assert_allclose(value(((made,),), arrays), expected, rtol=1e-9)


@pytest.mark.parametrize("length", LENGTHS)
def test_later_passes_follow_in_launches_of_their_own(length: int) -> None:
    shifted = apply("exp", apply("sub", X, reduce_("max", J, X)))
    softmax = apply("div", shifted, reduce_("sum", J, shifted))
    parts = check(output(softmax, N, J), {"X": special(0) + 1}, length)
    assert len(parts) == 3
    reduced = [t.axis for t in walk(parts[-1][0].term) if isinstance(t, Reduce)]
    assert J not in reduced


def test_a_state_that_two_reductions_share_is_stored_once() -> None:
    made = output(apply("add", reduce_("argmax", J, X), reduce_("max", J, X)), N)
    (states, _) = launches((made,), Split(J, 4), names())
    assert len(states) == 2


def test_a_repair_that_depends_on_the_position_is_not_split() -> None:
    top = reduce_("max", J, X)
    change = apply("sub", Before(top), Running(top))
    repair = apply("exp", apply("mul", change, load("W", J)))
    term = Online(J, repair, apply("mul", X, Running(top)))
    assert launches((output(term, N),), Split(J, 4), names()) == ()


def test_nothing_to_split() -> None:
    assert launches((output(X, N, J),), Split(J, 4), names()) == ()


def test_chunks_lie_before_the_contiguous_axis() -> None:
    (states, _) = launches((attention(),), Split(J, 4), names())
    shapes = {tuple(a.family for a in o.axes) for o in states}
    assert shapes == {("n", "j_chunk"), ("n", "j_chunk", "e")}


def flipped(term: Term) -> Term:
    """Every difference of the repairs the other way round."""
    return transform(
        term,
        lambda t: apply("sub", *t.arguments[::-1]) if _is_change(t) else t,  # type: ignore[attr-defined]
    )


def _is_change(term: Term) -> bool:
    return getattr(term, "operation", "") == "sub" and not any(
        isinstance(t, Index) and t.axis.family == "j" for t in walk(term)
    )


def test_mutants_of_the_merge_differ() -> None:
    rng = np.random.default_rng(2)
    arrays = {"X": rng.normal(size=(3, 12)), "V": rng.normal(size=(12, 2))}
    made = attention()
    (states, (last,)) = launches((made,), Split(J, 4), names())
    wrong = Output(last.buffer, last.axes, flipped(last.term))
    assert wrong.term != last.term
    whole = value(((made,),), arrays)
    assert not np.allclose(value((states, (wrong,)), arrays), whole)
