"""The roofline's counts against enumeration, and its limits."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from nautile.errors import InputError
from nautile.extract.body import analyse
from nautile.extract.device import device, device_names
from nautile.extract.footprint import elements
from nautile.extract.masks import alive, conjuncts, pass_mask
from nautile.extract.roofline import schedules
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Running,
    Term,
    apply,
    reduce_,
)

H, R, J, K = (Axis(n, 0, e) for n, e in (("h", 8), ("r", 64), ("j", 96), ("k", 128)))
H200 = device("h200")


def at(*axes: Axis) -> tuple[Term, ...]:
    return tuple(Index(a) for a in axes)


def matmul(dtype: str = "bf16", m: int = 1024, n: int = 1024, k: int = 1024) -> Output:
    rows, columns, depth = Axis("m", 0, m), Axis("n", 0, n), Axis("q", 0, k)
    a = Load(Buffer("A", (m, k), dtype), at(rows, depth))
    b = Load(Buffer("B", (k, n), dtype), at(depth, columns))
    term = reduce_("sum", depth, apply("mul", a, b))
    return Output(Buffer("C", (m, n), dtype), (rows, columns), term)


def softmax(rows: int, columns: int) -> Output:
    n, c = Axis("n", 0, rows), Axis("c", 0, columns)
    x = Load(Buffer("X", (rows, columns), "bf16"), at(n, c))
    e = apply("exp", apply("sub", x, reduce_("max", c, x)))
    y = apply("div", e, reduce_("sum", c, e))
    return Output(Buffer("Y", (rows, columns), "bf16"), (n, c), y)


COORDINATES: list[tuple[Term, int]] = [
    (Index(R), 64),
    (apply("floordiv", Index(H), Const(4)), 2),
    (apply("add", apply("mul", Index(H), Const(64)), Index(R)), 512),
    (apply("mod", apply("add", Index(K), Const(64)), Const(128)), 128),
    (apply("sub", Index(K), Index(J)), 128),
]


@pytest.mark.parametrize(("coordinate", "extent"), COORDINATES, ids=str)
def test_a_block_touches_the_elements_that_enumeration_finds(coordinate: Term, extent: int) -> None:
    load = Load(Buffer("X", (extent,), "f32"), (coordinate,))
    one = np.ones(1)
    for tile in (1, 4, 8):
        size = {a: np.array([float(tile)]) for a in load.free}
        spans = [range(tile) for _ in load.free]
        axes = sorted(load.free)
        seen = {
            _value(coordinate, dict(zip(axes, p, strict=True))) for p in itertools.product(*spans)
        }
        assert float(elements(load, size, one)[0]) == min(len(seen), extent)


def _value(term: Term, point: dict[Axis, int]) -> int:
    if isinstance(term, Index):
        return point[term.axis]
    if isinstance(term, Const):
        return int(term.value)
    assert isinstance(term, Apply)
    a, b = (_value(t, point) for t in term.arguments)
    table = {"add": a + b, "sub": a - b, "mul": a * b}
    if term.operation in table:
        return table[term.operation]
    return a // b if term.operation == "floordiv" else a % b


@pytest.mark.parametrize("seed", range(12))
def test_live_blocks_are_those_in_which_some_position_passes(seed: int) -> None:
    pick = random.Random(seed)
    t, s = Axis("t", 0, pick.choice([60, 64])), Axis("s", 0, pick.choice([64, 90]))
    width = pick.randint(1, 40)
    inside = apply("le", Index(s), Index(t))
    window = apply("lt", apply("sub", Index(t), Index(s)), Const(width))
    condition = pick.choice([inside, window, apply("and", inside, window)])
    tiles = {t: pick.choice([8, 16]), s: pick.choice([8, 16, 32])}
    share = alive(conjuncts(condition), tiles, s)
    live = blocks = 0
    for i in range(0, t.extent, tiles[t]):
        for j in range(0, s.extent, tiles[s]):
            blocks += 1
            each = [
                all(_holds(c, {t: a, s: b}) for c in conjuncts(condition))
                for a in range(i, min(i + tiles[t], t.extent))
                for b in range(j, min(j + tiles[s], s.extent))
            ]
            parts = [
                any(
                    _holds(c, {t: a, s: b})
                    for a in range(i, min(i + tiles[t], t.extent))
                    for b in range(j, min(j + tiles[s], s.extent))
                )
                for c in conjuncts(condition)
            ]
            assert not any(each) or all(parts)
            live += all(parts)
    assert share == live / blocks


def _holds(conjunct: tuple, point: dict[Axis, int]) -> bool:  # type: ignore[type-arg]
    form, constant = conjunct
    return bool(sum(c * point[a] for a, c in form) + constant <= 0)


def test_masks_are_found_through_an_online_softmax() -> None:
    t, s = Axis("t", 0, 64), Axis("s", 0, 64)
    x = Load(Buffer("X", (64, 64), "f32"), at(t, s))
    masked = apply("where", apply("le", Index(s), Index(t)), x, Const(-math.inf))
    m = reduce_("max", s, masked)
    repair = apply("exp", apply("sub", Before(m), Running(m)))
    total = Online(s, repair, apply("exp", apply("sub", masked, Running(m))))
    assert len(pass_mask([m, total])) == 1
    assert pass_mask([m, total, reduce_("sum", s, x)]) == frozenset()


def test_an_online_sum_shares_its_carriers_pass() -> None:
    n, c = Axis("n", 0, 64), Axis("c", 0, 4096)
    x = Load(Buffer("X", (64, 4096), "f32"), at(n, c))
    m = reduce_("max", c, x)
    repair = apply("exp", apply("sub", Before(m), Running(m)))
    online = Online(c, repair, apply("exp", apply("sub", x, Running(m))))
    plain = reduce_("sum", c, apply("exp", apply("sub", x, m)))
    out = Buffer("Y", (64,), "f32")
    assert set(analyse((Output(out, (n,), online),)).passes) == {(c, 0)}
    assert set(analyse((Output(out, (n,), plain),)).passes) == {(c, 0), (c, 1)}


def test_a_contraction_is_found_however_its_product_is_written() -> None:
    a = Load(Buffer("A", (64, 128), "bf16"), at(R, K))
    b = Load(Buffer("B", (96, 128), "bf16"), at(J, K))
    g = Load(Buffer("g", (128,), "bf16"), at(K))
    r = Load(Buffer("r", (64,), "f32"), at(R))
    for body in (
        apply("mul", apply("mul", apply("mul", a, r), g), b),
        apply("mul", apply("mul", a, apply("mul", b, g)), r),
        apply("mul", apply("mul", a, b), apply("mul", g, r)),
    ):
        term = reduce_("sum", K, body)
        found = analyse((Output(Buffer("C", (64, 96), "f32"), (R, J), term),)).contractions
        (one,) = found.values()
        assert one.rows | one.columns == {R, J}
        assert one.operand == "bf16"
    row = reduce_("sum", K, apply("mul", a, g))
    assert not analyse((Output(Buffer("y", (64,), "f32"), (R,), row),)).contractions


@pytest.mark.parametrize(
    ("dtype", "numerics", "operand"),
    [
        ("bf16", "real", "bf16"),
        ("f16", "exact", "f16"),
        ("f32", "real", "f32"),
        ("f32", "exact", ""),
    ],
)
def test_integers_of_a_byte_are_operands_beside_floats(
    dtype: str, numerics: str, operand: str
) -> None:
    a = Load(Buffer("A", (64, 128), dtype), at(R, K))
    w = Load(Buffer("W", (96, 128), "i8"), at(J, K))
    term = reduce_("sum", K, apply("mul", a, w))
    output = Output(Buffer("C", (64, 96), "f32"), (R, J), term)
    (one,) = analyse((output,), numerics=numerics).contractions.values()
    assert one.operand == operand


def test_matmul_counts_its_flops_and_reads_at_least_its_operands() -> None:
    for part, prediction in schedules((matmul(),), H200):
        assert prediction.tensor_flops == 2 * 1024**3
        assert prediction.reads_bytes >= 2 * 2 * 1024 * 1024
        assert prediction.shared_bytes <= H200.shared_bytes
        assert set(part.streams) <= set(part.tiles)


def test_f32_operands_run_on_fma_where_nothing_may_round() -> None:
    _, prediction = schedules((matmul("f32"),), H200, 1, numerics="exact")[0]
    assert prediction.tensor_flops == 0
    assert prediction.vector_flops >= 2 * 1024**3


def test_f32_operands_take_at_least_three_products_of_tf32() -> None:
    _, split = schedules((matmul("f32"),), H200, 1)[0]
    assert split.tensor_flops == 2 * 1024**3
    assert split.shares["tensor"] >= 3 * 2 * 1024**3 / H200.tensor_rate("tf32")


@pytest.mark.parametrize(("rows", "columns"), [(4096, 1024), (4096, 16384), (512, 32768)])
def test_rows_that_fit_a_block_are_read_once(rows: int, columns: int) -> None:
    part, prediction = schedules((softmax(rows, columns),), H200, 1)[0]
    assert prediction.reads_bytes == prediction.writes_bytes == 2 * rows * columns
    assert part.streams == ()


@pytest.mark.parametrize(("target", "columns"), [("a100", 131072), ("h200", 524288)])
def test_rows_that_do_not_fit_are_read_once_a_pass(target: str, columns: int) -> None:
    part, prediction = schedules((softmax(4096, columns),), device(target), 1)[0]
    assert [a.family for a in part.streams] == ["c"]
    assert prediction.reads_bytes == 3 * 2 * 4096 * columns


@pytest.mark.parametrize("columns", [65536, 131072])
def test_rows_that_the_blocks_of_a_cluster_keep_are_read_once(columns: int) -> None:
    part, prediction = schedules((softmax(4096, columns),), H200, 1)[0]
    assert [a.family for a in part.streams] == ["c"]
    assert prediction.reads_bytes == 2 * 4096 * columns


def centred(shape: tuple[int, ...], factors: int, dtype: str = "bf16") -> Output:
    """x less its mean over all axes but the first, times factors that all of these share."""
    rows, *columns = (Axis(f"a{n}", 0, e) for n, e in enumerate(shape))
    x = Load(Buffer("x", shape, dtype), (Index(rows), *map(Index, columns)))
    total: Term = x
    for axis in reversed(columns):
        total = reduce_("sum", axis, total)
    mean = apply("div", total, Const(float(math.prod(shape[1:]))))
    value = apply("sub", x, mean)
    for n in range(factors):
        buffer = Buffer(f"f{n}", shape[1:], dtype)
        value = apply("mul", value, Load(buffer, tuple(map(Index, columns))))
    return Output(Buffer("y", shape, dtype), (rows, *columns), value)


@pytest.mark.parametrize(
    ("shape", "factors", "dtype", "reads"),
    [
        ((4096, 65536), 2, "f32", 1),
        ((4096, 65536), 3, "f32", 2),
        ((512, 16, 4096), 0, "bf16", 1),
        ((512, 128, 4096), 0, "bf16", 2),
    ],
)
def test_rows_of_a_cluster_may_have_factors_and_axes(
    shape: tuple[int, ...], factors: int, dtype: str, reads: int
) -> None:
    _, prediction = schedules((centred(shape, factors, dtype),), H200, 1)[0]
    size = math.prod(shape) * (4 if dtype == "f32" else 2)
    assert prediction.reads_bytes // size == reads


def test_schedules_are_ranked_and_differ() -> None:
    found = schedules((matmul(),), H200, 8)
    seconds = [p.seconds for _, p in found]
    assert len(found) == 8
    assert seconds == sorted(seconds)
    assert len({tuple(sorted(p.tiles.items())) for p, _ in found}) == 8


def test_large_matmul_takes_the_devices_tensor_rate() -> None:
    _, prediction = schedules((matmul("bf16", 8192, 8192, 8192),), H200, 1)[0]
    rate = prediction.tensor_flops / prediction.seconds
    assert 0.7 * H200.tensor_rate("bf16") < rate <= H200.tensor_rate("bf16")


@pytest.mark.parametrize("name", device_names())
def test_every_profile_prices_a_matmul(name: str) -> None:
    profile = device(name)
    assert profile.name == name
    best = schedules((matmul(),), profile, 1)
    assert best[0][1].seconds > 2 * 1024**3 / profile.tensor_rate("bf16")


def test_an_unknown_device_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        device("h2000")
    assert caught.value.code == "unknown-device"
    assert "h200" in caught.value.message
