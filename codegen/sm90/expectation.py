"""What a memory program's machine code must show (source.Expected): its products, and the work that
the program put under them.

An elementwise operation takes an instruction for each element that a thread has, at least; a fold
takes one too. Where a Pin holds such work above a wait, ptxas must have kept most of it there. A
descriptor that has left the uniform registers costs two moves a product; half a move is let pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautile.codegen.memory import FoldRow, Pointwise
from nautile.codegen.sm90.memory import (
    Issue,
    Midway,
    Next,
    Operation,
    Pin,
    RoleProgram,
    Stream,
    Tiles,
    WaitGroup,
)
from nautile.codegen.sm90.wgmma import DEPTH
from nautile.codegen.source import Expected
from nautile.codegen.tile import Bounds, Ref

__all__ = ["expected"]

_KEPT = 0.75  # of the instructions that stand under products in the memory program
_FEW = 4  # moves of descriptors that any loop may have


def expected(program: RoleProgram) -> Expected:
    """What the compiler's gate asks of the program's kernel."""
    bodies = list(_bodies(program.consumer))
    fragments = program.geometry.fragments
    steps = [fragments * _steps(body) for body in bodies]
    work = fragments * max(_overlapped(body) for body in bodies)
    return Expected(sum(steps), max(_FEW, max(steps) // 2), int(_KEPT * work), _registers(program))


def _registers(program: RoleProgram) -> int:
    """What the roles have a thread, on average, after they have exchanged registers."""
    if program.registers is None:
        return 0
    producer, consumer = program.registers
    consumers = program.geometry.consumers
    return -(-(producer + consumers * consumer) // (1 + consumers))


def _steps(body: tuple[Operation, ...]) -> int:
    """Instructions of the products of a 64-row fragment."""
    return sum(op.depth // DEPTH[op.operand] for op in body if isinstance(op, Issue))


def _bodies(body: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    """The operations outside and inside of streams, each list that may run."""
    yield body
    for op in body:
        if isinstance(op, Tiles):
            yield from _bodies(op.body if op.first is None else (op.first, *op.body))
        if isinstance(op, Next):
            yield op.products
        if isinstance(op, Stream):
            yield op.first
            if not op.first or not _is_single(op):
                yield op.body


def _is_single(op: Stream) -> bool:
    """Whether a stream is known to have one block, so that its code for others is none."""
    blocks = (-(-a.extent // tile) for a, tile in zip(op.axes, op.tiles, strict=True))
    return op.bounds == Bounds() and all(n == 1 for n in blocks)


def _overlapped(body: tuple[Operation, ...]) -> int:
    """Instructions of a 64-row fragment, at least, between the wait that leaves products in flight
    and the pinned wait after it."""
    count, work, flying = 0, 0, False
    for op in body:
        match op:
            case WaitGroup(pending):
                count, flying = (0 if pending else count), pending > 0
            case Pointwise(_, Ref()):
                pass  # a copy may cost nothing
            case Pointwise(target) | FoldRow(_, _, target):
                count += target.columns // 2
            case Midway(_, _, _, columns) if flying:
                work = max(work, count + columns)  # as many for the values as for their sum
            case Pin() if flying:
                work = max(work, count)
    return work
