"""A memory program as one CUDA kernel: the block's place on the grid, then its operations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nautile.codegen import closing
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import pruned
from nautile.codegen.memory import (
    Barrier,
    Clear,
    Close,
    Commit,
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
    Ring,
    Settle,
    Store,
    Stream,
    Wait,
    operations,
)
from nautile.codegen.schedule.text import show_memory, show_operation
from nautile.codegen.sm80 import copies, depth, elements
from nautile.codegen.sm80.context import STORED, Context, safe
from nautile.codegen.sm80.multiply import multiply
from nautile.codegen.sm80.order import L2_BYTES, band, block_count, limits
from nautile.codegen.sm80.store import store
from nautile.codegen.source import CudaKernel
from nautile.terms import Axis, Buffer, Load, Term, walk

__all__ = ["BODY", "print_kernel"]

BODY = "// kernel"
# What the text tells before it does it.
_TOLD = (Clear, FoldDepth, FoldRow, Form, Multiply, Pack, Pointwise, Rescale, Settle, Store)


def print_kernel(program: MemoryProgram, close: Close | None = None) -> CudaKernel:
    """The CUDA text and its launch; with `close`, the last block of each group merges states."""
    reads, writes = _buffers(program)
    if close is not None:
        reads = list(dict.fromkeys([*reads, *closing.reads(close)]))
        writes = [*writes, *closing.writes(close)]
    buffers = {b: f"g_{number}_{safe(b.name)}" for number, b in enumerate((*reads, *writes))}
    ctx = Context(program, buffers)
    ctx.loops = frozenset(a for op in _all(program) if isinstance(op, Stream) for a in op.axes)
    name = f"k_{safe(program.name)}"
    ctx.depth = 0
    counters = closing.group_count(close) if close is not None else 0
    _signature(ctx, name, reads, writes, counters)
    _prelude(ctx)
    _grid(ctx)
    _declare(ctx)
    _body(ctx, program.roles[0].operations, None)
    if close is not None:
        ctx.emit(*closing.close(close, ctx.buffer, ctx.origin, _meeting(program)))
    ctx.emit("}")
    text = "\n".join(pruned(ctx.lines)) + "\n"
    notes = "".join(f"// {line}\n" for line in show_memory(program).splitlines())
    full = inline(f"{BODY}\n{notes}{text}", "scalar.cuh", "copy.cuh", "mma.cuh", "closing.cuh")
    blocks = prod(-(-a.extent // t) for a, t in program.grid)
    names = tuple(b.name for b in (*reads, *writes))
    threads = program.geometry.threads
    shape = (blocks, 1, 1)
    return CudaKernel(name, full, shape, threads, program.shared_bytes, names, counters=counters)


def _meeting(program: MemoryProgram) -> closing.Barrier:
    any_ = "__syncthreads_or({})"
    return closing.Barrier(program.geometry.threads, "tid", "__syncthreads();", any_)


def _all(program: MemoryProgram) -> Sequence[Operation]:
    return list(operations(program.roles[0].operations))


def _buffers(program: MemoryProgram) -> tuple[list[Buffer], list[Buffer]]:
    reads: dict[Buffer, None] = {}
    writes: dict[Buffer, None] = {}

    def note(*terms: Term) -> None:
        reads.update((t.buffer, None) for t in walk(*terms) if isinstance(t, Load))

    for ring in program.rings:
        note(*(t.value for t in ring.tiles))
    for op in _all(program):
        if isinstance(op, Pointwise):
            note(op.value, *([op.whole] if op.whole is not None else []))
        if isinstance(op, (FoldDepth, Form)):
            note(op.value)
        if isinstance(op, Multiply) and op.formed is not None:
            note(op.formed)
        if isinstance(op, Stream):
            b = op.bounds
            limits = (b.first, b.stop, b.whole_first, b.whole_stop)
            note(*(t for t in limits if t is not None))
        if isinstance(op, Store):
            note(*op.coordinates)
            writes[op.buffer] = None
    return list(reads), list(writes)


def _signature(
    ctx: Context, name: str, reads: list[Buffer], writes: list[Buffer], counters: int
) -> None:
    g = ctx.program.geometry
    args = [f"const {STORED[b.dtype]}* __restrict__ {ctx.buffer(b)}" for b in reads]
    args += [f"{STORED[b.dtype]}* __restrict__ {ctx.buffer(b)}" for b in writes]
    args += ["int* __restrict__ counter"] * bool(counters)
    ctx.emit(
        f'extern "C" __global__ void __launch_bounds__({g.threads}, {g.blocks})',
        f"{name}({', '.join(args)}) {{",
    )


def _prelude(ctx: Context) -> None:
    g = ctx.program.geometry
    ctx.emit(
        "extern __shared__ __align__(1024) unsigned char memory[];",
        "const nt_u32 shared = nt_shared(memory);",
        "const int tid = threadIdx.x, lane = tid & 31;",
        "const int warp = tid >> 5;",
        f"const int warp_row = warp % {g.warp_rows};",
        f"const int warp_column = warp / {g.warp_rows};",
        "const int lane_column = (lane & 3) * 2;",
    )


def _grid(ctx: Context) -> None:
    """The origins of the grid's axes. Row tiles and column tiles are walked in bands that share
    operands in the second-level cache; without a column tile, heads of a band share its rows."""
    program, g = ctx.program, ctx.program.geometry
    counts = {a: -(-a.extent // t) for a, t in program.grid}
    tiles = dict(program.grid)
    column = _main_column(program)
    nr, nc = counts.get(g.row, 1), counts[column] if column else 1
    others = [a for a in counts if a not in (g.row, column)]
    nz = prod(counts[a] for a in others)
    ctx.emit("const int linear = blockIdx.x;")
    if column:
        ctx.emit(f"const int z = linear / {nr * nc};", f"const int inner = linear % {nr * nc};")
        band(ctx, "inner", g.group, nr, nc, ("tile_row", "tile_column"), "in_band")
    else:
        band(ctx, "linear", _heads(program), nz, nr, ("z", "tile_row"), "in_band")
    row = f"({nr - 1} - tile_row)" if program.heavy_first else "tile_row"
    if g.row in counts:
        ctx.emit(f"const int {_name(ctx, g.row)} = {row} * {tiles[g.row]};")
    if column:
        ctx.emit(f"const int {_name(ctx, column)} = tile_column * {tiles[column]};")
    rest = "z"
    for axis in reversed(others):
        scale = f" * {tiles[axis]}" if tiles[axis] > 1 else ""
        ctx.emit(f"const int {_name(ctx, axis)} = {rest} % {counts[axis]}{scale};")
        rest = f"{rest} / {counts[axis]}"
    warp = f"warp_row * {16 * g.thread_rows}"
    ctx.emit(f"const int row0 = {ctx.origin(g.row)} + {warp} + (lane >> 2);")


def _name(ctx: Context, axis: Axis, prefix: str = "o") -> str:
    number = [a for a, _ in ctx.program.tiles].index(axis)
    name = f"{prefix}{number}_{safe(axis.name)}"
    ctx.origins[axis] = name
    return name


def _main_column(program: MemoryProgram) -> Axis | None:
    """The grid axis that is the columns of some accumulator."""
    grid = dict(program.grid)
    for op in _all(program):
        for target, _, _ in op.pairs if isinstance(op, Multiply) else ():
            if target.column in grid and grid[target.column] > 1:
                return target.column
    return None


def _heads(program: MemoryProgram) -> int:
    """How many outer indices to walk together, so that what they stream fits the cache."""
    streams = [op for op in _all(program) if isinstance(op, Stream)]
    blocks = max((block_count(s.axes, s.tiles) for s in streams), default=1)
    ring = max((r.slot_bytes for r in program.rings if r.stages > 1), default=1)
    return max(1, L2_BYTES // (blocks * ring))


def _declare(ctx: Context) -> None:
    packed = {op.target.name: op.operand for op in _all(ctx.program) if isinstance(op, Pack)}
    for fragment in ctx.program.fragments:
        elements.declare(ctx, fragment, packed.get(fragment.name, ""))
    for ring in ctx.program.rings:
        ctx.slots[ring.name] = f"shared + {ring.offset}"


def _body(ctx: Context, body: Sequence[Operation], stream: _Counter | None) -> None:
    for op in body:
        if isinstance(op, _TOLD):
            told = show_operation(op)
            ctx.emit(f"// {told if len(told) < 96 else told[:93] + '...'}")
        _operation(ctx, op, stream)


class _Counter:
    """The block counter of the enclosing Stream: its variable, and the names of the slots."""

    def __init__(self, op: Stream, number: int) -> None:
        self.op, self.block, self.prologue = op, f"step{number}", True
        self.first, self.stop = f"first{number}", f"stop{number}"
        self.slot, self.filling = f"slot{number}", f"filling{number}"


def _operation(ctx: Context, op: Operation, counter: _Counter | None) -> None:
    match op:
        case Fetch(ring, ahead) | Gather(ring, ahead) | Place(ring, ahead):
            _fill(ctx, op, ring, ahead, counter)
        case Commit():
            ctx.emit("nt_copy_commit();")
        case Wait(pending):
            ctx.emit(f"nt_copy_wait<{pending}>();")
        case Barrier():
            ctx.emit("__syncthreads();")
        case Multiply():
            multiply(ctx, op)
        case Stream():
            _stream(ctx, op)
        case Store():
            store(ctx, op)
        case Pointwise():
            elements.pointwise(ctx, op)
        case FoldRow():
            elements.fold(ctx, op)
        case FoldDepth():
            depth.fold_depth(ctx, op)
        case Form():
            depth.form(ctx, op)
        case Settle():
            elements.settle(ctx, op)
        case Rescale():
            elements.rescale(ctx, op)
        case Pack():
            elements.pack(ctx, op)
        case Keep():
            elements.keep(ctx, op)
        case Clear():
            elements.clear(ctx, op)


def _fill(
    ctx: Context, op: Fetch | Gather | Place, ring: Ring, ahead: int, counter: _Counter | None
) -> None:
    """Fill the slot of block counter + ahead, unless the stream ends before it."""
    if counter is None:
        if isinstance(op, Fetch):
            copies.sources(ctx, ring)
        _work(ctx, op, ctx.slots[ring.name])
        return
    block = f"{counter.first if counter.prologue else counter.block} + {ahead}"
    number = str(ahead) if counter.prologue else counter.filling
    number = "(next & 1)" if ring.stages == 2 else number
    kept = dict(ctx.origins)
    for axis in counter.op.axes:
        _name(ctx, axis, "n")
    if isinstance(op, Gather):
        copies.prepare(ctx, op)
    ctx.emit(f"if ({block} < {counter.stop}) {{", f"const int next = {block};")
    _origins(ctx, counter.op, "next", "n")
    _work(ctx, op, f"(shared + {ring.offset} + {number} * {ring.slot_bytes})")
    ctx.emit("}")
    ctx.origins = kept


def _work(ctx: Context, op: Fetch | Gather | Place, slot: str) -> None:
    if isinstance(op, Fetch):
        copies.fetch(ctx, op, slot)
    elif isinstance(op, Gather):
        copies.gather(ctx, op)
    else:
        copies.fill(ctx, op, slot)


def _origins(ctx: Context, op: Stream, block: str, prefix: str) -> None:
    rest = block
    for axis, tile in reversed(list(zip(op.axes, op.tiles, strict=True))):
        count = -(-axis.extent // tile)
        last = axis == op.axes[0]
        index = rest if last else f"{rest} % {count}"
        ctx.emit(f"const int {_name(ctx, axis, prefix)} = ({index}) * {tile};")
        rest = f"{rest} / {count}"


def _stream(ctx: Context, op: Stream) -> None:
    counter = _Counter(op, ctx.counter["stream"])
    ctx.counter["stream"] += 1
    blocks = block_count(op.axes, op.tiles)
    ctx.emit(f"{{  // blocks of {', '.join(map(safe, map(str, op.axes)))}")
    limits(ctx, op.bounds, counter.first, counter.stop, blocks)
    ring = next((o.ring for o in op.body if isinstance(o, (Fetch, Place))), None)
    if ring is not None:
        copies.sources(ctx, ring)
        if ring.stages > 2:
            ctx.emit(f"int {counter.slot} = 0;", f"int {counter.filling} = {ring.stages - 1};")
    _body(ctx, op.prologue, counter)
    counter.prologue = False
    b = counter.block
    ctx.emit("#pragma unroll 1", f"for (int {b} = {counter.first}; {b} < {counter.stop}; {b}++) {{")
    _origins(ctx, op, b, "o")
    kept = dict(ctx.slots)
    if ring is not None:
        slot = f"in_{ring.name}"
        number = counter.slot if ring.stages > 2 else f"({b} & 1)"
        at = f"{number} * {ring.slot_bytes}"
        ctx.emit(f"const nt_u32 {slot} = shared + {ring.offset} + {at};")
        ctx.slots[ring.name] = slot
    whole = (op.bounds.whole_first, op.bounds.whole_stop)
    if whole[0] is not None and whole[1] is not None:
        low, high = (ctx.integer(t) for t in whole if t is not None)
        ctx.emit(f"const bool whole = {b} >= {low} && {b} < {high};")
    else:
        ctx.emit("const bool whole = false;")
    _body(ctx, op.body, counter)
    if ring is not None:
        for name in (counter.slot, counter.filling) if ring.stages > 2 else ():
            ctx.emit(f"{name} = {name} == {ring.stages - 1} ? 0 : {name} + 1;")
    ctx.emit("}", "}")
    ctx.slots = kept
    for axis in op.axes:
        ctx.origins.pop(axis, None)
