"""Programs of other shapes: nested loops, gated chains, gathers, shifted and partner reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import emulate
import numpy as np
import numpy.typing as npt
import programs as P
import pytest

from nautile.codegen.interpret import run_program
from nautile.codegen.sm80.emit import applies, emit_mma
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    Tile,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.dtypes import storage
from nautile.terms import Axis, Buffer, Const, Index, Term, apply

M, N, K = Axis("m", 0, 48), Axis("n", 0, 96), Axis("k", 0, 80)
E, F, T = Axis("e", 0, 40), Axis("f", 0, 96), Axis("t", 0, 50)
TILES = {M: 16, N: 32, K: 16, F: 32, E: 40, T: 16}


def read(name: str, *axes: Axis, dtype: str = "bf16", at: tuple[Term, ...] = ()) -> Read:
    shape = tuple(a.extent for a in axes)
    where = at or tuple(Index(a) for a in axes)
    return Read(Tile(name.lower(), axes, dtype), Buffer(name, shape, dtype), where)


def write(name: str, source: Tile, dtype: str = "f32") -> Write:
    shape = tuple(a.extent for a in source.axes)
    return Write(Buffer(name, shape, dtype), tuple(Index(a) for a in source.axes), source)


def mma(target: Tile, left: Read | Tile, right: Read, axis: Axis, operand: str = "bf16") -> Mma:
    a = left.target if isinstance(left, Read) else left
    return Mma(target, a, right.target, (axis,), operand)


def program(grid: tuple[Axis, ...], *body: Statement) -> TileProgram:
    used = {a for s in walk_statements(body) if isinstance(s, Read) for a in s.target.axes}
    tiles = {a: t for a, t in TILES.items() if a in used}
    if any(isinstance(s, Mma) and s.axes == (F,) for s in walk_statements(body)):
        tiles[K] = K.extent
    return TileProgram("p", tiles, grid, body)


def nested_loops() -> TileProgram:
    a, b, acc, y = read("A", M, K), read("B", N, K), Tile("acc", (M, N)), Tile("y", (M, N))
    inner = Loop(K, (a, b, mma(acc, a, b, K)))
    return program((M,), Loop(N, (inner, Map(y, P.gelu(Ref(acc))), write("C", y, "bf16"))))


def logsumexp_of_a_product() -> TileProgram:
    a, b, acc = read("A", M, K), read("B", N, K), Tile("acc", (M, N))
    high, before, r, total, out = (Tile(n, (M,)) for n in ("high", "before", "r", "total", "out"))
    p = Tile("p", (M, N))
    body = (
        Loop(K, (a, b, mma(acc, a, b, K))),
        Fold(high, "max", N, acc, None, before),
        Map(r, apply("exp", apply("sub", Ref(before), Ref(high)))),
        Map(p, apply("exp", apply("sub", Ref(acc), Ref(high)))),
        Fold(total, "sum", N, p, r),
    )
    final = Map(out, P.add(Ref(high), apply("log", Ref(total))))
    return program((M,), Loop(N, body), final, write("L", out))


def gated_chain() -> TileProgram:
    x, w1, w3, w2 = read("X", M, K), read("W1", F, K), read("W3", F, K), read("W2", F, E)
    g, u, h, z = Tile("g", (M, F)), Tile("u", (M, F)), Tile("h", (M, F)), Tile("z", (M, E))
    gate = P.mul(P.mul(Ref(g), apply("sigmoid", Ref(g))), Ref(u))
    body = (w1, mma(g, x, w1, K), w3, mma(u, x, w3, K), Map(h, gate), w2, mma(z, h, w2, F))
    return program((M,), x, Loop(F, body), write("Z", z, "bf16"))


def two_operand_types() -> TileProgram:
    x, w, v, v2 = read("X", M, K), read("W", F, K), read("V", F, E), read("V2", F, E, dtype="f16")
    g, h, z, z2 = Tile("g", (M, F)), Tile("h", (M, F)), Tile("z", (M, E)), Tile("z2", (M, E))
    half = Map(h, apply("sigmoid", Ref(g)))
    body = (w, mma(g, x, w, K), half, v, mma(z, h, v, F), v2, mma(z2, h, v2, F, "f16"))
    return program((M,), x, Loop(F, body), write("Z", z), write("Z2", z2))


def gather() -> TileProgram:
    token, b, q = read("TOK", T, dtype="i32"), read("B", N, K), Tile("q", (T, N))
    rows = Buffer("EMB", (9, K.extent), "bf16")
    e = Read(Tile("emb", (T, K), "bf16"), rows, (Ref(token.target), Index(K)))
    return program((T, N), Loop(K, (token, e, b, mma(q, e, b, K))), write("Q", q))


def shifted() -> TileProgram:
    a = read("A", M, K, at=(apply("sub", Index(M), Const(3)), Index(K)))
    b, acc = read("B", N, K), Tile("acc", (M, N))
    return program((M, N), Loop(K, (a, b, mma(acc, a, b, K))), write("C", acc))


def partner() -> TileProgram:
    """A rotation: every element and the one half a row further, computed on the way."""
    other = apply("mod", apply("add", Index(K), Const(40)), Const(80))
    a, c, b = read("A", M, K), read("COS", M, K, dtype="f32"), read("B", N, K)
    far = Read(Tile("far", (M, K), "bf16"), a.buffer, (Index(M), other))
    turned, acc = Tile("turned", (M, K)), Tile("acc", (M, N))
    value = P.add(P.mul(Ref(a.target), Ref(c.target)), P.mul(Ref(far.target), 0.5))
    loop = Loop(K, (a, far, c, Map(turned, value), b, mma(acc, turned, b, K)))
    return program((M, N), loop, write("C", acc))


def inputs(p: TileProgram) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(7)
    made: dict[str, npt.NDArray[Any]] = {}
    for s in walk_statements(p.body):
        if isinstance(s, Read):
            b = s.buffer
            whole = b.dtype == "i32"
            made[b.name] = (
                rng.integers(0, 9, b.shape) if whole else rng.standard_normal(b.shape)
            ).astype(storage(b.dtype))
    return made


MAKERS = (
    nested_loops,
    logsumexp_of_a_product,
    gated_chain,
    two_operand_types,
    gather,
    shifted,
    partner,
)


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_kernels_follow_the_interpreter(make: Any, builds: Path) -> None:
    p = make()
    arrays = inputs(p)
    want = dict(arrays)
    run_program([p], want)
    kernel = emit_mma(p)
    for lazy in (True, False):
        writes = [s.buffer for s in walk_statements(p.body) if isinstance(s, Write)]
        found = {b.name: np.full(b.shape, np.nan).astype(storage(b.dtype)) for b in writes}
        emulate.run(kernel, {**arrays, **found}, builds, lazy=lazy)
        for name, array in found.items():
            got, expected = array.astype(np.float64), want[name].astype(np.float64)
            scale = np.sqrt(np.mean(expected**2))
            np.testing.assert_allclose(got, expected, rtol=0, atol=0.02 * scale)


def test_values_that_no_fragment_holds_do_not_apply() -> None:
    a, b, acc = read("A", M, K), read("B", N, K), Tile("acc", (M, N))
    loop = Loop(K, (a, b, mma(acc, a, b, K)))
    high = Tile("high", (M,))
    out = Buffer("C", (48, 96), "f32")
    spread = Write(out, (Index(M), Index(N)), high)
    assert not applies(program((M, N), loop, Fold(high, "max", N, acc), spread))
    outside = Write(out, (apply("sub", Index(M), Const(1)), Index(N)), acc)
    assert not applies(program((M, N), loop, outside))
    assert applies(program((M, N), loop, Write(out, (Index(M), Index(N)), acc)))
