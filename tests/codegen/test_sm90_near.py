"""tanh of small arguments by a polynomial: which terms qualify, and how exact it is."""

from __future__ import annotations

import ctypes
import subprocess

import host
import numpy as np
import pytest

from nautile.codegen.headers import inline
from nautile.codegen.sm90.near import capped, fourfold, in_place
from nautile.codegen.tile import Ref, Tile
from nautile.terms import Apply, Axis, Const, Index, Term, apply

Q, T = Axis("q", 0, 64), Axis("t", 0, 64)
BOTH = frozenset((Q, T))
X, Y = (Ref(Tile(n, (Q, T))) for n in "xy")
ROW = Ref(Tile("r", (Q,)))


def _tanh(x: Term) -> Apply:
    return apply("tanh", x)


def _plus(a: Term, b: Term) -> Term:
    return apply("add", a, b)


DISTANCE = apply("sub", Index(T), Index(Q))


@pytest.mark.parametrize(
    ("term", "found"),
    [
        (apply("mul", _tanh(X), Const(30.0)), True),
        (_plus(_tanh(X), apply("mul", ROW, DISTANCE)), True),
        (apply("mul", _tanh(X), _tanh(X)), True),
        # what else is read would have been overwritten
        (_plus(_tanh(X), X), False),
        (_plus(_tanh(X), Y), False),
        # of several, or of none, or of the row's
        (_plus(_tanh(X), _tanh(Y)), False),
        (X, False),
        (_plus(_tanh(ROW), DISTANCE), False),
    ],
)
def test_terms_with_one_tanh_and_no_other_elements(term: Term, found: bool) -> None:
    assert (capped(term, BOTH) is not None) == found


def test_four_times_the_argument_is_one_product() -> None:
    assert fourfold(_tanh(apply("mul", X, Const(0.5)))) is apply("mul", X, Const(2.0))
    assert fourfold(_tanh(apply("div", X, Const(8.0)))) is apply("mul", X, Const(0.5))
    inner = apply("mul", apply("mul", X, Const(0.25)), Const(3.0))
    assert fourfold(_tanh(inner)) is apply("mul", X, Const(3.0))
    assert fourfold(_tanh(_plus(X, ROW))) is apply("mul", _plus(X, ROW), Const(4.0))


def test_every_occurrence_is_replaced() -> None:
    curve = _tanh(X)
    assert in_place(_plus(curve, apply("mul", curve, ROW)), curve, Y) is _plus(
        Y, apply("mul", Y, ROW)
    )


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("form", "error"), [("nt_tanh_near", 2e-7), ("nt_tanh_near_5", 5.4e-6)])
def test_its_error(form: str, error: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = inline(form, "scalar.cuh").removesuffix(form)
    folder = tmp_path_factory.mktemp("near")
    source, library = folder / "n.cpp", folder / "n.so"
    run = (
        'extern "C" void run(float* x, int n) {'
        f" for (int i = 0; i < n; i++) x[i] = {form}(x[i]); }}"
    )
    source.write_text(f'#include "{host.SHIM}"\n{host._without_ptx(text)}\n{run}\n')
    assert host.COMPILER is not None
    command = [host.COMPILER, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", str(source)]
    subprocess.run([*command, "-mf16c", "-o", str(library)], check=True)
    given = np.linspace(-2, 2, 400001).astype(np.float32)
    found = given.copy()
    ctypes.CDLL(str(library)).run(found.ctypes.data_as(ctypes.c_void_p), len(found))
    assert np.abs(found - np.tanh(given.astype(np.float64) / 4)).max() <= error
