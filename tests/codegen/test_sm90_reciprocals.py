"""Quotients by reciprocals that four elements share: which qualify, and how exact they are."""

from __future__ import annotations

import ctypes
import subprocess

import host
import numpy as np
import pytest

from nautile.codegen.headers import inline
from nautile.codegen.sm90.reciprocals import divided
from nautile.codegen.tile import Ref, Tile
from nautile.terms import Apply, Axis, Const, Term, apply, walk

Q, T = Axis("q", 0, 64), Axis("t", 0, 64)
BOTH = frozenset((Q, T))
X, Y = (Ref(Tile(n, (Q, T))) for n in "xy")
ROW = Ref(Tile("r", (Q,)))


def _one_plus(x: Term) -> Term:
    return apply("add", Const(1.0), x)


def _over(x: Term) -> Term:
    return apply("div", X, x)


@pytest.mark.parametrize(
    "divisor",
    [
        _one_plus(apply("mul", X, X)),
        _one_plus(apply("mul", apply("mul", X, Const(0.25)), X)),
        _one_plus(apply("mul", apply("mul", X, apply("abs", Y)), X)),
        _one_plus(apply("exp", apply("neg", X))),
        apply("add", apply("abs", X), Const(0.5)),
        apply("max", X, Const(0.25)),
        _one_plus(apply("mul", apply("pow", X, Const(2.0)), Const(3.0))),
    ],
)
def test_divisors_that_are_bounded_below(divisor: Term) -> None:
    found = divided(_over(divisor), BOTH, ["d0"])
    assert found is not None
    assert found.divisors == (divisor,)
    assert found.term is apply("mul", X, Ref(found.tiles[0]))


@pytest.mark.parametrize(
    "divisor",
    [
        X,
        apply("mul", X, Y),
        _one_plus(apply("mul", apply("mul", X, Const(-0.25)), X)),
        _one_plus(apply("mul", apply("mul", X, Y), X)),
        apply("abs", X),
        apply("add", apply("mul", X, X), Const(1e-12)),
        apply("sub", Const(1.0), apply("mul", X, X)),
        apply("mul", _one_plus(apply("abs", X)), Const(-1.0)),
        _one_plus(apply("abs", ROW)),
    ],
)
def test_divisors_that_may_be_small_or_are_the_row_s(divisor: Term) -> None:
    assert divided(_over(divisor), BOTH, ["d0"]) is None


def test_a_deep_divisor_is_no_deep_recursion() -> None:
    divisor = _one_plus(apply("mul", X, X))
    for _ in range(5000):
        divisor = apply("add", apply("mul", divisor, Const(0.5)), apply("mul", X, X))
    found = divided(_over(apply("add", divisor, Const(0.5))), BOTH, ["d0"])
    assert found is not None


def test_a_sigmoid_is_a_quotient_and_its_factor_is_folded() -> None:
    found = divided(apply("sigmoid", apply("mul", X, Const(2.0))), BOTH, ["d0"])
    assert found is not None
    assert found.term is Ref(found.tiles[0])
    exponential = apply("exp", apply("mul", X, Const(-2.0)))
    assert found.divisors == (_one_plus(exponential),)


@pytest.mark.parametrize(
    ("term", "kept"),
    [
        (_over(_one_plus(apply("mul", X, X))), False),
        (apply("mul", apply("mul", X, Const(0.5)), apply("sigmoid", X)), False),
        (apply("mul", apply("sigmoid", X), Y), True),
        (apply("sub", apply("mul", apply("sigmoid", X), Const(2.0)), Const(1.0)), True),
        (apply("div", apply("mul", X, Const(0.5)), _one_plus(apply("exp", X))), False),
        (apply("div", apply("add", X, Y), _one_plus(apply("abs", apply("mul", X, Y)))), False),
        (apply("div", Y, _one_plus(apply("abs", X))), True),
        (apply("div", apply("tanh", X), _one_plus(apply("abs", X))), True),  # not looked into
        (apply("div", Const(2.0), _one_plus(apply("abs", X))), True),
    ],
)
def test_a_nan_is_kept_where_no_dividend_has_it(term: Term, kept: bool) -> None:
    found = divided(term, BOTH, ["d0"])
    assert found is not None
    assert found.kept == (kept,)


def test_a_divisor_inside_another_and_those_without_a_name_stay() -> None:
    inner = apply("sigmoid", X)
    outer = apply("div", Y, _one_plus(inner))
    found = divided(outer, BOTH, ["d0", "d1"])
    assert found is not None
    assert len(found.divisors) == 1
    assert any(isinstance(t, Apply) and t.operation == "div" for t in walk(found.term))
    two = apply("add", inner, apply("sigmoid", Y))
    assert [len(divided(two, BOTH, n).tiles) for n in (["d0"], ["d0", "d1"])] == [1, 2]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def reciprocals(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The device function, compiled for the CPU."""
    text = inline("nt_reciprocals", "scalar.cuh").removesuffix("nt_reciprocals")
    folder = tmp_path_factory.mktemp("reciprocals")
    source, library = folder / "r.cpp", folder / "r.so"
    run = 'extern "C" void run(float* x) { nt_reciprocals(x[0], x[1], x[2], x[3]); }'
    source.write_text(f'#include "{host.SHIM}"\n{host._without_ptx(text)}\n{run}\n')
    assert host.COMPILER is not None
    command = [host.COMPILER, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", str(source)]
    subprocess.run([*command, "-mf16c", "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def _of(library: ctypes.CDLL, *values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    given = np.array(values, np.float32)
    library.run(given.ctypes.data_as(ctypes.c_void_p))
    return given


needs_compiler = pytest.mark.skipif(host.COMPILER is None, reason="needs g++")


@needs_compiler
def test_reciprocals_are_within_three_units(reciprocals: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        given = np.exp2(rng.uniform(-20, 31, 4)).astype(np.float32)
        found, want = _of(reciprocals, *given), 1 / given.astype(np.float64)
        assert np.all(np.abs(found - want) <= 3 * 2.0**-23 * want)


@needs_compiler
@pytest.mark.parametrize("place", range(4))
def test_a_nan_is_one_element_s(place: int, reciprocals: ctypes.CDLL) -> None:
    given = [2.0, 4.0, 8.0, 16.0]
    want = [1 / x for x in given]
    given[place] = want[place] = float("nan")
    np.testing.assert_allclose(_of(reciprocals, *given), want, rtol=1e-6)


@needs_compiler
def test_divisors_beyond_the_largest_vanish_to_an_absolute_accuracy(
    reciprocals: ctypes.CDLL,
) -> None:
    found = _of(reciprocals, float("inf"), 1.0, 1e38, 2.0)
    assert found[1] == pytest.approx(1, rel=1e-6)
    assert found[3] == pytest.approx(0.5, rel=1e-6)
    assert 0 <= found[0] <= 5e-10
    assert 0 <= found[2] <= 5e-10
