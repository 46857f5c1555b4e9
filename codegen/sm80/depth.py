"""Elements where a left operand's fragments put them: folds along the contracted axis beside the
multiplication, and operands that are formed from raw elements.

A thread takes the rows lane / 4 and lane / 4 + 8 of each 16, as in an accumulator, and of every 32
bytes of depth two runs of 4 bytes. So a value of the row is the same register as anywhere else, and
the threads that share a row are settled as those of an accumulator's fold are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nautile.codegen.memory import FoldDepth, Form, Ring, SharedTile
from nautile.codegen.schedule.place import loaded
from nautile.codegen.sm80.context import Context, Place, widened
from nautile.codegen.sm80.elements import COMBINE, quad
from nautile.codegen.sm80.fragments import left_fragments, left_lane
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Term

__all__ = ["elements", "fold_depth", "form", "fragments_beside", "lanes_beside"]

Besides = tuple[tuple[SharedTile, Ring], ...]
IDENTITY = {"sum": "0.0f", "prod": "1.0f", "max": "-nt_inf()", "min": "nt_inf()"}


def fold_depth(ctx: Context, op: FoldDepth) -> None:
    """The fold's value after `depth` more positions."""
    rows, run = ctx.program.geometry.thread_rows, positions_at_once(op.tile)
    running = op.carried and not op.settled
    ctx.emit(f"{_turn(ctx, op.axis)}{{" if op.dealt else "{")
    if op.tile is not None:
        assert op.ring is not None
        left_lane(ctx, op.tile, op.ring, op.axis)
    lanes_beside(ctx, op.beside, op.axis)
    target = ctx.value(op.target)
    start = f"{target}[i][h]" if running else IDENTITY[op.monoid]
    ctx.emit(f"float v[{rows}][2];")
    _rows(ctx, f"v[i][h] = {start};")
    ctx.unroll(f"for (int k = 0; k < {-(-op.depth // (8 * run))}; k++) {{")
    ctx.unroll(f"for (int i = 0; i < {rows}; i++) {{")
    if op.tile is not None:
        ctx.emit("nt_u32 fa[4];")
        left_fragments(ctx, op.tile, op.axis, "k", "fa")
    held = [] if op.tile is None else [(op.tile, "fa")]
    held += fragments_beside(ctx, op.beside, op.axis, "k")
    outside, folded = IDENTITY[op.monoid], COMBINE[op.monoid]
    each = elements(ctx, op.axis, held, op.value, "k", outside, precise=op.precise)
    with each as value:
        ctx.emit(f"v[i][h] = {folded.format('v[i][h]', value)};")
    ctx.emit("}", "}", "}", "}")
    if op.settled:
        _rows(ctx, *quad(COMBINE[op.monoid], "v[i][h]"))
    _rows(ctx, f"{target}[i][h] = {_joined(ctx, op)};")
    ctx.emit("}")


