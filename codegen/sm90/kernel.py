"""A memory program with roles as one CUDA kernel: persistent blocks of a producer and consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from nautile.codegen import closing
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import identifier, pruned
from nautile.codegen.memory import (
    Close,
)
from nautile.codegen.sm80.order import block_count, limits
from nautile.codegen.sm90 import elements, pointwise
from nautile.codegen.sm90.boxes import FORMERS
from nautile.codegen.sm90.compute import compute
from nautile.codegen.sm90.context import Context, context_of
from nautile.codegen.sm90.convert import convert
from nautile.codegen.sm90.cursors import advance, arrive, fill, release, skip, turn
from nautile.codegen.sm90.expectation import expected
from nautile.codegen.sm90.grid import handed_on, named, number_of, origins
from nautile.codegen.sm90.memory import (
    Advance,
    Arrive,
    CommitGroup,
    Convert,
    Fence,
    Fill,
    Midway,
    Next,
    Operation,
    PairArrive,
    PairStart,
    PairSync,
    Release,
    RoleProgram,
    Skip,
    StoreTile,
    Stream,
    Tiles,
    WaitEmpty,
    WaitFull,
    operations,
)
from nautile.codegen.sm90.parameters import maps, pointers
from nautile.codegen.sm90.prelude import TOGETHER, prelude
from nautile.codegen.sm90.store import LEADER
from nautile.codegen.sm90.text import show_memory
from nautile.codegen.sm90.wgmma import wrappers
from nautile.codegen.source import CudaKernel
from nautile.codegen.tidy import tidied

__all__ = ["BODY", "print_kernel"]

BODY = "// kernel"
_CLOSING = 15  # the named barrier at which warpgroups that share a tile close its group
ARCHITECTURE = "sm_90a"
_HEADERS = ("scalar.cuh", "copy.cuh", "mma.cuh", "sm90.cuh", "closing.cuh")


def print_kernel(program: RoleProgram, close: Close | None = None) -> CudaKernel:
    """The CUDA text and its launch; with `close`, the last block of each group merges states."""
    reads, writes = pointers(program, close)
    buffers = {b: f"g_{number}_{identifier(b.name)}" for number, b in enumerate((*reads, *writes))}
    named_maps = maps(program)
    counters = int(any(isinstance(o, Tiles) and o.order == "dynamic" for o in program.producer))
    own = counters
    counters += closing.group_count(close) if close else 0
    ctx = context_of(program, buffers, named_maps)
    ctx.depth = 0
    name = f"k_{identifier(program.name)}"
    head = tidied(_section(ctx, lambda: prelude(ctx, name, reads, writes, counters)))
    producer = _section(ctx, lambda: _producer(ctx))
    former = _section(ctx, lambda: _former(ctx))
    end = () if close is None else (close, own)
    consumer = _section(ctx, lambda: _consumer(ctx, *end))
    text = "\n".join([*head, *pruned(producer), *pruned(former), *pruned(consumer), "}"]) + "\n"
    notes = "".join(f"// {line}\n" for line in show_memory(program).splitlines())
    used = wrappers(ctx.products.values(), ctx.waits.values())
    full = inline(f"{used}\n{BODY}\n{notes}{text}", *_HEADERS)
    return CudaKernel(
        name,
        full,
        (program.blocks, 1, 1),
        program.geometry.threads,
        program.shared_bytes,
        tuple(b.name for b in (*reads, *writes)),
        architecture=ARCHITECTURE,
        maps=tuple(named_maps),
        counters=counters,
        expected=expected(program),
    )


def _section(ctx: Context, write: Callable[[], None]) -> list[str]:
    """The lines that a part of the printer writes."""
    ctx.lines = []
    write()
    return ctx.lines


def _all(program: RoleProgram) -> list[Operation]:
    return [*operations(program.producer), *operations(program.consumer)]


# -- roles ------------------------------------------------------------------------------------


def _producer(ctx: Context) -> None:
    registers = ctx.roles.registers
    ctx.emit("if (warpgroup == 0) {")
    if registers:
        ctx.emit(f"nt_give_registers<{registers[0]}>();")
    ctx.emit("if (threadIdx.x == 0) {")
    _cursors(ctx, 1)
    _body(ctx, ctx.roles.producer)


def _former(ctx: Context) -> None:
    if ctx.roles.former:
        ctx.emit(f"}} else if (warp >= {4 - FORMERS}) {{  // forms operands")
        _cursors(ctx, 1)
        ctx.emit(*[f"{ctx.parity(r)} = 0;" for r in ctx.roles.rings if r.raw])
        _body(ctx, ctx.roles.former)
    ctx.emit("}")


def _consumer(ctx: Context, close: Close | None = None, counters: int = 0) -> None:
    """`close` ends every tile; its counters follow `counters` others."""
    program = ctx.roles
    if close is not None:
        own = _meeting(program)
        ctx.ends = lambda: list(closing.close(close, ctx.buffer, ctx.origin, own, counters))
    ctx.emit("} else {")
    if program.registers:
        ctx.emit(f"nt_take_registers<{program.registers[1]}>();")
    ctx.emit("const int w = warpgroup - 1;", "const int lane_column = (lane & 3) * 2;")
    elements.declare(ctx)
    _cursors(ctx, 0)
    _body(ctx, program.consumer)
    if any(isinstance(o, StoreTile) for o in _all(program)):
        ctx.emit(f"if ({LEADER}) nt_bulk_wait<0>();")
    ctx.emit("}")
    if program.geometry.cluster > 1:
        ctx.emit("// no block ends while another reaches into it", "__syncwarp();", *TOGETHER)


def _meeting(program: RoleProgram) -> closing.Barrier:
    """Where the threads of a tile meet: those of a warpgroup, or of all that share it."""
    g = program.geometry
    if g.alternate or g.consumers == 1:
        number, threads, own = "1 + w", 128, "(threadIdx.x & 127)"
    else:
        number, threads, own = str(_CLOSING), 128 * g.consumers, "(threadIdx.x - 128)"
    meet = f"nt_named_sync({number}, {threads});"
    any_ = f"nt_named_any({number}, {threads}, {{}})"
    by_copy_engine = any(isinstance(o, StoreTile) for o in operations(program.consumer))
    stored = f"if ({LEADER}) nt_bulk_wait<0>();" if by_copy_engine else ""
    return closing.Barrier(threads, own, meet, any_, stored)


def _cursors(ctx: Context, parity: int) -> None:
    """The slot of every ring that comes next, and the parity of the phase to wait for."""
    for ring in ctx.roles.rings:
        slot = f"int slot_{ring.name} = 0; " * (ring.stages > 1)
        ctx.emit(f"{slot}nt_u32 parity_{ring.name} = {parity};")


def _body(ctx: Context, body: Sequence[Operation]) -> None:
    for op in body:
        _operation(ctx, op)


def _operation(ctx: Context, op: Operation) -> None:
    match op:
        case Tiles():
            _tiles(ctx, op)
        case Next():
            _next(ctx, op)
        case Stream():
            _stream(ctx, op)
        case WaitEmpty(ring):
            ctx.emit(f"nt_barrier_wait({ctx.barrier(ring, 'empty')}, {ctx.parity(ring)});")
        case WaitFull(ring):
            ctx.emit(f"nt_barrier_wait({ctx.barrier(ring, 'full')}, {ctx.parity(ring)});")
        case Fill(ring):
            fill(ctx, ring)
        case Convert():
            convert(ctx, op)
        case Arrive(ring):
            arrive(ctx, ring)
        case Advance(ring):
            advance(ctx, ring)
        case Skip():
            skip(ctx, op)
        case Release(ring, age):
            release(ctx, ring, age)
        case Fence():
            ctx.emit("nt_wgmma_fence();")
        case CommitGroup():
            ctx.emit("nt_wgmma_commit();")
        case PairStart() | PairSync() | PairArrive():
            turn(ctx, op)
        case Midway():
            pointwise.half(ctx, op)
            _body(ctx, op.between)
            pointwise.other_half(ctx, op)
        case _:
            compute(ctx, op)


# -- tiles ------------------------------------------------------------------------------------


def _tiles(ctx: Context, op: Tiles) -> None:
    """The tiles of this block; a dynamic number is drawn when the carrier's slot is free, and read
    when it is full."""
    geometry = ctx.roles.geometry
    total = prod(-(-a.extent // t) for a, t in ctx.roles.grid) // geometry.cluster
    if op.first:
        _begun_tiles(ctx, op, total)
        return
    if op.order == "static":
        start, step = "blockIdx.x", "gridDim.x"
        if geometry.cluster > 1:
            start, step = (f"{each} / {geometry.cluster}" for each in (start, step))
        fills = any(isinstance(o, (Fill, Convert)) for o in operations(op.body))
        if geometry.alternate and not fills:
            whole = step if step == "gridDim.x" else f"({step})"
            start, step = f"{start} + w * {whole}", f"{geometry.consumers} * {whole}"
        ctx.emit(f"for (int number = {start}; number < {total}; number += {step}) {{")
        origins(ctx)
        _body(ctx, op.body)
        ctx.emit("}")
        _closings(ctx, start, step, total)
        return
    ctx.emit("while (true) {")
    for each in op.body:
        _operation(ctx, each)
        if isinstance(each, (WaitEmpty, WaitFull)) and each.ring == op.carrier:
            number_of(ctx, each, total)
            origins(ctx)
    ctx.emit(*ctx.ends(), "}")


def _begun_tiles(ctx: Context, op: Tiles, total: int) -> None:
    """Tiles each of which is begun before the one before it ends."""
    dynamic = op.order == "dynamic"
    ctx.total = total
    assert op.first is not None
    each = f" / {cluster}" if (cluster := ctx.roles.geometry.cluster) > 1 else ""
    ctx.emit(f"int number = blockIdx.x{each};" if not dynamic else "int number;")
    _begin(ctx, op, op.first, "number")
    ctx.emit(f"while (number < {total}) {{")
    ctx.emit("int next;" if dynamic else f"const int next = number + gridDim.x{each};")
    origins(ctx)
    _body(ctx, op.body)
    ctx.emit(*(ctx.ends() if dynamic else ()), "number = next;", "}")
    if not dynamic:
        _closings(ctx, "blockIdx.x", "gridDim.x", total)


def _closings(ctx: Context, start: str, step: str, total: int) -> None:
    """What ends the tiles of a static order, after the last of them: between products it would
    split the warps' paths, and ptxas would wait for each product by itself."""
    if ctx.ends is not list:
        ctx.emit(f"for (int number = {start}; number < {total}; number += {step}) {{")
        origins(ctx)
        ctx.emit(*ctx.ends(), "}")


