"""Where a tile lies: the origins of the grid's axes from the tile's number.

Row tiles and column tiles are walked in bands that share operands in the second-level cache;
without a column tile, the outer indices of a band (heads) share what they stream.
"""

from __future__ import annotations

from math import prod

from nautile.codegen.kernel_text import identifier
from nautile.codegen.sm80.order import L2_BYTES, band, block_count
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import (
    Issue,
    Ring,
    RoleProgram,
    Stream,
    WaitEmpty,
    WaitFull,
    operations,
)
from nautile.terms import Axis

__all__ = ["handed_on", "named", "number_of", "origins"]


def origins(ctx: Context) -> None:
    """The origins of all axes of more than one tile, and the thread's first row."""
    program, g = ctx.roles, ctx.roles.geometry
    counts = {a: n for a, t in program.grid if (n := -(-a.extent // t)) > 1}
    tiles = dict(program.grid)
    column = _main_column(program, counts)
    nr, nc = counts.get(g.row, 1) // g.cluster, counts[column] if column else 1
    others = [a for a in counts if a not in (g.row, column)]
    nz = prod(counts[a] for a in others)
    if column:
        ctx.emit(f"const int z = number / {nr * nc};", f"const int inner = number % {nr * nc};")
        group = max(1, g.group // g.cluster)
        band(ctx, "inner", group, nr, nc, ("tile_row", "tile_column"), "within")
    else:
        band(ctx, "number", _heads(program), nz, nr, ("z", "tile_row"), "within")
    row = f"({nr - 1} - tile_row)" if program.heavy_first else "tile_row"
    row = row if g.cluster == 1 else f"({row} * {g.cluster} + rank)"
    if g.row in counts:
        ctx.emit(f"const int {named(ctx, g.row)} = {row} * {tiles[g.row]};")
    if column:
        ctx.emit(f"const int {named(ctx, column)} = tile_column * {tiles[column]};")
    rest = "z"
    for number, axis in enumerate(reversed(others)):
        scale = f" * {tiles[axis]}" if tiles[axis] > 1 else ""
        index = rest if number == len(others) - 1 else f"{rest} % {counts[axis]}"
        index = index if " " not in index or not scale else f"({index})"
        ctx.emit(f"const int {named(ctx, axis)} = {index}{scale};")
        rest = f"{rest} / {counts[axis]}"
    own = 0 if g.alternate or g.consumers == 1 else 64 * g.fragments
    mine = f" + w * {own}" * (own > 0)
    ctx.emit(f"const int row0 = {ctx.origin(g.row)}{mine} + (warp & 3) * 16 + (lane >> 2);")


def named(ctx: Context, axis: Axis) -> str:
    number = [a for a, _ in ctx.roles.tiles].index(axis)
    ctx.origins[axis] = f"o{number}_{identifier(axis.name)}"
    return ctx.origins[axis]


def _main_column(program: RoleProgram, counts: dict[Axis, int]) -> Axis | None:
    """The grid axis of several tiles that is the columns of some accumulator."""
    issues = (o for o in operations(program.consumer) if isinstance(o, Issue))
    for op in issues:
        columns = (b.outer if b.inner == op.axis else b.inner for b, _ in op.pairs)
        found = next((c for c in columns if counts.get(c, 1) > 1), None)
        if found is not None:
            return found
    return None


def _heads(program: RoleProgram) -> int:
    """How many outer indices to walk together, so that what they stream fits the cache."""
    streams = [op for op in operations(program.producer) if isinstance(op, Stream)]
    blocks = max((block_count(s.axes, s.tiles) for s in streams), default=1)
    moving = sum(r.slot_bytes for r in program.rings if not r.stays) or 1
    return max(1, L2_BYTES // (blocks * moving))


def handed_on(ctx: Context, carrier: Ring | None) -> str:
    assert carrier is not None
    return f"nt_uniform(lane == 0 ? nt_load4({_word(ctx, carrier)}) : 0)"


def _word(ctx: Context, carrier: Ring) -> str:
    """Where the carrier's slot keeps a tile's number."""
    slot = f" + 8 * slot_{carrier.name}" * (carrier.stages > 1)
    return f"shared + {ctx.roles.words}{slot}"


def number_of(ctx: Context, op: WaitEmpty | WaitFull, total: int) -> None:
    """Only the lane that releases the slot reads the word that the producer writes again then. A
    tile drawn earlier, while another is walked, would leave the last heavy ones to busy blocks."""
    word = _word(ctx, op.ring)
    if isinstance(op, WaitEmpty):
        ctx.emit(
            "const int number = atomicAdd(counter, 1);",
            f"if (number == {total - 1} + (int)gridDim.x) *counter = 0;  // the launch's last draw",
            f"nt_store4({word}, number);",
            f"if (number >= {total}) {{",
            f"nt_barrier_arrive({ctx.barrier(op.ring, 'full')});",
            "break;",
            "}",
        )
        return
    ctx.emit(
        f"const int number = {handed_on(ctx, op.ring)};",
        f"if (number >= {total}) break;",
    )
