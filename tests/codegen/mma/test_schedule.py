"""Structure, memory programs and their validator, limits, and what the compiler says."""

from __future__ import annotations

from dataclasses import replace

import programs as P
import pytest

from nautile.codegen.compile import compile_kernel
from nautile.codegen.memory import (
    Barrier,
    Clear,
    Commit,
    Fetch,
    Layout,
    MemoryProgram,
    Multiply,
    Operation,
    Role,
    Stream,
    Wait,
    operations,
)
from nautile.codegen.schedule.factor import factor
from nautile.codegen.schedule.text import show_memory
from nautile.codegen.schedule.validate import ScheduleError, validate
from nautile.codegen.sm80.emit import applies, emit_mma, emit_variants, memory_program
from nautile.codegen.sm80.limits import (
    LARGE_SHARED,
    Options,
    chain_warps,
    contraction_warps,
    feasible,
)
from nautile.codegen.tile import Fold, Loop, Map, Mma, Read, Ref, Tile, TileProgram, Write
from nautile.errors import LoweringError
from nautile.terms import Axis, Buffer, Const, Index, Term, apply


def changed(
    program: MemoryProgram, drop: type, *, inside: bool = True, nth: int = 0
) -> MemoryProgram:
    """The program without the nth operation of a type, in the stream's body or before it."""

    def without(body: tuple[Operation, ...]) -> tuple[Operation, ...]:
        places = [i for i, op in enumerate(body) if isinstance(op, drop)]
        return tuple(op for i, op in enumerate(body) if i != places[nth])

    body = tuple(
        replace(
            op, **{("body" if inside else "prologue"): without(op.body if inside else op.prologue)}
        )
        if isinstance(op, Stream)
        else op
        for op in program.roles[0].operations
    )
    return replace(program, roles=(Role("all", body),))


GEMM = P.gemm(64, 64, 256, (64, 64, 64))
CHAIN = P.attention(64, 128, 64, tile=(64, 64), heads=1)
COMPUTED = P.gemm(64, 64, 256, (64, 64, 64), prologue=True)


@pytest.mark.parametrize("program", [GEMM, CHAIN, COMPUTED], ids=["gemm", "chain", "computed"])
def test_planned_schedules_are_valid(program: TileProgram) -> None:
    validate(memory_program(program))


@pytest.mark.parametrize("program", [GEMM, CHAIN, COMPUTED], ids=["gemm", "chain", "computed"])
@pytest.mark.parametrize("dropped", [Wait, Barrier, Fetch])
def test_a_schedule_without_one_operation_is_refused(program: TileProgram, dropped: type) -> None:
    with pytest.raises(ScheduleError):
        validate(changed(memory_program(program), dropped))


def test_a_missing_commit_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"flying|empty"):
        validate(changed(memory_program(GEMM), Commit))


def test_a_missing_first_block_is_refused() -> None:
    with pytest.raises(ScheduleError, match="empty"):
        validate(changed(memory_program(GEMM), Fetch, inside=False))


def test_filling_a_slot_too_early_is_refused() -> None:
    program = memory_program(GEMM)

    def early(op: Operation) -> Operation:
        if not isinstance(op, Stream):
            return op
        body = [o for o in op.body if not isinstance(o, (Fetch, Barrier))]
        fetch = next(o for o in op.body if isinstance(o, Fetch))
        return replace(op, body=(body[0], fetch, Barrier(), *body[1:]))

    role = Role("all", tuple(early(op) for op in program.roles[0].operations))
    with pytest.raises(ScheduleError, match="may be read"):
        validate(replace(program, roles=(role,)))


def test_an_accumulator_that_nothing_clears_is_refused() -> None:
    program = memory_program(GEMM)
    body = tuple(op for op in program.roles[0].operations if not isinstance(op, Clear))
    with pytest.raises(ScheduleError, match="before it is computed"):
        validate(replace(program, roles=(Role("all", body),)))


def test_staging_over_live_tiles_is_refused() -> None:
    program = memory_program(GEMM)
    body = tuple(op for op in program.roles[0].operations if not isinstance(op, (Wait, Barrier)))
    with pytest.raises(ScheduleError, match="staged"):
        validate(replace(program, roles=(Role("all", body),)))


def test_memory_that_is_too_small_is_refused() -> None:
    with pytest.raises(ScheduleError, match="exceed"):
        validate(replace(memory_program(GEMM), shared_bytes=1024))


