"""Elements that results are computed with, read before the products that they are added to.

What lies at each position of a tile (a residual, a gate) would be waited for at the tile's end,
while the tensor cores rest. It is read into registers when the tile begins, where there are
registers for it. The four threads of a row read 16 bytes each, a fourth of the requests that the
pairs of neighbours in their accumulators would take (those kept the tensor cores waiting), and
exchange words when results are stored: word c of thread t becomes word t of thread c.
"""

from __future__ import annotations

from dataclasses import replace

from nautile.codegen.schedule.affine import coefficient, divisor, inside, offset
from nautile.codegen.sm90.context import Context, Early
from nautile.codegen.sm90.elements import places
from nautile.codegen.sm90.memory import Ahead, Geometry, Operation, StoreTile, Tiles
from nautile.terms import Axis, Load, Term, walk

__all__ = ["ahead", "exchanged", "with_ahead"]

_PAIRED = ("bf16", "f16")
_RUN = 8  # elements of 16 bytes
_QUAD = 4 * _RUN  # elements that the four threads of a row read at once


def _loads(value: Term, row: Axis, column: Axis) -> list[Load]:
    """The Loads of a value over the rows and columns whose neighbours are one word."""
    found = [t for t in walk(value) if isinstance(t, Load) and {row, column} <= t.free]
    return [t for t in dict.fromkeys(found) if _is_paired(t, column)]


def _is_paired(load: Load, column: Axis) -> bool:
    form = offset(load)
    whole = inside(load) and column.extent % _RUN == 0 and load.buffer.dtype in _PAIRED
    return whole and coefficient(form, column) == 1 and divisor(form, column, _RUN) == _RUN


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
                    if store.columns % _QUAD or asked in early:
                        continue
                    room -= _words(asked, geometry.fragments)
                    early += [asked] if room >= 0 else []
            made.append(replace(op, body=(*early, *op.body)))
        else:
            made.append(op)
    return tuple(made)


def ahead(ctx: Context, op: Ahead) -> None:
    """Four words of every row and 32 columns; `ctx.ahead` tells how to spell an element."""
    place, levels = places(ctx, op.column)
    place.run, place.pieces = _RUN, op.columns // _QUAD * ctx.rows
    ctx.printer(levels, place, precise=True).value(op.load)
    name = place.arrays[0].split()[1].split("[")[0]
    ctx.emit(f"// {op.load.buffer.name} of this tile, ahead of its products", *place.arrays)
    word = f"{name}[(j >> 2) * {ctx.rows} + e][j & 3]"
    half = f"(nt_u16)({word} >> q * 16)"
    ctx.ahead[op.load] = Early(name, place.pieces, f"(nt_f32_of_{op.load.buffer.dtype}({half}))")
    origin = ctx.origin(op.column)
    first = f"{origin} + (lane & 3) * {_RUN}" if origin != "0" else f"(lane & 3) * {_RUN}"
    ctx.unroll(f"for (int j = 0; j < {op.columns // _QUAD}; j++) {{")
    ctx.emit(f"const int {place.start} = {first} + j * {_QUAD};")
    ctx.unroll(f"for (int e = 0; e < {ctx.rows}; e++) {{")
    ctx.emit(f"const int p_row = row0 + {ctx.row_step()}, i = j * {ctx.rows} + e;")
    ctx.emit(*place.early)
    ctx.unroll("for (int c = 0; c < 4; c++) nt_hold(" + f"{name}[i][c]);")
    ctx.emit("}", "}")


def exchanged(ctx: Context, value: Term) -> dict[Term, str]:
    """The words of what came ahead go to the threads that have their columns; how an element of
    each such Load of a value is spelled then."""
    found: dict[Term, str] = {}
    for load in (t for t in walk(value) if t in ctx.ahead and t not in found):
        early = ctx.ahead[load]
        found[load] = early.element
        if early.name not in ctx.exchanged:
            ctx.exchanged.add(early.name)
            ctx.unroll(f"for (int i = 0; i < {early.pieces}; i++) nt_exchange({early.name}[i]);")
    return found
