"""What a result is computed with at each position comes into registers before its products."""

from __future__ import annotations

import programs as P
import pytest

from nautile.codegen.sm90.ahead import with_ahead
from nautile.codegen.sm90.emit import emit_hopper, memory_program
from nautile.codegen.sm90.memory import Ahead, RoleProgram, Stream, Tiles, operations
from nautile.codegen.sm90.options import Options
from nautile.codegen.tile import TileProgram


def early(made: RoleProgram) -> list[Ahead]:
    return [op for op in operations(made.consumer) if isinstance(op, Ahead)]


@pytest.mark.parametrize("tile", [(128, 128, 64), (128, 256, 64), (256, 128, 64)])
def test_a_residual_is_read_before_the_loop(tile: tuple[int, int, int]) -> None:
    made = memory_program(P.gemm(512, 512, 256, tile, bias=True, residual=True))
    (tiles,) = (op for op in made.consumer if isinstance(op, Tiles))
    kinds = [type(op) for op in tiles.body]
    assert [op.load.buffer.name for op in early(made)] == ["X"]
    assert kinds.index(Ahead) < kinds.index(Stream)


@pytest.mark.parametrize(
    "program",
    [
        P.gemm(512, 512, 256, bias=True),
        P.gemm(512, 512, 256, residual=True, out_axes="nm"),
        P.attention(256, 256, 64, heads=2),
    ],
)
def test_nothing_else_is(program: TileProgram) -> None:
    assert not early(memory_program(program))


def test_registers_are_needed_for_it() -> None:
    made = memory_program(P.gemm(512, 512, 256, (128, 256, 64), residual=True))
    bare = tuple(
        Tiles(op.order, tuple(o for o in op.body if not isinstance(o, Ahead)), op.carrier)
        if isinstance(op, Tiles)
        else op
        for op in made.consumer
    )
    assert with_ahead(bare, made.geometry, 64) == made.consumer
    assert with_ahead(bare, made.geometry, 63) == bare


def test_a_dynamic_order_reads_at_the_end() -> None:
    options = Options(dynamic=True, alternate=False)
    assert not early(memory_program(P.gemm(512, 512, 256, residual=True), options))


def test_the_results_use_the_words() -> None:
    text = emit_hopper(P.gemm(512, 512, 256, (128, 256, 64), residual=True)).text
    assert "nt_hold(w0[i][c]);" in text
    assert text.count("nt_exchange(w0[i]);") == 1
    assert text.count("w0[(j >> 2) * 2 + e][j & 3]") == 1
