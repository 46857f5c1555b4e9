"""Every scalar operation and cast in generated C++ and in the interpreter, on ordinary and special
values, against the oracle."""

from __future__ import annotations

from pathlib import Path

import host
import numpy as np
import pytest
from sample_kernels import ax, kernel, load, out
from sample_values import Arrays, expected

from nautile.codegen.emit import emit_program
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.operators import SPELLINGS
from nautile.codegen.pointwise import FUNCTIONS
from nautile.codegen.rows import as_rows, emit_rows
from nautile.dtypes import DTYPES, storage
from nautile.extract.kernel import Kernel
from nautile.operations import OPERATIONS
from nautile.terms import Apply, Cast

N = 256
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 7.0, 1e-3, -1e-3, 40.0, -40.0, 1e4]
SPECIAL += [float("nan"), float("inf"), -float("inf")]
RESULT = {"bool": "bool"}


def _kernel(dtype: str) -> Kernel:
    """All operations on arguments of one type, an output each."""
    i = ax("n", N)
    x = [load(name, i, dtype=dtype) for name in ("a", "b", "c")]
    outputs = []
    for name, operation in OPERATIONS.items():
        if dtype != "bool" or operation.result != "same" or name == "where":
            term = Apply(name, tuple(x[: operation.arity]))
            exact = "i64" if operation.result == "same" and dtype[0] == "i" else "f32"
            kind = "f64" if dtype == "f64" else exact
            outputs.append(out(f"o_{name}", (i,), term, RESULT.get(operation.result, kind)))
    if dtype == "f32":
        outputs += [out(f"c_{d}", (i,), Cast(d, x[0]), "f32") for d in DTYPES if d[0] in "bf"]
    return kernel("ops", outputs, {i: N})


def _arrays(dtype: str) -> Arrays:
    rng = np.random.default_rng(5)
    pairs = [(p, q) for p in SPECIAL for q in SPECIAL]
    a, b = (np.array(column) for column in zip(*pairs, strict=True))
    if DTYPES[dtype].kind != "float":
        a, b = (np.nan_to_num(np.clip(v, -50, 50)) for v in (a, b))
    assert len(a) == N
    c = rng.standard_normal(N) * 3
    return {n: v.astype(storage(dtype)) for n, v in (("a", a), ("b", b), ("c", c))}


def _compare(made: Kernel, arrays: Arrays, found: Arrays, relative: float) -> None:
    want = expected(made, arrays)
    for output in made.outputs:
        name = output.buffer.name
        got = np.asarray(found[name]).astype(np.float64)
        with np.errstate(invalid="ignore"):
            top = np.sign(want[name]) * np.inf
        beyond = (np.abs(want[name]) > 3.4e38) & (output.buffer.dtype == "f32")
        ideal = np.where(beyond, top, want[name])
        near = np.isclose(got, ideal, rtol=relative, atol=relative * 1e-2, equal_nan=True)
        bad = np.flatnonzero(~near)
        where = [(float(arrays["a"][k]), float(arrays["b"][k]), got[k], ideal[k]) for k in bad[:3]]
        assert not bad.size, f"{name}: {where}"


TYPES = ("f32", "f64", "i32", "i64", "bool")


def test_every_operation_is_spelled_and_interpreted() -> None:
    assert set(SPELLINGS) == set(OPERATIONS) == set(FUNCTIONS)


@pytest.mark.parametrize("dtype", TYPES)
def test_interpreter(dtype: str) -> None:
    made, arrays = _kernel(dtype), _arrays(dtype)
    found = dict(arrays)
    run_program([lower(made, made.parts[0])], found)
    _compare(made, arrays, found, 1e-5 if dtype != "f64" else 1e-12)


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
def test_generated_text(tmp_path: Path) -> None:
    rows = []
    for dtype in TYPES:
        for precise in (True, False):
            made = _kernel(dtype)
            program = as_rows(lower(made, made.parts[0]))
            assert program is not None
            rows.append((dtype, precise, made, emit_rows(program, "ops", precise)))
    library = host.build([r[3] for r in rows], tmp_path)
    for number, (dtype, precise, made, cuda) in enumerate(rows):
        arrays = _arrays(dtype)
        found = dict(arrays)
        host.run(library, number, cuda, made, found)
        relative = 1e-12 if dtype == "f64" else 1e-5 if precise else 2e-4
        _compare(made, arrays, found, relative)


def test_rows_that_indices_pick_move_by_vectors_in_64_bits_where_a_table_is_large() -> None:
    i, j = ax("n", 5), ax("d", 16384)
    picked = load("e", load("tok", i, dtype="i32"), j, shape=(140000, 16384))
    made = kernel("rows", [out("y", (i, j), picked)], {i: 1, j: 1024})
    text = emit_program(lower(made, made.parts[0])).text
    assert "((nt_i64)(p_tok[i_n])) * ((nt_i64)16384)" in text
    assert "nt_load<16, false>(p_e" in text


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
def test_the_fast_error_function_is_accurate_from_its_series_to_its_tail(tmp_path: Path) -> None:
    i = ax("n", 4096)
    made = kernel("e", [out("y", (i,), Apply("erf", (load("x", i, dtype="f32"),)), "f32")], {i: 64})
    program = as_rows(lower(made, made.parts[0]))
    assert program is not None
    cuda = emit_rows(program, "e", False)
    assert "nt_erf_fast" in cuda.text
    arrays = {"x": np.linspace(-6, 6, 4096, dtype=np.float32)}
    found = dict(arrays)
    host.run(host.build([cuda], tmp_path), 0, cuda, made, found)
    np.testing.assert_allclose(found["y"], expected(made, arrays)["y"], rtol=1e-6, atol=0)
