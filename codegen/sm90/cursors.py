"""Rings: filling the slot at the cursor, moving the cursor, releasing slots; whose turn it is."""

from __future__ import annotations

from math import prod

from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import (
    PANEL_BYTES,
    Box,
    PairArrive,
    PairStart,
    PairSync,
    Ring,
    Skip,
)
from nautile.codegen.sm90.store import coordinates
from nautile.terms import Index

__all__ = ["advance", "arrive", "fill", "release", "skip", "turn"]


def fill(ctx: Context, ring: Ring) -> None:
    full = ctx.barrier(ring, "full")
    if not ring.bytes:
        ctx.emit(f"nt_barrier_arrive({full});")
        return
    ctx.emit(f"nt_barrier_expect({full}, {ring.bytes});")
    for box in (b for b in ring.boxes if not b.formed):
        for panel in range(box.panels):
            _load(ctx, ring, box, panel, full)


def _load(ctx: Context, ring: Ring, box: Box, panel: int, full: str) -> None:
    """One panel; of a box that blocks share, this one's part, into all of them."""
    more, rows = panel * box.panel_bytes, box.rows // box.blocks
    parts = [ctx.lies(box, ring)] + [str(more)] * (more > 0)
    moved = {0: str(panel * box.panel)} if panel else {}
    name, ranks = f"nt_tma_load_{len(box.places)}d", ""
    if box.blocks > 1:
        parts.append(f"rank * {rows * PANEL_BYTES}")
        moved[box.places.index(Index(box.outer))] = f"rank * {rows}"
        name, ranks = f"nt_tma_spread_{len(box.places)}d", f", {(1 << box.blocks) - 1}"
    at = coordinates(ctx, box.places, moved)
    ctx.emit(f"{name}({' + '.join(parts)}, &{ctx.maps[box.map]}, {full}{ranks}, {at});")


def arrive(ctx: Context, ring: Ring) -> None:
    """A warp's writes are seen by products before its arrival is."""
    ctx.emit("nt_async_fence();", "__syncwarp();")
    ctx.emit(f"if (lane == 0) nt_barrier_arrive({ctx.barrier(ring, 'full')});")


def advance(ctx: Context, ring: Ring) -> None:
    if ring.stages == 1:
        ctx.emit(f"{ctx.parity(ring)} ^= 1;")
        return
    slot = f"slot_{ring.name}"
    ctx.emit(f"if (++{slot} == {ring.stages}) {{ {slot} = 0; {ctx.parity(ring)} ^= 1; }}")


def skip(ctx: Context, op: Skip) -> None:
    blocks = prod(-(-a.extent // t) for a, t in zip(op.axes, op.tiles, strict=True))
    stages, slot = op.ring.stages, f"slot_{op.ring.name}"
    others = "w" if op.others == "before" else str(ctx.roles.geometry.consumers - 1)
    rounds = f"({slot} + {others} * {blocks}) / {stages}"
    ctx.emit(f"{ctx.parity(op.ring)} ^= {rounds} & 1;")
    ctx.emit(f"{slot} = ({slot} + {others} * {blocks}) % {stages};")


def release(ctx: Context, ring: Ring, age: int) -> None:
    if age == 0:
        ctx.emit(f"if ({_those(ring)}) {_arrive(ring, ctx.barrier(ring, 'empty'))};")
        return
    slot = f"slot_{ring.name}"
    before = f"({slot} == 0 ? {ring.stages - 1} : {slot} - 1)"
    test = f"{_those(ring)}{f' && {ctx.block} != {ctx.first}' * bool(ctx.block)}"
    ctx.emit(f"if ({test}) {_arrive(ring, ctx.barrier(ring, 'empty', before))};")


def _those(ring: Ring) -> str:
    """The lanes that arrive, one for each block."""
    return "lane == 0" if ring.blocks == 1 else f"lane < {ring.blocks}"


def _arrive(ring: Ring, barrier: str) -> str:
    if ring.blocks == 1:
        return f"nt_barrier_arrive({barrier})"
    return f"nt_barrier_arrive_at({barrier}, lane)"


def turn(ctx: Context, op: PairStart | PairSync | PairArrive) -> None:
    """Named barriers after those of the warpgroups' own: one for each turn."""
    count = ctx.roles.geometry.consumers
    first = 1 + count
    match op:
        case PairStart():
            ctx.emit(f"if (w == {count - 1}) nt_named_arrive({first}, 256);")
        case PairSync():
            ctx.emit(f"nt_named_sync({first} + w, 256);")
        case PairArrive():
            ctx.emit(f"nt_named_arrive({first} + (w == {count - 1} ? 0 : w + 1), 256);")
