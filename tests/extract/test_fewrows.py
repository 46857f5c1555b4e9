"""Chains of few rows: what is reached of the memory, and which counts of chunks are chosen."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import memory_program
from nautile.extract.chunks import best_split, divided
from nautile.extract.device import device
from nautile.extract.fewrows import READING, streaming
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.extract.roofline import price
from nautile.extract.split import Outputs, Split, launches
from nautile.terms import (
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
    apply,
    walk,
)

H200 = device("h200")
KIB = 1024


def reached(blocks: float, slot: float, steps: float = 64) -> float:
    one = np.ones(1)
    return float(streaming(H200, one * blocks, one * slot, one * 4 * KIB, one * steps).reach[0])


def test_two_slots_under_way_in_every_multiprocessor_saturate_the_memory() -> None:
    need = H200.memory_bandwidth * 1.1e-6  # Little's law
    assert 0.99 < reached(4 * H200.sms, 16 * KIB) / READING < 1
    lone = reached(8, 16 * KIB) / READING
    assert lone == pytest.approx(8 * 2 * 16 * KIB / need, rel=1e-3)  # of three slots, two fly
    assert reached(16, 16 * KIB) / READING == pytest.approx(2 * lone, rel=1e-3)


def test_a_last_round_of_a_few_blocks_leaves_the_memory_idle() -> None:
    full = 4 * H200.sms
    assert reached(full + 8, 16 * KIB) < 0.9 * READING < reached(2 * full, 16 * KIB)


def attention(batch: int, heads: int, group: int, queries: int, keys: int, width: int) -> Outputs:
    b, h, t = Axis("b", 0, batch), Axis("h", 0, heads), Axis("t", 0, queries)
    s, d, e = Axis("s", 0, keys), Axis("d", 0, width), Axis("e", 0, width)
    own = Index(h) if group == 1 else apply("floordiv", Index(h), Const(group))
    shape = (batch, heads // group, keys, width)
    q = Load(
        Buffer("q", (batch, heads, queries, width), "bf16"),
        (Index(b), Index(h), Index(t), Index(d)),
    )
    k = Load(Buffer("k", shape, "bf16"), (Index(b), own, Index(s), Index(d)))
    v = Load(Buffer("v", shape, "bf16"), (Index(b), own, Index(s), Index(e)))
    x = apply("mul", Reduce("sum", d, apply("mul", q, k)), Const(width**-0.5))
    m = Reduce("max", s, x)
    weight = apply("exp", apply("sub", x, Running(m)))
    repair = apply("exp", apply("sub", Before(m), Running(m)))
    top = Online(s, repair, apply("mul", weight, v))
    buffer = Buffer("o", (batch, heads, queries, width), "bf16")
    return (Output(buffer, (b, h, t, e), apply("div", top, Online(s, repair, weight))),)


DECODE = {
    "one batch": (1, 32, 4, 1, 32768, 128),
    "long": (1, 32, 4, 1, 131072, 128),
    "batches": (4, 32, 4, 1, 32768, 128),
    "a head each": (1, 32, 1, 1, 32768, 128),
    "a block for nearly every multiprocessor": (4, 32, 1, 1, 32768, 128),
    "narrow": (2, 16, 8, 1, 32768, 64),
    "few queries": (1, 32, 4, 4, 32768, 128),
}


@pytest.mark.parametrize("name", DECODE)
def test_decoding_is_split_until_the_memory_is_busy(name: str) -> None:
    outputs = attention(*DECODE[name])
    found = best_split(outputs, price(outputs, H200))
    assert found is not None
    part, prediction = found.schedules[0]
    assert prediction.bound in ("dram", "tensor")
    assert prediction.blocks >= H200.sms
    once = sum(b.size * 2 for b in {x.buffer for o in outputs for x in _loads(o)})
    ideal = once / (READING * H200.memory_bandwidth)
    assert ideal < found.seconds < 1.2 * ideal + 9e-6  # two launches, and some seconds to begin
    place = next(a for a in part.tiles if a.family == "s")
    longer = (divided(outputs, Split(_whole(outputs), n * place.extent), H200) for n in (2, 4))
    assert all(o is None or o.seconds > 0.97 * found.seconds for o in longer)


def _names() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"state{next(numbers)}"


def _whole(outputs: Outputs) -> Axis:
    return next(a for a in price(outputs, H200).body.reduced if a.family == "s")


def _loads(output: Output) -> list[Load]:
    return [t for t in walk(output.term) if isinstance(t, Load)]


@pytest.mark.parametrize("shape", [(1, 32, 4, 4096, 4096, 128), (8, 32, 1, 1024, 1024, 64)])
def test_prefill_is_not_split(shape: tuple[int, int, int, int, int, int]) -> None:
    outputs = attention(*shape)
    assert best_split(outputs, price(outputs, H200)) is None


def test_what_is_priced_is_what_is_emitted() -> None:
    """One warp a block, and as many blocks beside each other as the price took."""
    outputs = attention(*DECODE["one batch"])
    found = best_split(outputs, price(outputs, H200))
    assert found is not None
    part, prediction = found.schedules[0]
    kernel = Kernel("k", (Part(part.outputs, part.tiles, part.streams),), _NONE)
    memory = memory_program(lower(kernel, kernel.parts[0]))
    assert memory.geometry.threads == 32
    stay = sum(r.slot_bytes for r in memory.rings if r.stages == 1)
    slot = sum(r.slot_bytes for r in memory.rings if r.stages > 1)
    assert prediction.shared_bytes == stay + 2 * slot
    assert memory.shared_bytes <= max(57344, stay + 2 * slot)


_NONE = Prediction(0.0, "dram", 0, 0, 0, 0, 0, 0, 0, 0)


SHAPES = {
    "a row": (4, 32, 1, 1, 32768, 128),
    "grouped": (1, 32, 4, 1, 32768, 128),
    "odd width": (2, 12, 3, 1, 8192, 72),
    "wide": (2, 16, 8, 1, 8192, 256),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [1, 16])
def test_every_tiling_that_is_priced_can_be_emitted(name: str, count: int) -> None:
    """None falls back to the emitter that has no tensor cores, which is many times slower."""
    outputs = attention(*SHAPES[name])
    axis = _whole(outputs)
    split = Split(axis, axis.extent // count)
    states = outputs if count == 1 else launches(outputs, split, _names())[0]
    ranked = price(states, H200).ranked(4000)
    assert len(ranked) > 8
    for part, _ in ranked[:: max(1, len(ranked) // 24)]:
        memory_program(lower(Kernel("k", (part,), _NONE), part))
