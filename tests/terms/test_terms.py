"""Terms: interning, canonical binders, substitution without capture."""

from __future__ import annotations

import pickle

import pytest

from nautile.terms import (
    Apply,
    Axis,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    apply,
    digest,
    reduce_,
    substitute,
    text,
    transform,
    walk,
)

S, S1, T = Axis("s", 0, 8), Axis("s", 1, 8), Axis("t", 0, 4)
X = Buffer("x", (4, 8), "f32")


def x(t: Axis, s: Axis) -> Load:
    return Load(X, (Index(t), Index(s)))


def test_equal_terms_are_one_object_and_survive_pickling() -> None:
    term = apply("exp", apply("sub", x(T, S), reduce_("max", S, x(T, S))))
    again = apply("exp", apply("sub", x(T, S), reduce_("max", S, x(T, S))))
    assert term is again
    assert pickle.loads(pickle.dumps(term)) is term


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, 1.0), (1, True), (0, False)])
def test_constants_differ_by_type_and_sign(a: float, b: float) -> None:
    assert Const(a) is not Const(b)
    assert Const(float("nan")) is Const(float("nan"))


def test_binders_take_the_smallest_free_number() -> None:
    assert reduce_("sum", S1, x(T, S1)) is reduce_("sum", S, x(T, S))
    square = Buffer("k", (8, 8), "f32")
    body = Load(square, (Index(S), Index(S1)))
    assert reduce_("sum", S1, body) == Reduce("sum", S1, body)
    assert reduce_("sum", S1, body).free == {S}


def test_substitution_moves_binders_out_of_the_way() -> None:
    square = Buffer("k", (8, 8), "f32")
    row_sum = reduce_("sum", S1, Load(square, (Index(S), Index(S1))))
    moved = substitute(row_sum, {S: Index(S1)})
    assert moved.free == {S1}
    assert isinstance(moved, Reduce)
    assert moved.axis == S
    assert moved.body is Load(square, (Index(S1), Index(S)))


def test_substitution_goes_as_deep_as_terms_do() -> None:
    """20,000 operations and 300 binders: no recursion, and a shared part is replaced once."""
    body = x(T, S)
    for n in range(20_000):
        body = apply("add", body, Const(float(n)))
    moved = substitute(body, {T: Const(3)})
    assert moved.free == {S}
    assert substitute(moved, {S: Index(S)}) is moved
    shared = x(T, S)
    for _ in range(300):
        shared = apply("add", shared, reduce_("sum", S, apply("mul", shared, x(T, S))))
    assert substitute(shared, {T: Const(3)}).free == {S}


def test_substituting_under_a_running_axis_is_refused() -> None:
    running = Running(reduce_("max", S, x(T, S)))
    with pytest.raises(ValueError, match="running"):
        substitute(Online(S, Const(1.0), running), {T: Index(S)})


def test_text_is_linear_in_distinct_subterms_and_keys_caches() -> None:
    term: Load | Apply = x(T, S)
    for _ in range(200):
        term = apply("add", term, term)
    assert len(text(term).splitlines()) == 203
    assert digest(term) != digest(apply("neg", term))


def test_deep_terms_do_not_recurse() -> None:
    term: Load | Apply = x(T, S)
    for _ in range(50_000):
        term = apply("neg", term)
    assert sum(1 for _ in walk(term)) == 50_003
    assert transform(term, lambda t: t) is term
