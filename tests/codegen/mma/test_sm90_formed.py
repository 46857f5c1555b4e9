"""Left operands computed on their way and folds beside a product, on the Hopper path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hopper_host
import host
import numpy as np
import programs as P
import pytest
from test_kernels import agree, inputs, outputs

from nautile.codegen.interpret import run_program
from nautile.codegen.sm90.emit import emit_hopper, memory_program
from nautile.codegen.sm90.memory import (
    Advance,
    Arrive,
    Box,
    CommitGroup,
    Convert,
    Form,
    Issue,
    Operation,
    Release,
    Stream,
    Tiles,
    Unpack,
    WaitEmpty,
    WaitFull,
    WaitGroup,
    operations,
)
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.simulate import ScheduleError, simulate
from nautile.codegen.tile import Fold, Loop, Map, Mma, Read, Ref, Tile, TileProgram, Write
from nautile.dtypes import round_to
from nautile.errors import LoweringError
from nautile.terms import Axis, Buffer, Const, Index, Load, Term, apply, transform

needs_compiler = pytest.mark.skipif(host.COMPILER is None, reason="needs g++")


def normed(
    m: int, n: int, k: int, tile: tuple[int, int, int], *, gain: bool = True, gates: int = 1
) -> TileProgram:
    """C = rsqrt(mean of A^2) * (A g) B^T, the norm's sum beside the product; `gates` of B."""
    am, an, ak = Axis("m", 0, m), Axis("n", 0, n), Axis("k", 0, k)
    a, g = Tile("a", (am, ak), "bf16"), Tile("g", (ak,), "bf16")
    left = Tile("scaled", (am, ak)) if gain else a
    square, total = Tile("square", (am, ak)), Tile("total", (am,))
    body: list[Any] = [
        Read(a, Buffer("A", (m, k), "bf16"), (Index(am), Index(ak))),
        Map(square, P.mul(Ref(a), Ref(a))),
        Fold(total, "sum", ak, square),
    ]
    if gain:
        body += [
            Read(g, Buffer("G", (k,), "bf16"), (Index(ak),)),
            Map(left, P.mul(Ref(a), Ref(g))),
        ]
    sums: list[Tile] = []
    for number in range(gates):
        b, acc = Tile(f"b{number}", (an, ak), "bf16"), Tile(f"acc{number}", (am, an))
        body.append(Read(b, Buffer(f"B{number}", (n, k), "bf16"), (Index(an), Index(ak))))
        body.append(Mma(acc, left, b, (ak,), "bf16"))
        sums.append(acc)
    factor, y = Tile("factor", (am,)), Tile("y", (am, an))
    mean = P.add(apply("div", Ref(total), Const(float(k))), 1e-5)
    value: Term = Ref(sums[0])
    for acc in sums[1:]:
        value = P.mul(value, Ref(acc))
    return TileProgram(
        "normed",
        {am: tile[0], an: tile[1], ak: tile[2]},
        (am, an),
        (
            Loop(ak, tuple(body)),
            Map(factor, apply("rsqrt", mean)),
            Map(y, P.mul(value, Ref(factor))),
            Write(Buffer("C", (m, n), "bf16"), (Index(am), Index(an)), y),
        ),
    )


