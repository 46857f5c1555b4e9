"""What lowering decides from structure: passes, hoisting, contractions, operand types, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sample_kernels import (
    attention,
    ax,
    cross_entropy,
    gated,
    kernel,
    layernorm,
    load,
    matmul,
    op,
    out,
    rms_residual,
    softmax_online,
)
from sample_values import check, inputs

from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.tile import Fold, Loop, Mma, Read, Statement, TileProgram, walk_statements
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel
from nautile.terms import Before, Cast, Const, Index, Reduce, Running, Term


def _program(made: Kernel, rounding: bool = True) -> TileProgram:
    return lower(made, made.parts[0], rounding=rounding)


def _all(program: TileProgram, kind: type[Statement]) -> Sequence[Statement]:
    return [s for s in walk_statements(program.body) if isinstance(s, kind)]


def _loops(program: TileProgram) -> int:
    return len(_all(program, Loop))


def test_dependent_folds_share_a_pass() -> None:
    assert _loops(_program(softmax_online())) == 2
    assert _loops(_program(cross_entropy())) == 1
    assert _loops(_program(layernorm(stream=True))) == 3
    assert _loops(_program(attention())) == 1


def test_shared_inputs_are_read_once_in_a_loop() -> None:
    reads = _all(_program(gated()), Read)
    assert sorted(s.buffer.name for s in reads if isinstance(s, Read)) == ["wg", "wu", "x"]
    names = [s.buffer.name for s in _all(_program(rms_residual()), Read) if isinstance(s, Read)]
    assert sorted(names) == ["r", "w", "x"]


def test_what_a_loop_does_not_change_stands_before_it() -> None:
    program = _program(attention())
    loop = next(s for s in program.body if isinstance(s, Loop))
    inside = {s.buffer.name for s in loop.body if isinstance(s, Read)}
    before = {s.buffer.name for s in program.body if isinstance(s, Read)}
    assert (before, inside) == ({"q"}, {"k", "v"})


@pytest.mark.parametrize(
    ("left", "right", "rounding", "operand"),
    [
        ("bf16", "bf16", True, "bf16"),
        ("f32", "bf16", True, "bf16"),
        ("f32", "bf16", False, "f32"),
        ("f32", "f32", True, "f32"),
        ("tf32", "tf32", True, "tf32"),
        ("f16", "bf16", True, "tf32"),
        ("f8e4m3", "f8e5m2", True, "f16"),
        ("i8", "i8", True, "i32"),
        ("f16", "i8", False, "f16"),
        ("f64", "f32", True, "f64"),
    ],
)
def test_operand_types(left: str, right: str, rounding: bool, operand: str) -> None:
    i, j, k = ax("n", 20), ax("m", 20), ax("k", 20)
    product = op("mul", load("a", i, k, dtype=left), load("b", k, j, dtype=right))
    store = "i32" if left == "i8" else "f32"
    made = kernel("mm", [out("c", (i, j), Reduce("sum", k, product), store)], {i: 8, j: 8, k: 32})
    (mma,) = _all(_program(made, rounding), Mma)
    assert isinstance(mma, Mma)
    assert mma.operand == operand


def test_factors_that_the_sum_does_not_concern_leave_it() -> None:
    i, j, k = ax("n", 10), ax("m", 12), ax("k", 20)
    a, b = load("a", i, k), load("b", k, j)
    body = op("div", op("mul", op("mul", a, load("c", i)), op("mul", b, 0.5)), load("d", j))
    made = kernel("mm", [out("y", (i, j), Reduce("sum", k, body), "f32")], {i: 8, j: 8, k: 32})
    program = _program(made)
    (mma,) = _all(program, Mma)
    assert isinstance(mma, Mma)
    reads = {s.target.name for s in _all(program, Read) if isinstance(s, Read)}
    assert {mma.left.name, mma.right.name} <= reads
    arrays = inputs(made)
    found = dict(arrays)
    run_program([program], found)
    check(made, arrays, found, loose=4)


def test_factors_of_the_depth_join_the_operand_that_is_folded_and_not_the_other() -> None:
    """A maximum over the keys folds what the product makes, not the keys."""
    i, j, k = ax("n", 10), ax("m", 12), ax("k", 20)
    a, b = load("a", i, k, dtype="bf16"), load("b", j, k, dtype="bf16")
    g, h = load("g", k, dtype="bf16"), load("h", k, dtype="bf16")
    norm = op("rsqrt", Reduce("sum", k, op("mul", a, a)))
    product = Reduce("sum", k, op("mul", op("mul", a, g), op("mul", b, h)))
    top = Reduce("max", j, op("mul", norm, product))
    made = kernel("top", [out("y", (i,), top, "f32")], {i: 8, j: 8, k: 32}, (j,))
    (mma,) = _all(_program(made), Mma)
    assert isinstance(mma, Mma)
    assert mma.operand == "bf16"


def test_several_axes_are_one_contraction() -> None:
    i, j, p, q = ax("n", 9), ax("m", 11), ax("p", 5), ax("q", 7)
    body = op("mul", load("a", i, p, q), load("b", p, q, j))
    term = Reduce("sum", p, Reduce("sum", q, body))
    made = kernel("mm", [out("y", (i, j), term, "f32")], {i: 8, j: 8, p: 8, q: 4}, (q,))
    (mma,) = _all(_program(made), Mma)
    assert isinstance(mma, Mma)
    assert set(mma.axes) == {p, q}
    arrays = inputs(made)
    found = dict(arrays)
    run_program([_program(made)], found)
    check(made, arrays, found)


@pytest.mark.parametrize("stream", [False, True])
def test_a_condition_inside_a_contraction_stays_with_an_operand(stream: bool) -> None:
    i, j, k = ax("n", 10), ax("m", 12), ax("k", 21)
    kept = op("le", Index(k), Index(i))
    body = op("where", kept, op("mul", load("a", i, k), load("b", k, j)), Const(0.0))
    tiles = {i: 4, j: 8, k: 8 if stream else 32}
    streams = (k,) if stream else ()
    made = kernel("mm", [out("y", (i, j), Reduce("sum", k, body), "f32")], tiles, streams)
    program = _program(made)
    assert len(_all(program, Mma)) == 1
    arrays = inputs(made)
    found = dict(arrays)
    run_program([program], found)
    check(made, arrays, found)


def test_a_product_without_two_free_axes_is_a_fold() -> None:
    i, k = ax("n", 10), ax("k", 21)
    term = Reduce("sum", k, op("mul", load("a", i, k), load("v", k)))
    program = _program(kernel("mv", [out("y", (i,), term)], {i: 4, k: 32}))
    assert not _all(program, Mma)
    assert len(_all(program, Fold)) == 1


def test_an_explicit_rounding_makes_the_operand() -> None:
    i, j, k = ax("n", 10), ax("m", 12), ax("k", 20)
    a = Cast("bf16", op("exp", load("a", i, k, dtype="f32")))
    b = Cast("bf16", load("b", k, j, dtype="f32"))
    made = kernel(
        "mm", [out("y", (i, j), Reduce("sum", k, op("mul", a, b)), "f32")], {i: 8, j: 8, k: 32}
    )
    (mma,) = _all(_program(made, rounding=False), Mma)
    assert isinstance(mma, Mma)
    assert mma.operand == "bf16"


def test_a_resident_axis_must_be_covered() -> None:
    made = matmul()
    part = made.parts[0]
    tiles = dict.fromkeys(part.tiles, 8)
    bad = kernel("mm", part.outputs, tiles)
    with pytest.raises(LoweringError, match="resident"):
        _program(bad)


def test_running_values_outside_an_online_sum_are_refused() -> None:
    i, j = ax("n", 10), ax("c", 20)
    m: Term = Reduce("max", j, load("x", i, j))
    for loose in (Running(m), Before(m)):
        made = kernel("scan", [out("y", (i, j), loose)], {i: 4, j: 8}, (j,))
        with pytest.raises(LoweringError, match="running"):
            _program(made)
