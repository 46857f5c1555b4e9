"""Pointwise terms into registers: plainly, or as their accuracy allows (accuracy.py): tanh of small
arguments by a polynomial (near.py), quotients by reciprocals that four elements share
(reciprocals.py); a value in two halves (midway.py).
"""

from __future__ import annotations

from dataclasses import replace

from nautile.codegen.memory import Fragment, Pointwise
from nautile.codegen.show import show_value
from nautile.codegen.sm90.accuracy import bounded, share
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.elements import bare, begun, elements, fold_columns, note, pair, walk
from nautile.codegen.sm90.memory import Midway
from nautile.codegen.sm90.near import capped, fourfold, in_place
from nautile.codegen.sm90.reciprocals import Divided, divided
from nautile.codegen.tile import Ref, Tile
from nautile.terms import Apply, Axis, Const, Term, apply
from nautile.terms import walk as subterms

__all__ = ["half", "other_half", "pointwise"]

MOST_DIVISORS = 4  # of one term that share reciprocals
BOUNDED = 3e-7  # the error of tanh by an exponential
QUINTIC = 5.4e-6  # of nt_tanh_near_5


def pointwise(ctx: Context, op: Pointwise) -> None:
    """A term into its fragment; in whole blocks of the enclosing loop, its plain form."""
    note(ctx, f"{op.target.name} = {show_value(op.value)}")
    if op.whole is None or not ctx.whole:
        _assign(ctx, op, op.value)
        return
    ctx.emit(f"if ({ctx.whole}) {{")
    _assign(ctx, op, op.whole)
    ctx.emit("} else {")
    _assign(ctx, op, op.value)
    ctx.emit("}")


def _assign(
    ctx: Context, op: Pointwise, value: Term, columns: tuple[int, int] | None = None
) -> None:
    column = op.target.column
    if column is None or not _may_err(op, value):
        _plain(ctx, op, bounded(value) if _may_err(op, value) else value, columns)
        return
    curve = capped(value, frozenset((ctx.roles.geometry.row, column)))
    if curve is None:
        _divided(ctx, op, value, columns)
    else:
        _capped(ctx, op, value, curve, columns)


def _may_err(op: Pointwise, value: Term) -> bool:
    """Whether forms of absolute accuracy do, for every tanh of the term."""
    curves = [t for t in subterms(value) if isinstance(t, Apply) and t.operation == "tanh"]
    return op.absolute > 0 and all(_error(op, value, c) >= BOUNDED for c in curves)


def _error(op: Pointwise, value: Term, curve: Apply) -> float:
    """The error that a tanh may have."""
    other = Ref(Tile("curve", op.target.tile.axes, "f32"))
    return op.absolute / max(share(in_place(value, curve, other), other.tile.name), 1e-9)


def _plain(
    ctx: Context, op: Pointwise, value: Term, columns: tuple[int, int] | None = None
) -> None:
    element = ctx.element(op.target)
    start, stop = columns or (0, op.target.columns)
    walk(
        ctx,
        op.target.column,
        stop,
        [value],
        lambda texts: [f"{element} = {bare(texts[0])};"],
        op.precise,
        start,
    )


def _capped(
    ctx: Context, op: Pointwise, value: Term, curve: Apply, columns: tuple[int, int] | None
) -> None:
    """Four times tanh's argument in the value's place, then a form of tanh for what they are."""
    element, axes = ctx.element(op.target), op.target.tile.axes
    four = _leaf(ctx, "v", element, axes)
    form = "nt_tanh_near" if _error(op, value, curve) < QUINTIC else "nt_tanh_near_5"
    near = _leaf(ctx, "v", f"({form}({element}))", axes)
    ctx.emit("{", "nt_u32 large = 0;")
    lines = [f"large |= __float_as_uint({element});"]
    start, stop = columns or (0, op.target.columns)
    walk(
        ctx,
        op.target.column,
        stop,
        [fourfold(curve)],
        lambda texts: [f"{element} = {bare(texts[0])};", *lines],
        False,
        start,
    )
    ctx.emit("if (nt_any(large & 0x40000000u)) {  // some are 2 or more in size")
    quarter = apply("tanh", apply("mul", four, Const(0.25)))
    _divided(ctx, op, in_place(value, curve, quarter), columns)
    ctx.emit("} else {")
    _plain(ctx, op, in_place(value, curve, near), columns)
    ctx.emit("}", "}")