def _next(ctx: Context, op: Next) -> None:
    """In a dynamic order, the number lies in the slot that is waited for first."""
    _begin(ctx, next(o for o in ctx.roles.consumer if isinstance(o, Tiles)), op, "next")


def _begin(ctx: Context, tiles: Tiles, op: Next, name: str) -> None:
    waits = op.waits
    if tiles.order == "dynamic":
        _operation(ctx, waits[0])
        ctx.emit(f"{name} = {handed_on(ctx, tiles.carrier)};")
        waits = waits[1:]
    ctx.emit(f"if ({name} < {ctx.total}) {{")
    _body(ctx, waits)
    ctx.emit("}")
    _body(ctx, op.products)


# -- streams ----------------------------------------------------------------------------------


def _stream(ctx: Context, op: Stream) -> None:
    name = identifier(op.axes[-1].name)
    block, first, stop = f"block_{name}", f"first_{name}", f"stop_{name}"
    blocks = block_count(op.axes, op.tiles)
    axes = ", ".join(map(str, op.axes))
    ctx.emit(f"{{  // blocks of {identifier(axes) if not axes.isascii() else axes}")
    limits(ctx, op.bounds, first, stop, blocks)
    if op.first:
        start = f"{stop} - 1" if op.descending else first
        ctx.emit("{", f"const int {block} = {start};")
        _block(ctx, op, op.first, block, first, stop)
        ctx.emit("}")
    more = int(bool(op.first))
    if op.descending:
        head = f"for (int {block} = {stop} - {1 + more}; {block} >= {first}; {block}--) {{"
    else:
        begin = f"{first} + {more}" if more else first
        head = f"for (int {block} = {begin}; {block} < {stop}; {block}++) {{"
    ctx.emit("#pragma unroll 1", head)
    _block(ctx, op, op.body, block, f"{stop} - 1" if op.descending else first, stop)
    ctx.emit("}", "}")
    for axis in op.axes:
        ctx.origins.pop(axis, None)


def _block(
    ctx: Context, op: Stream, body: Sequence[Operation], block: str, first: str, stop: str
) -> None:
    rest = block
    for axis, tile in reversed(list(zip(op.axes, op.tiles, strict=True))):
        index = rest if axis == op.axes[0] else f"{rest} % {-(-axis.extent // tile)}"
        index = index if index == block else f"({index})"
        ctx.emit(f"const int {named(ctx, axis)} = {index} * {tile};")
        rest = f"{rest} / {-(-axis.extent // tile)}"
    b = op.bounds
    around = ctx.block, ctx.first, ctx.whole
    ctx.block, ctx.first, ctx.whole = block, first, ""
    if b.whole_first is not None or b.whole_stop is not None:
        ctx.whole = "whole"
        tests = [f"{block} >= {ctx.integer(b.whole_first)}"] if b.whole_first is not None else []
        tests += [f"{block} < {ctx.integer(b.whole_stop)}"] if b.whole_stop is not None else []
        ctx.emit(f"const bool whole = {' && '.join(tests)};")
    _body(ctx, body)
    ctx.block, ctx.first, ctx.whole = around
