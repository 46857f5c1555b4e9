"""Memory programs as text, for people: rings and their tiles, then one operation a line."""

from __future__ import annotations

from collections.abc import Iterator

from nautile.codegen.memory import (
    Clear,
    Fetch,
    FoldDepth,
    FoldRow,
    Form,
    Gather,
    Keep,
    MemoryProgram,
    Multiply,
    Operation,
    Pack,
    Place,
    Pointwise,
    Rescale,
    Settle,
    Store,
    Stream,
    Wait,
)
from nautile.codegen.show import show_value

__all__ = ["show_memory", "show_operation"]


def show_memory(program: MemoryProgram) -> str:
    """The whole program."""
    return "\n".join(_lines(program))


def _lines(program: MemoryProgram) -> Iterator[str]:
    g = program.geometry
    yield (
        f"memory program {program.name}: {g.warp_rows} x {g.warp_columns} warps over {g.rows}"
        f" rows of {g.row}; {program.shared_bytes} bytes shared"
    )
    for ring in program.rings:
        yield f"  ring {ring.name}: {ring.stages} x {ring.slot_bytes} bytes at {ring.offset}"
        for tile in ring.tiles:
            layout = tile.layout
            yield (
                f"    {tile.name}[{tile.outer}, {tile.inner}]: {tile.rows} x {tile.columns}"
                f" {tile.element} at {tile.offset}, pitch {layout.pitch}, mask {layout.mask},"
                f" {tile.filled}"
            )
    for role in program.roles:
        yield f"  role {role.name}"
        yield from _body(role.operations, 2)


def _body(body: tuple[Operation, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for op in body:
        if isinstance(op, Stream):
            yield f"{pad}before blocks of {', '.join(map(str, op.axes))}"
            yield from _body(op.prologue, depth + 1)
            yield f"{pad}for each block of {', '.join(map(str, op.axes))}"
            yield from _body(op.body, depth + 1)
        else:
            yield pad + show_operation(op)


def show_operation(op: object) -> str:
    """One operation on a line; its name alone where it has nothing to say."""
    match op:
        case Fetch(ring, ahead) | Gather(ring, ahead) | Place(ring, ahead):
            return f"{type(op).__name__.lower()} {ring.name} of block +{ahead}"
        case Wait(pending):
            return f"wait until {pending} groups are pending"
        case Multiply(pairs, left, _, axis, depth, operand, _, formed, split, _):
            into = ", ".join(f"{f.name} += {left.name} x {t.name}" for f, t, _ in pairs)
            how = "" if formed is None else ", left operand formed"
            how += ", three products of pieces" if split else ""
            return f"multiply {operand}: {into} over {depth} of {axis}{how}"
        case Pack(target, source, operand):
            return f"pack {target.name} <- {source.name} as {operand}"
        case FoldRow(target, monoid, source, carried, settled):
            how = ("carried " if carried else "") + ("settled" if settled else "per thread")
            return f"fold {target.name} <- {monoid} of {source.name}, {how}"
        case FoldDepth(target, monoid, _, axis, depth, tile):
            where = "" if tile is None else f", from {tile.name}"
            return f"fold {target.name} <- {monoid} over {depth} of {axis}{where}"
        case Form(tile, _, _, axis, depth, operand):
            return f"form {tile.name} as {operand} in place, {depth} of {axis}"
        case Rescale(targets, factor):
            return f"rescale {', '.join(t.name for t in targets)} by {factor.name}"
        case Store(buffer, _, source, staging):
            return f"store {buffer.name} <- {source.name}{'' if staging is None else ', staged'}"
        case Keep(target, source):
            return f"keep {target.name} <- {source.name}"
        case Pointwise(target, value, whole):
            plain = "" if whole is None else ", plain in whole blocks"
            return f"{target.name} = {show_value(value)}{plain}"
        case Clear(target, identity):
            return f"clear {target.name} to {identity}"
        case Settle(target, monoid):
            return f"settle {target.name} by {monoid}"
    return type(op).__name__.lower()
