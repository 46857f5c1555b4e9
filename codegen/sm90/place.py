"""Placement for the copy engine (TMA): an operand or an output as a view that one box walks.

A view has two axes of its own, those of the tile, and at most one more, into which everything else
that moves the tile (batch, heads, an outer loop) is gathered: its stride is the greatest common
divisor of theirs. The extents of the tile's axes are the view's, so that whatever a ragged tile has
beyond them is read as 0 and never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from nautile.codegen.affine import integer
from nautile.codegen.schedule.affine import ONE, coefficient, inside, offset
from nautile.codegen.schedule.structure import Contraction, Structure, UnsupportedError
from nautile.codegen.sm90.memory import PANEL_BYTES, Box
from nautile.codegen.source import TensorMap
from nautile.codegen.tile import Tile, Write
from nautile.codegen.types import carrier, dtype_of, interval
from nautile.dtypes import DTYPES
from nautile.terms import Apply, Axis, Cast, Const, Index, Load, Term, children, walk

__all__ = ["View", "box", "columns", "elements", "floats", "sources", "stored", "takes"]

ALIGNMENT = 16  # bytes: strides and starts of views
LARGEST_BOX = 256
STORED = ("bf16", "f16", "f32")  # types that the copy engine stores
ELEMENTS = {
    "bf16": ("bf16",),
    "f16": ("f16",),
    "tf32": ("tf32",),
    "f8e4m3": ("f8e4m3",),
    "f8e5m2": ("f8e5m2",),
}


@dataclass(frozen=True, slots=True)
class View:
    """A tensor map, the place of the tile in it, and which of its axes is the outer one."""

    map: TensorMap
    places: tuple[Term, ...]
    outer: int


def box(structure: Structure, c: Contraction, name: str, outside: Axis) -> Box:
    """The box of a pure operand over its row or column axis and the contracted axis."""
    load = _loaded(structure, name, c.operand)
    return _box(structure, name, load, c.axis, outside)


def takes(structure: Structure, c: Contraction, tile: Tile) -> bool:
    """Whether an operand is one tensor of the operand's type, or computed from other contractions;
    else it is formed of elements."""
    value = structure.operand(tile.name)
    if isinstance(value, Cast) and value.dtype == c.operand:
        value = value.argument
    plain = isinstance(value, Load) and value.buffer.dtype in ELEMENTS.get(c.operand, ())
    return value is None or plain


def sources(structure: Structure, c: Contraction, value: Term) -> tuple[tuple[Load, Box], ...]:
    """The boxes of what a right operand is formed of, all over the same axes in one order."""
    found: list[tuple[Load, Box]] = []
    whole = floats(value)
    for load in dict.fromkeys(t for t in walk(value) if isinstance(t, Load)):
        if not {c.column, c.axis} <= load.free or load not in whole:
            continue
        try:
            made = _box(structure, load.buffer.name, load, c.axis, c.column, any_order=True)
        except UnsupportedError:
            continue
        if not found or (made.outer, made.inner) == (found[0][1].outer, found[0][1].inner):
            found.append((load, made))
    if not found:
        raise UnsupportedError(f"no elements of {c.right.name} come as tiles")
    return tuple(found)


def elements(structure: Structure, load: Load, depth: Axis) -> Box | None:
    """The box of elements over the rows and a depth, or None where the copy engine has none."""
    try:
        return _box(structure, load.buffer.name, load, depth, structure.row)
    except UnsupportedError:
        return None


def _box(
    structure: Structure,
    name: str,
    load: Load,
    depth: Axis,
    outside: Axis,
    *,
    any_order: bool = False,
) -> Box:
    form = offset(load)
    inner = next((a for a in (depth, outside) if coefficient(form, a) == 1), None)
    if inner is None:
        raise UnsupportedError(f"{load.buffer.name} is contiguous along no axis of its tile")
    if inner == outside and DTYPES[load.buffer.dtype].bytes != 2 and not any_order:
        raise UnsupportedError(f"{load.buffer.dtype} operands must be contiguous along the depth")
    outer = outside if inner == depth else depth
    rows, columns = structure.width(outer), structure.width(inner)
    if rows > LARGEST_BOX:
        raise UnsupportedError(f"a box of {rows} rows")
    come = min(rows, outer.extent) if outer == outside else rows  # past the depth's end lie zeros
    made = view(load, inner, outer, come)
    return Box(name, outer, inner, rows, columns, load.buffer.dtype, made.map, made.places, come)


def _loaded(structure: Structure, name: str, operand: str) -> Load:
    """The one Load that an operand is, of a type that the products take as it is stored."""
    value = structure.operand(name)
    if isinstance(value, Cast) and value.dtype == operand:
        value = value.argument
    if not isinstance(value, Load):
        raise UnsupportedError(f"{name} is computed on its way")
    if value.buffer.dtype not in ELEMENTS.get(operand, ()):
        raise UnsupportedError(f"{value.buffer.dtype} elements of {name} are rounded to {operand}")
    return value


def _output(load: Load, row: Axis, column: Axis) -> View | None:
    """The view of an output that 64 rows x 128 bytes are stored to, or None where it has none."""
    if coefficient(offset(load), column) != 1:
        return None
    try:
        return view(load, column, row, 64)
    except UnsupportedError:
        return None


def view(load: Load, inner: Axis, outer: Axis, rows: int) -> View:
    """Rows of 128 bytes along `inner`, `rows` of them along `outer`."""
    form, size = offset(load), DTYPES[load.buffer.dtype].bytes
    step = coefficient(form, outer)
    if not inside(load) or step is None or step <= 0:
        raise UnsupportedError(f"{load.buffer.name} is not walked by steps along {outer}")
    rest = {a: f for a, f in form.items() if a not in (Index(inner), Index(outer), ONE)}
    least, most = _extremes(rest)
    start = form.get(ONE, 0) + least
    rest = {a: f for a, f in rest.items() if _moves(a)}
    least, most = _extremes(rest)
    axes: list[tuple[int, int, int, Term]] = [(step * size, outer.extent, rows, Index(outer))]
    if rest:
        unit = gcd(*rest.values())
        axes.append((unit * size, (most - least) // unit + 1, 1, _place(rest, unit, least)))
    axes.sort(key=lambda a: a[0])
    if any(a[0] % ALIGNMENT for a in axes) or start * size % ALIGNMENT:
        raise UnsupportedError(f"rows of {load.buffer.name} are not aligned to {ALIGNMENT} bytes")
    made = TensorMap(
        load.buffer.name,
        load.buffer.dtype,
        (inner.extent, *(a[1] for a in axes)),
        tuple(a[0] for a in axes),
        (PANEL_BYTES // size, *(a[2] for a in axes)),
        PANEL_BYTES,
        start * size,
    )
    places = (Index(inner), *(a[3] for a in axes))
    return View(made, places, 1 + next(i for i, a in enumerate(axes) if a[3] is Index(outer)))


def _moves(atom: Term) -> bool:
    bounds = interval(atom)
    return bounds is None or bounds[0] != bounds[1]


def _extremes(form: Mapping[Term, int]) -> tuple[int, int]:
    """The least and the largest sum of coefficient * atom."""
    least = most = 0
    for atom, factor in form.items():
        bounds = interval(atom)
        if bounds is None:
            raise UnsupportedError("a tile lies where values from memory tell")
        ends = (bounds[0] * factor, bounds[1] * factor)
        least, most = least + min(ends), most + max(ends)
    return least, most


def _place(form: Mapping[Term, int], unit: int, least: int) -> Term:
    total: Term = Const(-least // unit)
    for atom, factor in form.items():
        total = integer("add", integer("mul", atom, Const(factor // unit)), total)
    return total


def columns(structure: Structure, s: Write) -> Axis | None:
    """The column axis of what is written; None for one value a row."""
    if s.source.name in structure.columns:
        return structure.columns[s.source.name]
    across = {c.column for c in structure.contractions.values()}
    own = [a for a in s.source.axes if a in across]
    if structure.row not in s.source.axes or len(own) > 1:
        raise UnsupportedError(f"{s.source.name} is not over rows and at most one column axis")
    return own[0] if own else None


def stored(structure: Structure, s: Write) -> View | None:
    """The view through which the copy engine stores an output, or None where it cannot: elements of
    bf16, f16 and f32, rows of aligned pieces of 128 bytes (the last may be cut by the extent)."""
    column, size = columns(structure, s), DTYPES[s.buffer.dtype].bytes
    if column is None or s.buffer.dtype not in STORED:
        return None
    tile = structure.program.tiles[column]
    if tile % (PANEL_BYTES // size) and tile < column.extent:
        return None
    coordinates = tuple(structure.inline(c) for c in s.coordinates)
    return _output(Load(s.buffer, coordinates), structure.row, column)


def floats(value: Term) -> set[Term]:
    """The loads of floats, and those of integers of a byte that nothing but float arithmetic
    reads."""
    loads = {t for t in walk(value) if isinstance(t, Load)}
    readers: dict[Term, list[Term]] = {t: [] for t in loads}
    for term in walk(value):
        for child in children(term):
            if child in readers:
                readers[child].append(term)
    return {t for t in loads if carrier(t.buffer.dtype) == "f32" or _as_float(t, readers[t])}


def _as_float(load: Load, readers: list[Term]) -> bool:
    if load.buffer.dtype != "i8":
        return False
    return all(
        (isinstance(r, Cast) and carrier(r.dtype) == "f32")
        or (isinstance(r, Apply) and r.operation in _EXACT and dtype_of(r) == "f32")
        for r in readers
    )


_EXACT = ("mul", "add", "sub", "div", "neg")