def _leaf(ctx: Context, prefix: str, text: str, axes: tuple[Axis, ...]) -> Ref:
    """A term that is spelled so in the loops over elements."""
    tile = Tile(ctx.fresh(prefix), axes, "f32")
    ctx.spelled[tile.name] = text
    ctx.leaves[tile.name] = Fragment(tile.name, tile, None)
    return Ref(tile)


def _divided(ctx: Context, op: Pointwise, value: Term, columns: tuple[int, int] | None) -> None:
    """By reciprocals that elements share, where it divides."""
    assert op.target.column is not None
    names = [ctx.fresh("d") for _ in range(MOST_DIVISORS)]
    axes = frozenset((ctx.roles.geometry.row, op.target.column))
    value = bounded(value)
    found = divided(value, axes, names)
    if found is None:
        _plain(ctx, op, value, columns)
    else:
        _divide(ctx, op, found, columns or (0, op.target.columns))


def _divide(ctx: Context, op: Pointwise, found: Divided, columns: tuple[int, int]) -> None:
    """The divisors of a thread's four elements of eight columns, the reciprocals, the term."""
    column = op.target.column
    assert column is not None
    for tile in found.tiles:
        ctx.spelled[tile.name] = f"{tile.name}[e][q]"
        ctx.leaves[tile.name] = Fragment(tile.name, tile, None)
    ctx.emit("{")
    before = begun(
        ctx,
        column,
        found.divisors,
        lambda texts: [
            f"{tile.name}[e][q] = {bare(text)};"
            for tile, text in zip(found.tiles, texts, strict=True)
        ],
        False,
    )
    element = ctx.element(op.target)
    after = begun(ctx, column, [found.term], lambda t: [f"{element} = {bare(t[0])};"], False)
    ctx.unroll(f"for (int j = {columns[0] // 8}; j < {columns[1] // 8}; j++) {{")
    ctx.emit(*[f"float {tile.name}[{ctx.rows}][2];" for tile in found.tiles])
    for number, (place, levels, inner) in enumerate((before, after)):
        elements(ctx, column, place, levels[2], inner)
        if number == 0:
            for tile, kept in zip(found.tiles, found.kept, strict=True):
                _reciprocals(ctx, tile.name, kept)
    ctx.emit("}", "}")


def _reciprocals(ctx: Context, name: str, kept: bool) -> None:
    function = "nt_reciprocals" if kept else "nt_reciprocals_of_numbers"
    for e in range(0, ctx.rows, 2):
        places = ", ".join(f"{name}[{e + n // 2}][{n % 2}]" for n in range(4))
        ctx.emit(f"{function}({places});")


def half(ctx: Context, op: Midway) -> None:
    """The first columns of a value, and their sum."""
    note(ctx, f"{op.value.target.name} = {show_value(op.value.value)}, the first half")
    _assign(ctx, op.value, op.value.value, (0, op.columns))
    part = replace(op.fold, target=op.part, carried=False, repair=None)
    fold_columns(ctx, part, pair(ctx, part, "0"), (8, op.columns))


def other_half(ctx: Context, op: Midway) -> None:
    """The other columns, and what they make of the fold."""
    width = op.value.target.columns
    note(ctx, f"the other half, and {op.fold.target.name} = sum of {op.fold.source.name}")
    _assign(ctx, op.value, op.value.value, (op.columns, width))
    fold_columns(ctx, op.fold, f"{ctx.array(op.part.name)}[e]", (op.columns, width))
