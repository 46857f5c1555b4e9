"""What the cost model says of the warpgroup path, against its emitter: which programs it takes, in
which tiles, and what a block of them holds."""

from __future__ import annotations

import pytest

from nautile.codegen.lower import lower
from nautile.codegen.sm90 import options, shape, streams
from nautile.codegen.sm90.emit import memory_program
from nautile.codegen.sm90.memory import RoleProgram
from nautile.errors import LoweringError
from nautile.extract import hopper, hopper_tiles
from nautile.extract.body import analyse
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.extract.roofline import schedules

from .hopper_programs import Outputs, attention, beside, gelu, product, softcap
from .test_hopper import HOPPER, OPERANDS, contraction

NONE = Prediction(0.0, "dram", 0, 0, 0, 0, 0, 0, 0, 0)


def emitted(part: Part) -> RoleProgram:
    return memory_program(lower(Kernel("k", (part,), NONE), part))


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_are_priced_are_those_that_are_emitted(name: str) -> None:
    a, b, expected = OPERANDS[name]
    outputs = contraction(a, b)
    body = analyse(outputs)
    tiles = {axis: {"m": 128, "n": 128, "k": 64}[axis.family] for axis in body.axes}
    part = Part(outputs, tiles, body.reduced, "wgmma")
    if expected:
        emitted(part)
    else:
        with pytest.raises(LoweringError):
            emitted(part)


PROGRAMS: dict[str, Outputs] = {
    "product": product(4096, 4096, 4096),
    "odd": product(1000, 776, 520),
    "gelu": product(4096, 4096, 4096, epilogue=gelu),
    "gated": product(4096, 14336, 4096, gated=True),
    "beside": beside(4096, 4096, 4096, 16),
    "beside, odd": beside(1000, 776, 520, 72),
    "fp8": product(4096, 4096, 4096, "f8e4m3"),
    "tf32": product(4096, 4096, 4096, "tf32"),
    "attention": attention(4096, 128, heads=4, group=4),
    "causal": attention(4096, 128, heads=4, causal=True),
    "width 64": attention(1000, 64, batch=2, heads=2, causal=True, window=200),
    "width 72": attention(777, 72, score=softcap),
    "fp8 attention": attention(1000, 128, heads=2, dtype="f8e4m3"),
    "normed queries": attention(1000, 128, heads=2, causal=True, normed=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_that_are_priced_can_be_emitted(name: str) -> None:
    found = schedules(PROGRAMS[name], HOPPER, 1000, path="wgmma")
    assert len(found) > 4
    for part, _ in found[:: max(1, len(found) // 8)]:
        made = emitted(part)
        own = hopper.warpgroups(analyse(part.outputs))
        assert own is not None
        assert made.geometry.row == own.row
        assert made.shared_bytes <= HOPPER.shared_bytes


def test_registers_are_those_of_the_emitter() -> None:
    for consumers, most in hopper_tiles.REGISTERS.items():
        pair = options.CONSUMER_REGISTERS[consumers]
        assert most <= (pair[1] if pair else 255) - options.SPARE_REGISTERS
        own = options.FORMER_REGISTERS[consumers]
        least = 0 if own is None else hopper_tiles.FORMING
        assert most - least <= (own[1] if own else 255) - options.SPARE_REGISTERS
    assert hopper_tiles.LAUNCHED == options.LAUNCHED
    assert options.STAGING_BYTES * options.Options().buffers == hopper_tiles.STAGING
    assert hopper_tiles.TURNS[0] * hopper_tiles.TURNS[1] == shape.TURNS
    assert hopper_tiles.TURNS[0] * hopper_tiles.DIRECT == shape.DIRECT
    assert hopper.LONGEST_SUM == streams.LONGEST_SUM
    assert HOPPER.shared_bytes == options.SHARED_LIMIT


@pytest.mark.parametrize("rows", [2, 16, 24, 100])
def test_few_rows_are_columns_of_the_transposed_product(rows: int) -> None:
    outputs = product(rows, 4096, 1024)
    body = analyse(outputs)
    own = hopper.swapped(body)
    assert own is not None
    m, n = outputs[0].axes
    assert (own.row, set(own.columns.values())) == (n, {m})
    found = [p for p, _ in schedules(outputs, HOPPER, 1000, path="wgmma") if p.tiles[m] % 64]
    assert found
    for part in found[:: max(1, len(found) // 4)]:
        made = emitted(part)
        assert made.geometry.row == n
        assert made.shared_bytes <= HOPPER.shared_bytes


def test_rows_that_fill_tiles_are_not_swapped() -> None:
    assert hopper.swapped(analyse(product(1000, 4096, 1024))) is None
    assert hopper.swapped(analyse(attention(4096, 128))) is None
