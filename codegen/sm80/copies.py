"""Filling the slots of rings: asynchronous copies, or values computed on their way.

A thread's pieces are 16 bytes of a tile's contiguous axis (8 or 4 where the source is aligned to no
more). Where the pieces of a row divide the threads, a thread keeps its column and steps through the
rows, so that its addresses differ by constants.
"""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.expression import Level
from nautile.codegen.memory import Fetch, Gather, Place, Ring, SharedTile
from nautile.codegen.schedule.affine import beyond, offset
from nautile.codegen.sm80 import context
from nautile.codegen.sm80.context import STORED, Context
from nautile.dtypes import DTYPES
from nautile.terms import Cast, Index, Load, Term

__all__ = ["fetch", "fill", "gather", "prepare", "sources"]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """How a tile's pieces are dealt to threads: `run` elements each, `count` a thread."""

    run: int
    across: int
    total: int
    count: int
    fixed: bool
    step: int

    @staticmethod
    def of(ctx: Context, tile: SharedTile, size: int) -> _Pieces:
        threads = ctx.program.geometry.threads
        run = size // DTYPES[tile.element].bytes
        across = tile.columns // run
        total = across * tile.rows
        fixed = across <= threads and threads % across == 0
        step = threads // across if fixed else threads
        return _Pieces(run, across, total, -(-total // threads), fixed, step)

    def place(self) -> tuple[str, str]:
        """The row and piece of a thread's piece number i."""
        if self.fixed:
            return f"tid / {self.across} + i * {self.step}", f"tid % {self.across}"
        number = f"(tid + i * {self.step})"
        return f"{number} / {self.across}", f"{number} % {self.across}"

    @property
    def exact(self) -> bool:
        return self.total == self.count * (self.step * (self.across if self.fixed else 1))


def sources(ctx: Context, ring: Ring) -> None:
    """The thread's own offset into each copied tile, apart from the origins of loops: an element
    number in 32 bits where the buffer allows it, which costs half the registers of a pointer."""
    for tile in ring.tiles:
        if tile.filled == "compute":
            continue
        load = _load(tile)
        pieces = _Pieces.of(ctx, tile, int(tile.filled[4:]))
        fixed, _ = _split(ctx, load, tile)
        parts = _terms(ctx, load, fixed)
        for axis, step in ((tile.outer, offset(load).get(Index(tile.outer), 0)), (tile.inner, 1)):
            if axis not in ctx.loops and ctx.origin(axis) != "0":
                parts.append(f"{_wide(load)}{ctx.origin(axis)} * {step}")
        if pieces.fixed:
            parts.append(f"tid / {pieces.across} * {_outer_step(load, tile)}")
            parts.append(f"tid % {pieces.across} * {pieces.run}")
        kind = "nt_i64" if _wide(load) else "int"
        name = f"s_{ring.name}_{context.safe(tile.name)}"
        ctx.emit(f"const {kind} {name} = {' + '.join(parts) or '0'};")
        ctx.slots[f"{ring.name}.{tile.name}"] = name


def _outer_step(load: Load, tile: SharedTile) -> str:
    return f"{_wide(load)}{offset(load).get(Index(tile.outer), 0)}"


def _load(tile: SharedTile) -> Load:
    value = tile.value.argument if isinstance(tile.value, Cast) else tile.value
    assert isinstance(value, Load)
    return value


def _wide(load: Load) -> str:
    return "(nt_i64)" if load.buffer.size >= 2**31 else ""


def _terms(ctx: Context, load: Load, form: dict[Term, int]) -> list[str]:
    """The summands of an offset; each is widened before it is multiplied."""
    return [f"{_wide(load)}{ctx.integer(a)} * {f}" for a, f in form.items()]


def _split(ctx: Context, load: Load, tile: SharedTile) -> tuple[dict[Term, int], dict[Term, int]]:
    """The part of the offset that no loop changes, and the loops' part (the tile's axes apart)."""
    loops = set(ctx.loops)
    fixed: dict[Term, int] = {}
    moving: dict[Term, int] = {}
    for atom, factor in offset(load).items():
        if isinstance(atom, Index) and atom.axis in (tile.outer, tile.inner):
            continue
        (moving if atom.free & loops else fixed)[atom] = factor
    return fixed, moving


def fetch(ctx: Context, op: Fetch, slot: str) -> None:
    """Start the asynchronous copies of a block; the origins of its axes are set."""
    for tile in op.ring.tiles:
        if tile.filled != "compute":
            _copy(ctx, op.ring, tile, slot)


def _copy(ctx: Context, ring: Ring, tile: SharedTile, slot: str) -> None:
    load, size = _load(tile), int(tile.filled[4:])
    pieces = _Pieces.of(ctx, tile, size)
    row, piece = pieces.place()
    ctx.emit("{")
    ctx.emit(f"const {STORED[load.buffer.dtype]}* from = {_moved(ctx, ring, tile, load)};")
    ctx.unroll(f"for (int i = 0; i < {pieces.count}; i++) {{", 4 if pieces.count > 16 else 0)
    ctx.emit(f"const int r = {row}, c = {piece};")
    guard = "" if pieces.exact else f"if (r < {tile.rows}) "
    to = f"{slot} + {tile.offset} + {_shared_place(tile, size)}"
    if pieces.fixed:
        at = f"from + i * {pieces.step} * {_outer_step(load, tile)}"
    else:
        at = f"from + (r * {_outer_step(load, tile)} + c * {pieces.run})"
    valid = _valid(ctx, tile, pieces.run, size)
    if valid or size != 16:
        ctx.emit(f"{guard}nt_copy{size}_part({to}, {at}, {valid or size});")
    else:
        ctx.emit(f"{guard}nt_copy{size}({to}, {at});")
    ctx.emit("}", "}")


def _moved(ctx: Context, ring: Ring, tile: SharedTile, load: Load) -> str:
    """The thread's pointer in the block whose loop origins are set."""
    _, moving = _split(ctx, load, tile)
    wide = _wide(load)
    parts = [ctx.slots[f"{ring.name}.{tile.name}"]]
    parts += _terms(ctx, load, moving)
    for axis, step in ((tile.outer, _outer_step(load, tile)), (tile.inner, "1")):
        if axis in ctx.loops:
            parts.append(f"{wide}{ctx.origin(axis)} * {step}")
    return f"{ctx.buffer(load.buffer)} + ({' + '.join(parts)})"


def _shared_place(tile: SharedTile, size: int) -> str:
    """The byte of piece c of row r in its tile."""
    layout = tile.layout
    if size == 16:
        chunk, rest = "c", ""
    else:
        chunk, rest = f"(c / {16 // size})", f" + c % {16 // size} * {size}"
    if layout.mask:
        shifted = f"(r >> {layout.shift})" if layout.shift else "r"
        chunk = f"({chunk} ^ ({shifted} & {layout.mask}))"
    return f"r * {layout.pitch} + {chunk} * 16{rest}"


def _valid(ctx: Context, tile: SharedTile, run: int, size: int) -> str:
    """How many bytes of a piece lie inside the extents; empty where all do."""
    outer = f"{ctx.origin(tile.outer)} + r < {tile.outer.extent}" if ctx.ragged(tile.outer) else ""
    inner = ""
    if ctx.ragged(tile.inner):
        left = f"({tile.inner.extent} - ({ctx.origin(tile.inner)} + c * {run}))"
        width = size // run
        if tile.inner.extent % run == 0:
            inner = f"({left} > 0 ? {size} : 0)"
        else:
            inner = f"({left} >= {run} ? {size} : {left} > 0 ? {left} * {width} : 0)"
    tests = ([outer] if outer else []) + _coordinate_tests(ctx, tile)
    return f"({' && '.join(tests)} ? {inner or size} : 0)" if tests else inner


def _coordinate_tests(ctx: Context, tile: SharedTile) -> list[str]:
    """The coordinates that may leave the buffer, none of which moves inside a piece."""
    outside = beyond(_load(tile)) or []
    place = {tile.outer: f"({ctx.origin(tile.outer)} + r)"}
    return [f"(unsigned){ctx.integer(term, place)} < {extent}u" for term, extent in outside]


def gather(ctx: Context, op: Gather) -> None:
    """Read what the next Place of the ring needs; its arrays are declared."""
    for tile in op.ring.tiles:
        if tile.filled == "compute":
            place = ctx.gathered[f"{op.ring.name}.{tile.name}"][0]
            if place.early:
                _pieces_loop(ctx, tile, place.pieces)
                ctx.emit(*place.early, "}", "}")


def prepare(ctx: Context, op: Gather) -> None:
    """Print the terms of the ring's computed tiles, and declare the arrays of their reads."""
    for tile in op.ring.tiles:
        if tile.filled == "compute":
            made = _value(ctx, tile, _Pieces.of(ctx, tile, 16).count)
            ctx.gathered[f"{op.ring.name}.{tile.name}"] = made
            ctx.emit(*made[0].arrays)


def fill(ctx: Context, op: Place, slot: str) -> None:
    """Compute the elements of a block and store them."""
    for tile in op.ring.tiles:
        if tile.filled == "compute":
            made = ctx.gathered.pop(f"{op.ring.name}.{tile.name}", None)
            _compute(ctx, tile, slot, made or _value(ctx, tile, 0))


def _value(ctx: Context, tile: SharedTile, early: int) -> tuple[context.Place, list[Level], str]:
    """An element's text, with the lines that it needs."""
    positions = {tile.outer: "p_outer", tile.inner: "p_inner"}
    ragged = frozenset(a for a in positions if ctx.ragged(a))
    run = 16 // DTYPES[tile.element].bytes
    place = context.Place(positions, ragged, tile.inner, run, "e", "p_piece", pieces=early)
    levels = ctx.levels([tile.outer], [tile.inner])
    printer = ctx.printer(levels, place, precise=tile.element == "tf32")
    return place, levels, printer.value(tile.value, "f32")


def _pieces_loop(ctx: Context, tile: SharedTile, gathered: int) -> None:
    """Open the loop over a thread's pieces, and a scope for one inside the tile."""
    pieces = _Pieces.of(ctx, tile, 16)
    row, piece = pieces.place()
    most = 4 if pieces.count > 4 and not gathered else 0
    ctx.unroll(f"for (int i = 0; i < {pieces.count}; i++) {{", most)
    ctx.emit(f"const int r = {row}, c = {piece};")
    ctx.emit("{" if pieces.exact else f"if (r < {tile.rows}) {{")
    ctx.emit(f"const int p_outer = {ctx.origin(tile.outer)} + r;")
    ctx.emit(f"const int p_piece = {ctx.origin(tile.inner)} + c * {pieces.run};")


def _compute(
    ctx: Context, tile: SharedTile, slot: str, made: tuple[context.Place, list[Level], str]
) -> None:
    place, levels, value = made
    ctx.emit("{", *levels[0].lines)
    _pieces_loop(ctx, tile, place.pieces)
    ctx.emit(*levels[1].lines, *place.chunk, f"float v[{place.run}];")
    ctx.unroll(f"for (int e = 0; e < {place.run}; e++) {{")
    ctx.emit("const int p_inner = p_piece + e;", *levels[2].lines)
    inside = " && ".join(f"{place.positions[a]} < {a.extent}" for a in sorted(place.ragged))
    ctx.emit(f"v[e] = {f'{inside} ? {value} : 0.0f' if inside else value};", "}")
    to = f"{slot} + {tile.offset} + {_shared_place(tile, 16)}"
    ctx.emit(f"nt_store16({to}, {', '.join(_words(tile.element))});", "}", "}", "}")


def _words(element: str) -> list[str]:
    """The four words of a piece."""
    if element == "tf32":
        return [f"__float_as_uint(v[{e}])" for e in range(4)]
    return [f"nt_{element}x2_of_f32(v[{2 * e}], v[{2 * e + 1}])" for e in range(4)]