def form(ctx: Context, op: Form) -> None:
    """Replace the elements of a tile that the warp owns: a thread those of its fragments' words."""
    run, layout = positions_at_once(op.tile), op.tile.layout
    ctx.emit(f"{_turn(ctx, op.axis)}{{")
    left_lane(ctx, op.tile, op.ring, op.axis)
    lanes_beside(ctx, op.beside, op.axis)
    ctx.unroll(f"for (int k = 0; k < {-(-op.depth // (8 * run))}; k++) {{")
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++) {{")
    ctx.emit("nt_u32 raw[4], words[4];")
    left_fragments(ctx, op.tile, op.axis, "k", "raw")
    held = [(op.tile, "raw"), *fragments_beside(ctx, op.beside, op.axis, "k")]
    with elements(ctx, op.axis, held, op.value, "k", "0.0f") as value:
        ctx.emit(f"made[q] = {value};")
    pack = f"nt_{op.operand}x2_of_f32"
    ctx.emit(f"words[part * 2 + h] = {pack}(made[0], made[1]);", "}", "}")
    first = "(ar - (lane & 7) - ((lane >> 3) & 1) * 8 + (lane >> 2) + i * 16 + (w & 1) * 8)"
    swizzle = f" ^ (({first} >> {layout.shift}) & {layout.mask})" if layout.mask else ""
    start = f"(a - ar * {layout.pitch})"
    at = f"{start} + {first} * {layout.pitch} + ((k * 2 + (w >> 1)){swizzle}) * 16"
    ctx.unroll("for (int w = 0; w < 4; w++)")
    ctx.emit(f"nt_store4({at} + (lane & 3) * 4, words[w]);", "}", "}", "}")


def _turn(ctx: Context, axis: Axis) -> str:
    """The condition that a block of the axis is the warp column's."""
    columns = ctx.program.geometry.warp_columns
    if columns == 1:
        return ""
    return f"if ({ctx.origin(axis)} / {ctx.width(axis)} % {columns} == warp_column) "


def lanes_beside(ctx: Context, beside: Besides, axis: Axis) -> None:
    """The lane's addresses of the tiles beside a left one."""
    for number, (tile, ring) in enumerate(beside):
        left_lane(ctx, tile, ring, axis, f"z{number}")


def fragments_beside(
    ctx: Context, beside: Besides, axis: Axis, k: str
) -> list[tuple[SharedTile, str]]:
    """The fragments of row fragment i in step k of those tiles, in words of their own."""
    for number, (tile, _) in enumerate(beside):
        ctx.emit(f"nt_u32 raw{number}[4];")
        left_fragments(ctx, tile, axis, k, f"raw{number}", f"z{number}")
    return [(tile, f"raw{number}") for number, (tile, _) in enumerate(beside)]


def positions_at_once(tile: SharedTile | None) -> int:
    """Elements in four bytes of the tile; without one, those that are read from memory at once."""
    return 2 if tile is None else 4 // DTYPES[tile.element].bytes


def _rows(ctx: Context, *lines: str) -> None:
    ctx.unroll(f"for (int i = 0; i < {ctx.program.geometry.thread_rows}; i++)")
    ctx.unroll("for (int h = 0; h < 2; h++)")
    ctx.emit("{ " + " ".join(lines) + " }")


def _joined(ctx: Context, op: FoldDepth) -> str:
    if not (op.carried and op.settled):
        return "v[i][h]"
    carried = f"{ctx.value(op.target)}[i][h]"
    if op.repair is not None:
        carried = f"nt_repair({carried}, {ctx.value(op.repair)}[i][h])"
    return COMBINE[op.monoid].format(carried, "v[i][h]")


@contextmanager
def elements(
    ctx: Context,
    axis: Axis,
    held: Sequence[tuple[SharedTile, str]],
    value: Term,
    k: str,
    outside: str,
    *,
    precise: bool = False,
) -> Iterator[str]:
    """Loops over the elements of row fragment i in step k, by row half h, `part` of the step and
    position q; the text of an element's value, `outside` beyond the depth's extent. `held` are
    tiles with the words of their fragments. The loops over h and part are left open; `made` has
    room for a part."""
    row, run = ctx.program.geometry.row, positions_at_once(held[0][0] if held else None)
    positions = {row: "p_row", axis: "p_col"}
    ragged = frozenset(a for a in positions if ctx.ragged(a))
    place = Place(positions, ragged, axis, run, "q", "p_pair")
    place.known.update((loaded(tile), _at_hand(tile, words)) for tile, words in held)
    levels = ctx.levels([row], [axis])
    text = ctx.printer(levels, place, precise=precise).value(value, "f32")
    if ctx.ragged(axis):
        text = f"(p_col < {axis.extent} ? {text} : {outside})"
    ctx.emit(*levels[0].lines)
    ctx.unroll("for (int h = 0; h < 2; h++) {")
    ctx.emit("const int p_row = row0 + i * 16 + h * 8;", *levels[1].lines)
    ctx.unroll("for (int part = 0; part < 2; part++) {")
    at = f"{ctx.origin(axis)} + {k} * {8 * run} + part * {4 * run}"
    ctx.emit(f"const int p_pair = {at} + (lane & 3) * {run};", *place.chunk, f"float made[{run}];")
    ctx.unroll(f"for (int q = 0; q < {run}; q++) {{")
    ctx.emit("const int p_col = p_pair + q;", *levels[2].lines)
    yield text
    ctx.emit("}")


def _at_hand(tile: SharedTile, words: str) -> str:
    """The element of a fragment in the loops over part, h and q."""
    word = f"{words}[part * 2 + h]"
    if positions_at_once(tile) == 1:
        return f"__uint_as_float({word})"
    return widened(tile.element, f"((nt_u16)({word} >> (q * 16)))")
