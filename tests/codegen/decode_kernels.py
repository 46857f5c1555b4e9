"""Partial kernels of a split reduction, built by hand: chunk p of the long axis, position s of the
chunk, and one output for each partial state.

Rows are the heads that share a key head (`group`), or the few queries of one head.
"""

from __future__ import annotations

from collections.abc import Callable

from sample_kernels import INF, ax, kernel, load, op, out

from nautile.extract.kernel import Kernel
from nautile.terms import Axis, Before, Index, Online, Reduce, Running, Term

Mask = Callable[[Term, Term], Term]  # (batch, absolute key position) -> kept


def partial(
    batch: int = 2,
    heads: int = 2,
    group: int = 4,
    queries: int = 1,
    keys: int = 96,
    parts: int = 3,
    width: int = 32,
    values: int = 0,
    tile: int = 16,
    *,
    mask: Mask | None = None,
    chunk: int = 0,
    causal: bool = False,
    dtype: str = "bf16",
) -> Kernel:
    """m, l and O of every chunk: max, online sum and online weighted sum of values. With a chunk
    that does not divide the keys, the last parts are ragged and masked by their position."""
    chunk = chunk or -(-keys // parts)
    b, hk, g, t = ax("b", batch), ax("hk", heads), ax("g", group), ax("t", queries)
    p, s = ax("p", parts), ax("s", chunk)
    d, e = ax("d", width), ax("e", values or width)
    at = op("add", op("mul", Index(p), chunk), Index(s))
    head = op("add", op("mul", Index(hk), group), Index(g))
    q = load("q", b, head, t, d, shape=(batch, heads * group, queries, width), dtype=dtype)
    k = load("k", b, hk, at, d, shape=(batch, heads, keys, width), dtype=dtype)
    v = load("v", b, hk, at, e, shape=(batch, heads, keys, e.extent), dtype=dtype)
    x: Term = op("mul", Reduce("sum", d, op("mul", q, k)), width**-0.5)
    for kept in _conditions(Index(b), Index(t), at, queries, keys, parts * chunk, mask, causal):
        x = op("where", kept, x, -INF)
    m = Reduce("max", s, x)
    weight = op("exp", op("sub", x, Running(m)))
    repair = op("exp", op("sub", Before(m), Running(m)))
    states = (b, hk, g, t, p)
    outputs = [
        out("m", states, m, "f32"),
        out("l", states, Online(s, repair, weight), "f32"),
        out("o", (*states, e), Online(s, repair, op("mul", weight, v)), "f32"),
    ]
    tiles = {b: 1, hk: 1, p: 1, s: tile, d: d.extent, e: e.extent} | _rows(g, t)
    return kernel("partial", outputs, tiles, (s,))


def flat(keys: int = 90, chunk: int = 32, width: int = 32) -> Kernel:
    """One query a head, whose row no axis names; keys up to a length of each batch."""
    b, h, d, e = ax("b", 2), ax("h", 3), ax("d", width), ax("e", width)
    p, s = ax("p", -(-keys // chunk)), ax("s", chunk)
    at = op("add", op("mul", Index(p), chunk), Index(s))
    k = load("k", b, at, h, d, shape=(2, keys, 3, width))
    v = load("v", b, at, h, e, shape=(2, keys, 3, width))
    x = op("mul", Reduce("sum", d, op("mul", load("q", b, h, d), k)), width**-0.5)
    x = op("where", op("lt", at, keys), op("where", until()(Index(b), at), x, -INF), -INF)
    m = Reduce("max", s, x)
    weight = op("exp", op("sub", x, Running(m)))
    repair = op("exp", op("sub", Before(m), Running(m)))
    outputs = [
        out("m", (b, h, p), m, "f32"),
        out("l", (b, h, p), Online(s, repair, weight), "f32"),
        out("o", (b, h, p, e), Online(s, repair, op("mul", weight, v)), "f32"),
    ]
    return kernel("flat", outputs, {b: 1, h: 1, p: 1, s: 16, d: width, e: width}, (s,))


def _rows(g: Axis, t: Axis) -> dict[Axis, int]:
    """The larger axis is the block's rows, the other is dealt to blocks."""
    return {g: g.extent, t: 1} if g.extent >= t.extent else {g: 1, t: t.extent}


def _conditions(
    b: Term,
    t: Term,
    at: Term,
    queries: int,
    keys: int,
    covered: int,
    mask: Mask | None,
    causal: bool,
) -> list[Term]:
    found = [op("lt", at, keys)] if covered > keys else []
    found += [mask(b, at)] if mask else []
    return found + ([op("le", at, op("add", t, keys - queries))] if causal else [])


def until(name: str = "length", batch: int = 2) -> Mask:
    """Keys before a length that is read for each batch."""
    lengths = load(name, ax("b", batch), dtype="i32")
    return lambda b, at: op("lt", at, lengths)


CASES: dict[str, Callable[[], Kernel]] = {
    "grouped": partial,
    "single_head": lambda: partial(group=1, heads=3),
    "single_head_lengths": lambda: partial(group=1, heads=3, mask=until(), keys=90, chunk=32),
    "no_row_axis": flat,
    "few_queries": lambda: partial(group=1, queries=5, causal=True),
    "group_and_queries": lambda: partial(group=4, queries=3, causal=True),
    "ragged": lambda: partial(keys=90, chunk=32),
    "ragged_odd": lambda: partial(keys=77, parts=5, chunk=16, tile=32),
    "last_chunk_empty": lambda: partial(keys=64, parts=3, chunk=32),
    "lengths": lambda: partial(mask=until()),
    "lengths_ragged": lambda: partial(mask=until(), keys=90, chunk=32),
    "one_part": lambda: partial(parts=1),
    "half": lambda: partial(dtype="f16", values=64),
    "wide_values": lambda: partial(width=16, values=48),
}
