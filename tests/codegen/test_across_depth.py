"""Folds beside a contraction: what a norm sums of an input is folded where the left operand's
elements lie. Generated kernels run on the CPU against NumPy in float64."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).parent / "mma"))

import emulate

from nautile.codegen.memory import FoldDepth, Multiply, operations
from nautile.codegen.sm80.emit import emit_mma, memory_program
from nautile.codegen.tile import (
    Fold,
    Loop,
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
from nautile.terms import Axis, Buffer, Const, Index, Term, apply

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("across")


def normed(
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    *,
    layout: str = "nc,co",
    stored: str = "bf16",
    operand: str = "bf16",
    monoid: str = "sum",
    resident: bool = False,
    scaled: bool = False,
    residual: bool = False,
) -> TileProgram:
    """y[n, o] = sum[c](x W) * rsqrt(fold of x * x / C + 1e-6), in one pass over c; with `scaled`
    the operand is (x + 0.5) * g[c], with `residual` x is x + z."""
    n, o, c = (Axis(name, 0, size) for name, size in zip("noc", sizes, strict=True))
    axes = {"n": n, "o": o, "c": c}

    def read(name: str, order: str, kind: str) -> tuple[Read, Tile]:
        own = tuple(axes[k] for k in order)
        target = Tile(name, own, kind)
        buffer = Buffer(name, tuple(a.extent for a in own), kind)
        return Read(target, buffer, tuple(Index(a) for a in own)), target

    left, right = layout.split(",")
    read_x, x = read("x", left, stored)
    read_w, w = read("w", right, "bf16" if operand == "bf16" else stored)
    square, ss, acc = Tile("square", (n, c)), Tile("ss", (n,)), Tile("acc", (n, o))
    extra: tuple[Any, ...] = ()
    value: Term = Ref(x)
    if residual:
        read_z, z = read("z", left, stored)
        extra, value = (read_z,), apply("add", value, Ref(z))
    operand_x = x
    if scaled:
        read_g, g = read("g", "c", "f32")
        operand_x = Tile("operand", (n, c))
        shifted = apply("add", value, Const(0.5))
        extra += (read_g, Map(operand_x, apply("mul", shifted, Ref(g))))
    inner = (
        read_x,
        read_w,
        *extra,
        Map(square, apply("mul", value, value)),
        Fold(ss, monoid, c, square),
        Mma(acc, operand_x, w, (c,), operand, split=operand == "f32"),
    )
    mean: Term = apply("div", Ref(ss), Const(float(sizes[2])))
    scale = apply("rsqrt", apply("add", mean, Const(1e-6)))
    y = Tile("y", (n, o))
    body: tuple[Any, ...] = inner if resident else (Loop(c, inner),)
    body += (
        Map(y, apply("mul", Ref(acc), scale)),
        Write(Buffer("y", (sizes[0], sizes[1]), "f32"), (Index(n), Index(o)), y),
    )
    return TileProgram("normed", {n: tile[0], o: tile[1], c: tile[2]}, (n, o), body)


def ran(program: TileProgram, arrays: Arrays, builds: Path, lazy: bool) -> npt.NDArray[Any]:
    shape = next(s for s in program.body if isinstance(s, Write)).buffer.shape
    found = {"y": np.full(shape, np.nan, np.float32)}
    emulate.run(emit_mma(program), {**arrays, **found}, builds, lazy=lazy)
    return found["y"]


def drawn(program: TileProgram) -> Arrays:
    rng = np.random.default_rng(7)
    buffers = [s.buffer for s in walk_statements(program.body) if isinstance(s, Read)]
    return {b.name: rng.standard_normal(b.shape).astype(storage(b.dtype)) for b in buffers}


def expected(arrays: Arrays, layout: str, monoid: str) -> npt.NDArray[np.float64]:
    left, right = layout.split(",")
    x, w = arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)
    x = x + arrays["z"].astype(np.float64) if "z" in arrays else x
    x = x if left == "nc" else x.T
    w = w if right == "co" else w.T
    operand = x if "g" not in arrays else (x + 0.5) * arrays["g"]
    squares = {"sum": np.sum, "max": np.max}[monoid](x * x, axis=1)
    return (operand @ w) / np.sqrt(squares / x.shape[1] + 1e-6)[:, None]


CASES: dict[str, dict[str, Any]] = {
    "even": {"sizes": (64, 64, 96), "tile": (32, 32, 32)},
    "ragged": {"sizes": (33, 40, 72), "tile": (32, 32, 32)},
    "odd depth": {"sizes": (20, 40, 37), "tile": (32, 32, 32)},
    "rows contiguous": {"sizes": (64, 64, 96), "tile": (32, 32, 32), "layout": "cn,co"},
    "half": {"sizes": (32, 64, 64), "tile": (32, 64, 32), "stored": "f16", "operand": "f16"},
    "single": {"sizes": (32, 32, 80), "tile": (32, 32, 32), "stored": "f32", "operand": "tf32"},
    "split": {"sizes": (36, 48, 80), "tile": (32, 32, 32), "stored": "f32", "operand": "f32"},
    "split, ragged": {
        "sizes": (33, 40, 37),
        "tile": (32, 32, 32),
        "stored": "f32",
        "operand": "f32",
    },
    "operand rounded": {"sizes": (48, 32, 80), "tile": (32, 32, 32), "stored": "f32"},
    "maximum": {"sizes": (40, 48, 100), "tile": (32, 32, 32), "monoid": "max"},
    "deep tile": {"sizes": (32, 32, 300), "tile": (32, 32, 128)},
    "resident": {"sizes": (40, 48, 48), "tile": (32, 32, 48), "resident": True},
    "formed": {"sizes": (64, 48, 96), "tile": (32, 32, 32), "scaled": True},
    "formed, ragged": {"sizes": (20, 40, 37), "tile": (32, 32, 32), "scaled": True},
    "formed of two": {
        "sizes": (64, 48, 96),
        "tile": (32, 32, 32),
        "scaled": True,
        "residual": True,
    },
    "formed, rows contiguous": {
        "sizes": (64, 64, 96),
        "tile": (32, 32, 32),
        "layout": "cn,co",
        "scaled": True,
    },
}
LOOSE = {"single": 1e-3, "operand rounded": 4e-3}


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_folds_agree_with_numpy(name: str, lazy: bool, builds: Path) -> None:
    settings = CASES[name]
    program = normed(**settings)
    arrays = drawn(program)
    want = expected(arrays, settings.get("layout", "nc,co"), settings.get("monoid", "sum"))
    found = ran(program, arrays, builds, lazy).astype(np.float64)
    error = np.sqrt(np.mean((found - want) ** 2) / np.mean(want**2))
    assert error <= LOOSE.get(name, 3e-3 if "formed" in name else 2e-6), error


def test_elements_come_from_the_operand_in_shared_memory() -> None:
    memory = memory_program(normed((64, 64, 96), (32, 32, 32)))
    (fold,) = [op for op in operations(memory.roles[0].operations) if isinstance(op, FoldDepth)]
    assert fold.tile is not None
    assert fold.carried
    assert not fold.settled
    text = emit_mma(normed((64, 64, 96), (32, 32, 32))).text
    assert text.count("nt_fragments(fa") == 3  # once for the fold, twice in the product's pipeline


def test_an_operand_is_formed_from_the_elements_that_are_folded() -> None:
    memory = memory_program(normed((64, 64, 96), (32, 32, 32), scaled=True))
    (ring,) = memory.rings
    assert {t.name: t.filled for t in ring.tiles} == {"operand": "copy16", "w": "copy16"}
    assert any(
        isinstance(op, Multiply) and op.formed is not None
        for op in operations(memory.roles[0].operations)
    )