def turned(m: int, n: int, k: int, tile: tuple[int, int, int]) -> TileProgram:
    """C = A' B^T, half of each row of A' from the other half of A: elements beside their places."""
    program = P.gemm(m, n, k, tile, out="f32")
    (loop, *rest) = program.body
    assert isinstance(loop, Loop)
    read = loop.body[0]
    assert isinstance(read, Read)
    row, depth = (c for c in read.coordinates if isinstance(c, Index))
    there = apply("mod", apply("add", depth, Const(k // 2)), Const(k))
    other, both = Tile("other", read.target.axes, "bf16"), Tile("both", read.target.axes)
    mma = loop.body[-1]
    assert isinstance(mma, Mma)
    body = (
        read,
        loop.body[1],
        Read(other, read.buffer, (row, there)),
        Map(both, P.add(Ref(read.target), P.mul(Ref(other), 0.5))),
        Mma(mma.target, both, mma.right, mma.axes, "bf16"),
    )
    return TileProgram(
        "turned", program.tiles, program.grid, (Loop(loop.axis, body), *rest), program.masked
    )


def normed_queries(*, inside: bool, **given: Any) -> TileProgram:
    """Attention whose queries are scaled for each depth and normed, the norm's factor a part of
    the operand or of the scores."""
    program = P.attention(**given)
    (read, loop, *rest) = program.body
    assert isinstance(read, Read)
    assert isinstance(loop, Loop)
    head, row, depth = read.target.axes
    q, g = read.target, Tile("g", (depth,), "bf16")
    square, total, factor = (
        Tile("square", q.axes),
        Tile("total", (head, row)),
        Tile("f", (head, row)),
    )
    scaled = Tile("scaled", q.axes)
    value = P.mul(Ref(q), P.add(Ref(g), 1.0))
    before = (
        read,
        Map(square, P.mul(Ref(q), Ref(q))),
        Fold(total, "sum", depth, square),
        Map(factor, apply("rsqrt", P.add(P.mul(Ref(total), 1.0 / depth.extent), 1e-5))),
        Read(g, Buffer("G", (depth.extent,), "bf16"), (Index(depth),)),
        Map(scaled, P.mul(value, Ref(factor)) if inside else value),
    )
    (read_k, mma, *others) = loop.body
    assert isinstance(mma, Mma)
    scores: list[Any] = [Mma(mma.target, scaled, mma.right, mma.axes, mma.operand)]
    if not inside:
        moved = Tile("moved", mma.target.axes)
        scores.append(Map(moved, P.mul(Ref(mma.target), Ref(factor))))
        others = [_over(s, mma.target, moved) for s in others]
    body = (*before, Loop(loop.axis, (read_k, *scores, *others), loop.bounds), *rest)
    masked = (
        {n: transform(t, _renaming(mma.target, moved)) for n, t in program.masked.items()}
        if (not inside)
        else program.masked
    )
    return TileProgram("normed", program.tiles, program.grid, body, masked)


def _renaming(old: Tile, new: Tile) -> Callable[[Term], Term]:
    return lambda t: Ref(new) if isinstance(t, Ref) and t.tile == old else t


def _over(s: Any, old: Tile, new: Tile) -> Any:
    """A statement that reads another tile."""
    return Map(s.target, transform(s.value, _renaming(old, new))) if isinstance(s, Map) else s


Case = tuple[Callable[[], TileProgram], dict[str, Any], float]


def scaled_right(m: int, n: int, k: int, tile: tuple[int, int, int], **given: Any) -> TileProgram:
    """C = A (B g)^T, a factor for each depth on the right."""
    program = P.gemm(m, n, k, tile, out="f32", **given)
    (loop, *rest) = program.body
    assert isinstance(loop, Loop)
    (read_a, read_b, mma) = loop.body
    assert isinstance(mma, Mma)
    g, both = Tile("g", (loop.axis,), "bf16"), Tile("both", mma.right.axes)
    body = (
        read_a,
        read_b,
        Read(g, Buffer("G", (k,), "bf16"), (Index(loop.axis),)),
        Map(both, P.mul(Ref(mma.right), P.add(Ref(g), 2.0))),
        Mma(mma.target, mma.left, both, mma.axes, "bf16"),
    )
    return TileProgram("scaled", program.tiles, program.grid, (Loop(loop.axis, body), *rest))


SIZES: dict[str, Any] = {"q": 136, "t": 136, "d": 64, "heads": 2, "tile": (128, 64)}
QUICK: dict[str, Case] = {
    "norm beside a gated pair": (
        lambda: normed(200, 72, 200, (128, 64, 64), gates=2),
        {"blocks": 1},
        8e-3,
    ),
    "f32 rows of two fragments": (
        lambda: P.gemm(
            300, 72, 136, (256, 64, 64), stored="f32", operand="bf16", right="bf16", out="f32"
        ),
        {},
        1e-5,
    ),
    "bytes": (
        lambda: P.gemm(136, 72, 144, stored="i8", operand="bf16", right="bf16", out="f32"),
        {"blocks": 1},
        1e-5,
    ),
}
QUICK["queries formed in their place"] = (
    lambda: normed_queries(inside=False, **(SIZES | {"mask": P.causal})),
    {"blocks": 2},
    8e-3,
)
QUICK["right of bytes, taken in turn"] = (
    lambda: P.gemm(200, 136, 144, (128, 128, 64), right="i8", out="f32"),
    {"blocks": 2},
    1e-5,
)
QUICK["fp8 values across their depth"] = (
    lambda: P.attention(**(SIZES | {"dtype": "f8e4m3", "heads": 1, "out": "bf16", "d": 128})),
    {"blocks": 1},
    4e-2,
)
SLOW: dict[str, Case] = {
    "factors of rows and depth": (
        lambda: P.gemm(200, 136, 200, prologue=True, out="f32"),
        {"blocks": 2},
        2e-3,
    ),
    "contiguous rows": (
        lambda: P.gemm(200, 136, 72, layout="km,kn", prologue=True, out="f32"),
        {},
        2e-3,
    ),
    "fp8 of two fragments": (
        lambda: P.gemm(
            264, 72, 144, (256, 64, 64), stored="f8e4m3", operand="bf16", right="bf16", out="f32"
        ),
        {},
        1e-5,
    ),
    "norm alone": (lambda: normed(136, 136, 136, (128, 128, 64), gain=False), {}, 8e-3),
    "three warpgroups": (lambda: normed(200, 72, 136, (192, 64, 64)), {"consumers": 3}, 8e-3),
    "normed queries": (
        lambda: normed_queries(inside=True, **(SIZES | {"d": 128, "heads": 1})),
        {},
        8e-3,
    ),
    "queries of two fragments": (
        lambda: normed_queries(inside=True, **(SIZES | {"q": 264, "tile": (256, 64)})),
        {"blocks": 1},
        8e-3,
    ),
    "factors of the right": (
        lambda: scaled_right(128, 136, 200, (128, 128, 64)),
        {"blocks": 1},
        1e-3,
    ),
    "right of f32 across": (
        lambda: P.gemm(200, 136, 72, layout="mk,kn", right="f32", out="f32"),
        {"blocks": 2},
        1e-5,
    ),
    "right of bytes across": (
        lambda: scaled_right(264, 144, 72, (256, 64, 64), layout="mk,kn", right="i8"),
        {},
        1e-3,
    ),
    "fp8 across": (
        lambda: P.gemm(128, 144, 144, layout="mk,kn", dtype="f8e5m2", out="f32"),
        {},
        1e-3,
    ),
    "fp8 causal": (
        lambda: P.attention(**(SIZES | {"dtype": "f8e4m3", "out": "bf16", "mask": P.causal})),
        {"blocks": 1},
        4e-2,
    ),
    "other places": (lambda: turned(128, 72, 128, (128, 64, 64)), {}, 1e-3),
}


def follows(name: str, case: Case, builds: Path) -> None:
    make, given, tolerance = case
    program, arrays = make(), inputs(make())
    cuda = emit_hopper(program, Options(**given))
    built = hopper_host.build([cuda], builds)
    found = hopper_host.run(built, 0, cuda, {**arrays, **outputs(program)})
    want = dict(arrays)
    run_program([program], want)
    for buffer in outputs(program):
        agree(found[buffer], want[buffer], tolerance)


@needs_compiler
@pytest.mark.parametrize("name", QUICK)
def test_formed_operands_follow_the_interpreter(name: str, builds: Path) -> None:
    follows(name, QUICK[name], builds)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_formed_operands_follow_the_interpreter(name: str, builds: Path) -> None:
    follows(name, SLOW[name], builds)


@needs_compiler
@pytest.mark.slow
def test_a_norm_and_its_product_against_plain_numpy(builds: Path) -> None:
    program = normed(128, 72, 200, (128, 64, 64))
    arrays = inputs(program)
    cuda = emit_hopper(program)
    given = {**arrays, **outputs(program)}
    found = hopper_host.run(hopper_host.build([cuda], builds), 0, cuda, given)
    a, g, b = (arrays[n].astype(np.float64) for n in ("A", "G", "B0"))
    left = round_to(a * g, "bf16")
    want = left @ b.T / np.sqrt(np.mean(a * a, 1, keepdims=True) + 1e-5)
    agree(found["C"], want, 4e-3)


def test_elements_are_formed_while_the_products_before_them_fly() -> None:
    made = memory_program(normed(256, 128, 256, (128, 128, 64)))
    (stream,) = (o for o in operations(made.consumer) if isinstance(o, Stream))
    kinds = [type(o) for o in stream.body]
    assert kinds.index(Unpack) < kinds.index(WaitGroup) < kinds.index(Issue)
    assert CommitGroup not in kinds[: kinds.index(WaitGroup)]
    assert sum(isinstance(o, Unpack) for o in stream.body) == 1  # for the norm and for the product


def test_what_stays_is_formed_once_a_tile_where_it_lies() -> None:
    made = memory_program(normed_queries(inside=True, **SIZES))
    (stream,) = (o for o in operations(made.consumer) if isinstance(o, Stream))
    formed = [o for o in operations(made.consumer) if isinstance(o, Form)]
    assert len(formed) == 1
    assert not any(isinstance(o, (Form, Unpack)) for o in operations(stream.body))
    lefts = {
        o.left.map
        for o in operations(made.consumer)
        if isinstance(o, Issue) and isinstance(o.left, Box)
    }
    assert lefts == {formed[0].box.map}


BROKEN: dict[str, tuple[Callable[[Operation], bool], str]] = {
    "raw elements are not waited for": (lambda o: isinstance(o, WaitFull), "waited for"),
    "the slot may be read": (lambda o: isinstance(o, WaitEmpty), "may read it|is read|early"),
    "nothing is formed": (lambda o: isinstance(o, Convert), "is not formed"),
    "nobody hears of it": (lambda o: isinstance(o, Arrive), "deadlock"),
    "raw slots are kept": (lambda o: isinstance(o, Release), "deadlock"),
    "one slot is formed again and again": (
        lambda o: isinstance(o, Advance) and not o.ring.raw,
        "may read it|deadlock",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_formers_that_leave_a_step_out_are_found(name: str) -> None:
    left_out, said = BROKEN[name]
    made = memory_program(P.gemm(256, 128, 512, right="i8"))
    (tiles,) = made.former
    assert isinstance(tiles, Tiles)
    (stream,) = tiles.body
    assert isinstance(stream, Stream)
    body = tuple(o for o in stream.body if not left_out(o))
    broken = replace(made, former=(replace(tiles, body=(replace(stream, body=body),)),))
    assert len(body) == len(stream.body) - 1
    with pytest.raises(ScheduleError, match=said):
        simulate(broken)


def test_operands_of_which_nothing_comes_as_tiles_are_left_to_others() -> None:
    program = P.gemm(prologue=True)
    (loop, *rest) = program.body
    assert isinstance(loop, Loop)
    read = loop.body[0]
    assert isinstance(read, Read)
    odd = Buffer("A", (256, 257), "bf16")
    body = (Read(read.target, odd, read.coordinates), *loop.body[1:])
    changed = TileProgram("odd", program.tiles, program.grid, (Loop(loop.axis, body), *rest))
    assert isinstance(Load(odd, read.coordinates), Term)
    with pytest.raises(LoweringError, match="come as tiles"):
        emit_hopper(changed)
