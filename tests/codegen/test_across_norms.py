"""A norm before a contraction, its rows in shared memory: statistics are folded from the left
operand's elements, which are then normalised where they lie. Generated kernels run on the CPU
against NumPy in float64."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).parent / "mma"))

import emulate

from nautile.codegen.compile import compile_kernel
from nautile.codegen.memory import Barrier, FoldDepth, Form, Multiply, Stream, operations
from nautile.codegen.schedule.validate import ScheduleError, validate
from nautile.codegen.sm80.emit import CAPACITY, emit_mma, memory_program
from nautile.codegen.sm80.limits import PORTABLE_SHARED
from nautile.codegen.tile import (
    Fold,
    Map,
    Mma,
    Read,
    Ref,
    Tile,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.dtypes import storage
from nautile.errors import LoweringError
from nautile.terms import Axis, Buffer, Const, Index, Term, apply

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("norms")


def normed(
    sizes: tuple[int, int, int],
    tile: tuple[int, int],
    kind: str = "layer",
    stored: str = "bf16",
    operand: str = "bf16",
    *,
    residual: bool = False,
    twice: bool = False,
) -> TileProgram:
    """y[n, o] = sum[c](((x - m) * r * g + b) * W), of rows that are resident; kind "rms" has no
    mean, "max" scales by the largest magnitude. `twice` also contracts (x - m)."""
    n, o, c = (Axis(name, 0, size) for name, size in zip("noc", sizes, strict=True))
    body: list[Any] = []

    def read(name: str, axes: tuple[Axis, ...], dtype: str) -> Term:
        target = Tile(name, axes, dtype)
        buffer = Buffer(name, tuple(a.extent for a in axes), dtype)
        body.append(Read(target, buffer, tuple(Index(a) for a in axes)))
        return Ref(target)

    def made(name: str, axes: tuple[Axis, ...], value: Term) -> Term:
        target = Tile(name, axes)
        body.append(Map(target, value))
        return Ref(target)

    def folded(name: str, monoid: str, source: Term) -> Term:
        assert isinstance(source, Ref)
        target = Tile(name, (n,))
        body.append(Fold(target, monoid, c, source.tile))
        return Ref(target)

    size = Const(float(sizes[2]))
    x = read("x", (n, c), stored)
    if residual:
        x = made("xz", (n, c), apply("add", x, read("z", (n, c), stored)))
    if kind == "max":
        top = folded("top", "max", made("size", (n, c), apply("abs", x)))
        scaled = made("scaled", (n, c), apply("div", x, top))
    else:
        if kind == "layer":
            m = made("m", (n,), apply("div", folded("total", "sum", x), size))
            x = made("moved", (n, c), apply("sub", x, m))
        v = folded("squares", "sum", made("square", (n, c), apply("mul", x, x)))
        inner = apply("add", apply("div", v, size), Const(1e-5))
        r = made("r", (n,), apply("rsqrt", inner))
        scaled = apply("mul", apply("mul", x, r), read("g", (c,), "f32"))
        scaled = made("h", (n, c), apply("add", scaled, read("b", (c,), "f32")))
    w = read("w", (c, o), operand)
    acc, other = Tile("acc", (n, o)), Tile("other", (n, o))
    assert isinstance(scaled, Ref)
    assert isinstance(w, Ref)
    body.append(Mma(acc, scaled.tile, w.tile, (c,), operand))
    y: Term = Ref(acc)
    if twice:
        assert isinstance(x, Ref)
        body.append(Mma(other, x.tile, w.tile, (c,), operand))
        y = apply("add", y, Ref(other))
    made("y", (n, o), y)
    body.append(Write(Buffer("y", sizes[:2], "f32"), (Index(n), Index(o)), Tile("y", (n, o))))
    return TileProgram("normed", {n: tile[0], o: tile[1], c: sizes[2]}, (n, o), tuple(body))


def drawn(program: TileProgram) -> Arrays:
    rng = np.random.default_rng(11)
    buffers = [s.buffer for s in walk_statements(program.body) if isinstance(s, Read)]
    found = {b.name: rng.standard_normal(b.shape).astype(storage(b.dtype)) for b in buffers}
    found["x"] = (found["x"].astype(np.float64) * 2 + 3).astype(found["x"].dtype)
    return found


def expected(arrays: Arrays, kind: str, twice: bool) -> npt.NDArray[np.float64]:
    a = {name: array.astype(np.float64) for name, array in arrays.items()}
    x = a["x"] + a.get("z", 0.0)
    if kind == "max":
        return x / np.abs(x).max(1, keepdims=True) @ a["w"]
    x = x - (x.mean(1, keepdims=True) if kind == "layer" else 0.0)
    h = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * a["g"] + a["b"]
    return (h + x if twice else h) @ a["w"]


def ran(program: TileProgram, arrays: Arrays, builds: Path, lazy: bool) -> npt.NDArray[Any]:
    shape = next(s for s in program.body if isinstance(s, Write)).buffer.shape
    found = {"y": np.full(shape, np.nan, np.float32)}
    emulate.run(emit_mma(program), {**arrays, **found}, builds, lazy=lazy)
    return found["y"].astype(np.float64)


CASES: dict[str, dict[str, Any]] = {
    "layer norm": {"sizes": (32, 64, 320), "tile": (16, 64)},
    "ragged rows and depth": {"sizes": (21, 40, 212), "tile": (16, 32)},
    "one warp column": {"sizes": (64, 16, 192), "tile": (64, 16)},
    "rms norm": {"sizes": (16, 64, 256), "tile": (16, 64), "kind": "rms"},
    "half": {"sizes": (16, 64, 256), "tile": (16, 64), "stored": "f16", "operand": "f16"},
    "largest magnitude": {"sizes": (16, 48, 200), "tile": (16, 32), "kind": "max"},
    "residual": {"sizes": (32, 32, 256), "tile": (32, 32), "residual": True},
    "short rows": {"sizes": (32, 32, 48), "tile": (16, 32)},
    "raw again": {"sizes": (16, 32, 192), "tile": (16, 32), "twice": True},
}


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_norms_agree_with_numpy(name: str, lazy: bool, builds: Path) -> None:
    settings = CASES[name]
    program = normed(**settings)
    arrays = drawn(program)
    want = expected(arrays, settings.get("kind", "layer"), settings.get("twice", False))
    found = ran(program, arrays, builds, lazy)
    error = np.sqrt(np.mean((found - want) ** 2) / np.mean(want**2))
    assert error <= 3e-3, error


def test_a_wrong_statistic_is_seen(builds: Path) -> None:
    """Statistics of the next row, or a missing shift, are far outside the tolerance."""
    program = normed((16, 32, 192), (16, 32))
    arrays = drawn(program)
    found = ran(program, arrays, builds, True)
    x, w = arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)
    mean, scale = x.mean(1, keepdims=True), 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    g, b = arrays["g"].astype(np.float64), arrays["b"].astype(np.float64)
    wrong = {
        "mean of another row": (x - np.roll(mean, 1, 0)) * scale * g + b,
        "scale of another row": (x - mean) * np.roll(scale, 1, 0) * g + b,
        "no shift": (x - mean) * scale * g,
    }
    right = ((x - mean) * scale * g + b) @ w
    for name, operand in wrong.items():
        assert np.sqrt(np.mean((found - operand @ w) ** 2) / np.mean(right**2)) > 3e-2, name


def test_rows_are_read_once_and_formed_in_place() -> None:
    memory = memory_program(normed((16, 64, 320), (16, 64)))
    ops = list(operations(memory.roles[0].operations))
    (held,) = (t for r in memory.rings for t in r.tiles if t.inner.name == "c")
    assert (held.rows, held.columns, held.filled) == (16, 320, "copy16")
    folds = [op for op in ops if isinstance(op, FoldDepth)]
    assert [op.tile is not None and op.dealt for op in folds] == [True, True]
    assert [op.tile for op in ops if isinstance(op, Form)] == [held]
    assert [op.formed for op in ops if isinstance(op, Multiply)] == [None]


def test_elements_that_are_read_again_are_not_replaced() -> None:
    memory = memory_program(normed((16, 32, 192), (16, 32), twice=True))
    ops = list(operations(memory.roles[0].operations))
    assert not any(isinstance(op, Form) for op in ops)
    assert all(op.formed is not None for op in ops if isinstance(op, Multiply))


def test_rows_that_are_not_copied_are_refused() -> None:
    with pytest.raises(LoweringError, match="not copied"):
        memory_program(normed((16, 32, 192), (16, 32), stored="f32"))


def test_a_schedule_that_multiplies_what_is_being_formed_is_refused() -> None:
    memory = memory_program(normed((16, 64, 320), (16, 64)))
    body = memory.roles[0].operations
    at = next(
        k for k, op in enumerate(body) if isinstance(op, Stream) and isinstance(op.body[0], Form)
    )
    assert isinstance(body[at + 1], Barrier)
    last = body[-3]
    assert isinstance(last, Stream)
    no_wait = replace(last, body=tuple(op for op in last.body if not isinstance(op, Barrier)))
    racing = (*body[: at + 1], *body[at + 2 : -3], no_wait, *body[-2:])
    with pytest.raises(ScheduleError, match="is formed"):
        validate(replace(memory, roles=(replace(memory.roles[0], operations=racing),)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("kind", ["layer", "rms", "max"])
def test_norms_pass_the_gate(rows: int, kind: str) -> None:
    program = normed((64, 4096, 512), (rows, 64), kind)
    for architecture in ("sm_80", "sm_90", "sm_120"):
        assert compile_kernel(emit_mma(program), architecture, cache=None).report.registers <= 255


def test_what_warp_columns_exchange_counts_as_shared_memory() -> None:
    """Rows that fill the block's memory leave no room for it: other tiles must do."""
    fits = memory_program(normed((16, 64, 2560), (16, 64)))
    assert fits.shared_bytes <= PORTABLE_SHARED
    used = sum(r.stages * r.slot_bytes for r in fits.rings)
    assert fits.shared_bytes >= used + 4 * 16 * fits.geometry.warp_columns
    with pytest.raises(LoweringError) as caught:
        memory_program(normed((16, 64, 2656), (16, 64)))
    assert caught.value.code == CAPACITY