def test_overlapping_tiles_are_refused() -> None:
    program = memory_program(GEMM)
    ring = program.rings[0]
    tiles = (ring.tiles[0], replace(ring.tiles[1], offset=ring.tiles[0].offset))
    with pytest.raises(ScheduleError, match="overlaps"):
        validate(replace(program, rings=(replace(ring, tiles=tiles),)))


@pytest.mark.parametrize("row_bytes", [32, 64, 96, 128, 192, 256, 512])
def test_layouts_spread_eight_rows_over_all_banks(row_bytes: int) -> None:
    layout = Layout.of(row_bytes)
    for byte in range(0, row_bytes, 16):
        for first in (0, 8):
            banks = {layout.address(first + r, byte) % 128 // 16 for r in range(8)}
            assert len(banks) == 8
    places = {layout.address(r, b) for r in range(16) for b in range(0, row_bytes, 16)}
    assert len(places) == row_bytes  # 16 rows of row_bytes / 16 chunks


def test_the_printed_program_names_its_operations() -> None:
    text = show_memory(memory_program(CHAIN))
    for part in ("ring r1: 2 x", "rescale o by r", "pack p_bf16", "settle l by sum", "staged"):
        assert part in text


def test_a_positive_factor_leaves_the_maximum() -> None:
    program = factor(P.attention(mask=P.causal, d=64))
    loop = next(s for s in program.body if isinstance(s, Loop))
    maps = {s.target.name: s.value for s in loop.body if isinstance(s, Map)}
    assert maps["x"] is Ref(Tile("s", next(s for s in loop.body if isinstance(s, Mma)).target.axes))
    text = emit_mma(P.attention(mask=P.causal, d=64)).text
    assert "* 0.18033688f" in text  # 64 ** -0.5 * log2(e), one multiply-add before exp2


def test_a_negative_factor_stays() -> None:
    negative = P.attention(score=lambda s, q, t, h: P.mul(s, -1.0))
    assert factor(negative) is negative


def test_contractions_that_share_a_left_operand_are_one_operation() -> None:
    multiplies = [
        op
        for op in operations(memory_program(P.gated()).roles[0].operations)
        if isinstance(op, Multiply)
    ]
    assert [len(m.pairs) for m in multiplies] == [2]


def test_a_deep_tile_is_cut_to_steps() -> None:
    stream = next(
        op
        for op in memory_program(P.gemm(64, 64, 512, (64, 64, 256))).roles[0].operations
        if isinstance(op, Stream)
    )
    assert stream.tiles == (64,)


M, N, K, J = (Axis(name, 0, 64) for name in "mnkj")


def read(name: str, *axes: Axis, dtype: str = "bf16") -> tuple[Read, Tile]:
    tile = Tile(name.lower(), axes, dtype)
    shape = tuple(a.extent for a in axes)
    return Read(tile, Buffer(name, shape, dtype), tuple(Index(a) for a in axes)), tile


def simple(operand: str = "bf16", fold: str = "", tiles: int = 64) -> TileProgram:
    read_a, a = read("A", M, K)
    read_b, b = read("B", N, K)
    acc = Tile("acc", (M, N))
    body: list[object] = [Loop(K, (read_a, read_b, Mma(acc, a, b, (K,), operand)))]
    if fold:
        axis = {"columns": N, "rows": M}[fold]
        target = Tile("f", tuple(x for x in (M, N) if x != axis))
        body += [Fold(target, "max", axis, acc)]
        body += [Write(Buffer("F", (64,), "f32"), tuple(Index(x) for x in target.axes), target)]
    out = Buffer("C", (64, 64), "bf16")
    body.append(Write(out, (Index(M), Index(N)), acc))
    return TileProgram("simple", {M: tiles, N: 64, K: 32}, (M, N), tuple(body))  # type: ignore[arg-type]


def test_what_applies_follows_from_structure() -> None:
    assert applies(simple())
    assert applies(simple(fold="columns"))
    assert applies(simple(fold="rows"))  # the columns and rows change places
    assert not applies(simple("f32"))
    assert not applies(simple("i32"))
    assert not applies(simple(tiles=24))


def test_programs_without_contractions_do_not_apply() -> None:
    read_a, a = read("A", M, K)
    out = Buffer("C", (64, 64), "bf16")
    program = TileProgram(
        "copy", {M: 32, K: 32}, (M, K), (read_a, Write(out, (Index(M), Index(K)), a))
    )
    with pytest.raises(LoweringError, match="no contraction"):
        emit_mma(program)


def test_folds_along_both_axes_do_not_apply() -> None:
    program = simple(fold="columns")
    acc = Tile("acc", (M, N))
    other = Fold(Tile("g", (N,)), "max", M, acc)
    assert not applies(replace(program, body=(*program.body, other)))


def test_names_are_never_trusted() -> None:
    """Names that C++ or the generator uses change nothing but comments and prefixes."""
    hostile = Axis("int; }", 0, 64)
    read_a, a = read("float", M, hostile)
    read_b, b = read("threadIdx", N, hostile)
    acc = Tile('"*/ tid', (M, N))
    body = (
        Loop(hostile, (read_a, read_b, Mma(acc, a, b, (hostile,), "bf16"))),
        Write(Buffer("shared", (64, 64), "bf16"), (Index(M), Index(N)), acc),
    )
    program = TileProgram("while\n#error", {M: 64, N: 64, hostile: 32}, (M, N), body)
    compile_kernel(emit_mma(program), "sm_80", cache=None)


def test_large_buffers_are_addressed_in_64_bits() -> None:
    text = emit_mma(P.gemm(65536, 128, 65536, (128, 128, 64))).text
    assert "nt_i64 s_r0_a" in text
    assert "nt_i64 s_r0_b" not in text


def test_limits_agree_with_what_is_emitted() -> None:
    for rows, columns in ((128, 128), (128, 256), (256, 128), (64, 64), (256, 256), (512, 128)):
        program = P.gemm(1024, 1024, 256, (rows, columns, 64))
        wanted = feasible(rows, [columns], 64, "bf16", shared_limit=101376)
        assert applies(program) == wanted, (rows, columns)
    for rows, keys, d in ((128, 64, 128), (128, 128, 128), (64, 64, 256), (128, 256, 256)):
        program = P.attention(1024, 1024, d, tile=(rows, keys))
        slots = 2 * keys * d * 2
        wanted = feasible(
            rows, [keys, d], keys, "bf16", chain=True, packed=[keys], stay_bytes=rows * d * 2,
            slot_bytes=slots, shared_limit=LARGE_SHARED,
        )  # fmt: skip
        found = True
        try:
            emit_mma(program, Options(shared_limit=LARGE_SHARED))
        except LoweringError:
            found = False
        assert found == wanted, (rows, keys, d)


def test_warps_of_usual_tiles() -> None:
    assert contraction_warps(128, [128]) == (2, 2)
    assert contraction_warps(128, [256]) == (2, 4)
    assert contraction_warps(256, [256]) is None
    assert chain_warps(128, [64, 128], [64]) == 4
    assert chain_warps(128, [128, 128], [128]) == 8


def test_variants_are_different_schedules_of_one_program() -> None:
    made = list(emit_variants(CHAIN))
    assert len({k.text for k in made}) == len(made) >= 2
    assert len({k.name for k in made}) == 1


def slope(s: Term, q: Term, t: Term, h: Term) -> Term:
    return P.add(P.mul(s, 0.088), P.mul(apply("sub", t, q), apply("exp2", P.mul(h, -0.5))))


SHIPPED = {
    "gemm": P.gemm(4096, 4096, 4096),
    "epilogue": P.gemm(4096, 4096, 4096, bias=True, epilogue=P.gelu),
    "gated": P.gated(4096, 4096, 4096, (128, 128, 64)),
    "causal": P.attention(4096, 4096, 128, heads=32, group=4, tile=(128, 64), mask=P.causal),
    "softcap": P.attention(
        4096,
        4096,
        128,
        heads=8,
        tile=(128, 64),
        mask=P.window(1024),
        window_size=1024,
        score=lambda s, q, t, h: P.mul(apply("tanh", P.mul(s, Const(0.003))), 30.0),
    ),
    "slope": P.attention(4096, 4096, 128, heads=8, tile=(128, 64), mask=P.causal, score=slope),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_compile_without_spills(name: str) -> None:
    kernel = emit_mma(SHIPPED[name])
    architectures = ("sm_80", "sm_90", "sm_120") if name in ("gemm", "causal") else ("sm_90",)
    for architecture in architectures:
        report = compile_kernel(kernel, architecture, cache=None).report
        assert report.spill_stores == report.spill_loads == 0
        assert not report.warnings
