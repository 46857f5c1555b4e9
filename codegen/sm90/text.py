"""Memory programs with roles as text, for people: rings and their boxes, then the operations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nautile.codegen.memory import (
    Clear,
    FoldRow,
    Fragment,
    Keep,
    Pack,
    Pointwise,
    Rescale,
    Settle,
    Store,
)
from nautile.codegen.schedule.text import show_operation
from nautile.codegen.show import show_value
from nautile.codegen.sm90.memory import (
    Advance,
    Ahead,
    Arrive,
    Begin,
    Box,
    Convert,
    Fill,
    Form,
    Issue,
    Mask,
    MaskTail,
    Midway,
    Next,
    Operation,
    Pin,
    Promote,
    Release,
    RoleProgram,
    Skip,
    StoreTile,
    Stream,
    Tiles,
    Unpack,
    WaitEmpty,
    WaitFull,
    WaitGroup,
)

__all__ = ["show_memory"]


def show_memory(program: RoleProgram) -> str:
    """The whole program."""
    return "\n".join(_lines(program))


def _lines(program: RoleProgram) -> Iterator[str]:
    g = program.geometry
    how = "take tiles in turn" if g.alternate else "share a tile"
    how += f", {g.cluster} blocks a cluster," * (g.cluster > 1)
    yield (
        f"memory program {program.name}: {g.consumers} consumer warpgroups {how} of {g.rows} rows"
        f" of {g.row}; {program.shared_bytes} bytes shared"
    )
    if program.registers:
        yield f"  registers: producer {program.registers[0]}, consumers {program.registers[1]}"
    for ring in program.rings:
        yield f"  ring {ring.name}: {ring.stages} x {ring.slot_bytes} bytes at {ring.offset}"
        yield from (f"    {_box(b)}" for b in ring.boxes)
    for a in program.accumulators:
        parts = ", ".join(f"{n} from {s}" if s else n for n, s in a.parts)
        yield f"  registers {a.name}: {a.registers} x {g.fragments} a thread: {parts}"
    yield "  role producer"
    yield from _body(program.producer, 2)
    if program.former:
        yield "  role formers"
        yield from _body(program.former, 2)
    yield "  role consumer"
    yield from _body(program.consumer, 2)


def _box(b: Box) -> str:
    places = ", ".join(map(show_value, b.places))
    return (
        f"{b.name}[{b.outer}, {b.inner}]: {b.rows} x {b.columns} {b.element} at {b.offset},"
        f" {b.panels} panels of 128 bytes; {b.map.buffer} at ({places})"
        f"{f', by {b.blocks} blocks together' * (b.blocks > 1)}"
    )


def _body(body: tuple[Operation, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for op in body:
        if isinstance(op, Stream):
            axes = ", ".join(map(str, op.axes))
            order = " from the last down" if op.descending else ""
            if op.first:
                yield f"{pad}for the first block of {axes}"
                yield from _body(op.first, depth + 1)
            yield f"{pad}for each {'other ' * bool(op.first)}block of {axes}{order}"
            yield from _body(op.body, depth + 1)
        elif isinstance(op, Tiles):
            if op.first:
                yield from _body((op.first,), depth)
            yield f"{pad}for each tile, {op.order}"
            yield from _body(op.body, depth + 1)
        elif isinstance(op, Next):
            yield f"{pad}for the next tile, if there is one"
            yield from _body((*op.waits, *op.products), depth + 1)
        elif isinstance(op, Midway):
            yield f"{pad}{_line(op.value)}, and {op.part.name}, its sum: {op.columns} columns"
            yield from _body(op.between, depth + 1)
            yield f"{pad}the other columns of {op.value.target.name}"
            yield pad + _line(op.fold)
        else:
            yield pad + _line(op)


def _line(op: Operation) -> str:
    match op:
        case WaitEmpty(ring) | Fill(ring) | Advance(ring) | WaitFull(ring) | Arrive(ring):
            return f"{_words(op)} {ring.name}"
        case Skip(ring, _, _, others):
            return f"skip {ring.name}, tiles {others}"
        case Release(ring, age):
            return f"release {ring.name}{f' of {age} block before' * (age > 0)}"
        case Pointwise(target, value):
            return f"{target.name} = {show_value(value)}"
        case Begin(target):
            return f"begin {target.name}"
        case Issue():
            return _issue(op)
        case WaitGroup(pending, pinned):
            return f"wait group {pending}: {', '.join(pinned)}"
        case Ahead(load):
            return f"ahead: {show_value(load)}"
        case Promote(target, source):
            return f"promote {target.name} += {source.name}"
        case Unpack(target, box):
            return f"unpack {target.name} from {box.name}"
        case Convert(target, ring, _, value):
            return f"convert {target.name} of {ring.name} = {show_value(value)}"
        case Form(source, box):
            return f"form {box.name} <- {source.name}"
        case Pin(source):
            return f"pin {source.name}"
        case Mask(target, keep, constant):
            return f"mask {target.name} where not {show_value(keep)}: {constant}"
        case MaskTail(target, constant):
            return f"mask {target.name} past the extent: {constant}"
        case StoreTile(buffer, _, _, _, value):
            return f"store tile {buffer.name} <- {show_value(value)}"
    known = isinstance(op, (Clear, FoldRow, Settle, Rescale, Keep, Pack, Store))
    return show_operation(op) if known else _words(op)


def _issue(op: Issue) -> str:
    right = " | ".join(b.name for b, _ in op.pairs)
    left = op.left.name
    where = "registers" if isinstance(op.left, Fragment) else "shared memory"
    return (
        f"issue {op.target.name} ({op.start}) += {left} x {right} over {op.depth} of {op.axis},"
        f" {op.columns} columns of {op.operand}, left in {where}"
    )


def _words(op: Operation) -> str:
    """The operation's name in words."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(op).__name__).lower()
