"""Placement: each pure operand of a contraction becomes a tile in shared memory.

An operand that is one Load of the operand's own type, contiguous along one of its axes, is copied
asynchronously in pieces of 16, 8 or 4 bytes, whichever its alignment allows; a coordinate that may
leave the buffer is tested once a piece, unless it moves inside one. Any other (a cast, a product
with a row factor, a gather, an odd stride) is computed on its way through registers. A left operand
whose elements are folded too is copied raw, and formed when its fragments are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautile.codegen.memory import Layout, SharedTile
from nautile.codegen.schedule.affine import beyond, coefficient, divisor, offset
from nautile.codegen.schedule.structure import (
    OPERANDS,
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Fold
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Cast, Load, Term, walk

__all__ = ["gathered_words", "loaded", "place", "raw", "whole"]

_COPIED = {"bf16": ("bf16",), "f16": ("f16",), "tf32": ("tf32", "f32")}


def place(structure: Structure, name: str, outside: Axis, depth: Axis, operand: str) -> SharedTile:
    """The shared tile of a pure operand over (row or column axis, contracted axis)."""
    value = structure.operand(name)
    assert value is not None
    element = OPERANDS[operand]
    _check_free(structure, value, (outside, depth))
    if operand not in (element, "f32"):
        value = Cast(operand, value)
    return _tile(structure, name, value, (outside, depth), element)


def raw(structure: Structure, c: Contraction) -> list[SharedTile]:
    """The elements of a left operand that is computed from them, where a fold along its depth reads
    them as well, and they can be copied as they are: a tile for each load, none where none can."""
    value, element = structure.operand(c.left.name), OPERANDS[c.operand]
    if value is None or isinstance(value, Load) or element == "tf32":
        return []
    found: list[SharedTile] = []
    inside = set(walk(value))
    for load in dict.fromkeys(_folded(structure, c)):
        if load in inside and load.buffer.dtype in ("bf16", "f16"):
            name = f"{c.left.name}_{len(found)}" if found else c.left.name
            tile = _tile(structure, name, load, (structure.row, c.axis), load.buffer.dtype)
            found += [tile] if tile.filled != "compute" else []
    return found


def whole(tile: SharedTile, depth: Axis, step: int) -> SharedTile:
    """The same for all positions of the depth, in whole steps."""
    extent = -(-depth.extent // step) * step
    if tile.inner != depth:
        return replace(tile, rows=extent)
    layout = Layout.of(extent * DTYPES[tile.element].bytes)
    return replace(tile, columns=extent, layout=layout)


def _folded(structure: Structure, c: Contraction) -> Iterator[Load]:
    """Loads over rows and the depth of a contraction that are folded along it."""
    for s in statements(structure.program.body):
        value = structure.folded(s) if isinstance(s, Fold) and s.axis == c.axis else None
        for term in walk(value) if value is not None else ():
            if isinstance(term, Load) and {structure.row, c.axis} <= term.free:
                yield term


def _tile(
    structure: Structure, name: str, value: Term, axes: tuple[Axis, Axis], element: str
) -> SharedTile:
    filled, inner = _filling(structure, value, axes, element)
    outside, depth = axes
    outer = outside if inner == depth else depth
    rows, columns = structure.width(outer), structure.width(inner)
    row_bytes = columns * DTYPES[element].bytes
    swizzled = element != "tf32" or inner == depth
    layout = Layout.of(row_bytes) if swizzled else Layout.padded(row_bytes)
    return SharedTile(name, outer, inner, rows, columns, element, value, filled, layout)


def _check_free(structure: Structure, value: Term, own: tuple[Axis, Axis]) -> None:
    for axis in value.free:
        if axis not in own and structure.program.tiles[axis] > 1:
            raise UnsupportedError(f"an operand varies along {axis}, which is no axis of its own")


def _filling(
    structure: Structure, value: Term, axes: tuple[Axis, Axis], element: str
) -> tuple[str, Axis]:
    """How an operand is filled, and its contiguous axis."""
    bare = value.argument if isinstance(value, Cast) and value.dtype == element else value
    if isinstance(bare, Load) and bare.buffer.dtype in _COPIED[element]:
        for inner in axes:
            size = _copy_size(bare, inner, axes) if _tested_by_piece(bare, inner) else 0
            if size:
                return f"copy{size}", inner
    return "compute", _longest_run(value, axes)


def _tested_by_piece(load: Load, inner: Axis) -> bool:
    """Whether a piece along `inner` lies inside the buffer as a whole, or outside it."""
    outside = beyond(load)
    return outside is not None and not any(inner in c.free for c, _ in outside)


def _copy_size(load: Load, inner: Axis, axes: tuple[Axis, Axis]) -> int:
    """The bytes of one asynchronous copy along `inner`: 16, 8, 4, or 0 where none is aligned."""
    form = offset(load)
    outer = axes[0] if inner == axes[1] else axes[1]
    if coefficient(form, inner) != 1 or coefficient(form, outer) is None:
        return 0
    width = DTYPES[load.buffer.dtype].bytes
    size = divisor(form, inner, 16 // width) * width
    return size if size >= 4 else 0


def loaded(tile: SharedTile) -> Load:
    """The one Load that a copied tile holds."""
    value = tile.value.argument if isinstance(tile.value, Cast) else tile.value
    assert isinstance(value, Load)
    return value


def gathered_words(tile: SharedTile, threads: int) -> int:
    """Registers of a thread that hold a computed tile's loads (those over both of its axes)."""
    elements = tile.rows * tile.columns // threads
    own = {tile.outer, tile.inner}
    loads = {t for t in walk(tile.value) if isinstance(t, Load) and own <= t.free}
    return sum(elements * DTYPES[t.buffer.dtype].bytes // 4 for t in loads)


def _longest_run(value: Term, axes: tuple[Axis, Axis]) -> Axis:
    """The axis along which the largest Load is contiguous; the contracted axis where none is."""
    loads = [t for t in walk(value) if isinstance(t, Load)]
    for load in sorted(loads, key=lambda t: -t.buffer.size):
        for axis in axes:
            if coefficient(offset(load), axis) == 1:
                return axis
    return axes[1]
