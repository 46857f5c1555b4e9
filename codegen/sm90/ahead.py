"""Elements that results are computed with, read before the products that they are added to.

What lies at each position of a tile (a residual, a gate) would be waited for at the tile's end,
while the tensor cores rest. Its words are read into registers when the tile begins, where there are
registers for them: a thread's pairs of neighbours in the rows and columns of its accumulators.
"""

from __future__ import annotations

from dataclasses import replace

from nautile.codegen.schedule.affine import coefficient, divisor, inside, offset
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.elements import places
from nautile.codegen.sm90.memory import Ahead, Geometry, Operation, StoreTile, Tiles
from nautile.terms import Axis, Load, Term, walk

__all__ = ["ahead", "with_ahead"]

_PAIRED = ("bf16", "f16")


def _loads(value: Term, row: Axis, column: Axis) -> list[Load]:
    """The Loads of a value over the rows and columns whose neighbours are one word."""
    found = [t for t in walk(value) if isinstance(t, Load) and {row, column} <= t.free]
    return [t for t in dict.fromkeys(found) if _is_paired(t, column)]


def _is_paired(load: Load, column: Axis) -> bool:
    form = offset(load)
    whole = inside(load) and column.extent % 2 == 0 and load.buffer.dtype in _PAIRED
    return whole and coefficient(form, column) == 1 and divisor(form, column, 2) == 2


def _words(op: Ahead, fragments: int) -> int:
    """Registers of a thread that a tile's elements take, two in a word."""
    return op.columns // 8 * 2 * fragments


def with_ahead(
    consumer: tuple[Operation, ...], geometry: Geometry, room: int
) -> tuple[Operation, ...]:
    """The consumer's role, whose tiles begin with reads ahead of what StoreTiles need, while there
    is room in registers for it."""
    made: list[Operation] = []
    for op in consumer:
        if isinstance(op, Tiles) and op.first is None and op.order == "static":
            early: list[Operation] = []
            for store in (o for o in op.body if isinstance(o, StoreTile)):
                for load in _loads(store.value, geometry.row, store.column):
                    asked = Ahead(load, store.column, store.columns)
                    room -= 0 if asked in early else _words(asked, geometry.fragments)
                    early += [asked] if asked not in early and room >= 0 else []
            made.append(replace(op, body=(*early, *op.body)))
        else:
            made.append(op)
    return tuple(made)


def ahead(ctx: Context, op: Ahead) -> None:
    """The words of every row and pair of columns; `ctx.ahead` tells how to spell an element."""
    place, levels = places(ctx, op.column)
    place.pieces = op.columns // 8 * ctx.rows
    text = ctx.printer(levels, place, precise=True).value(op.load)
    ctx.emit(f"// {op.load.buffer.name} of this tile, ahead of its products", *place.arrays)
    ctx.ahead[op.load] = text.replace("[i]", f"[j * {ctx.rows} + e]")
    name = place.arrays[0].split()[1].split("[")[0]
    origin = ctx.origin(op.column)
    base = f"{origin} + lane_column + j * 8" if origin != "0" else "lane_column + j * 8"
    ctx.unroll(f"for (int j = 0; j < {op.columns // 8}; j++) {{")
    ctx.emit(f"const int {place.start} = {base};")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    ctx.emit(f"const int p_row = row0 + {ctx.row_step()}, i = j * {ctx.rows} + e;")
    ctx.emit(*place.early, f"nt_hold({name}[i][0]);", "}", "}")
