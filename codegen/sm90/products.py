"""wgmma: the products of an Issue, one instruction for 32 bytes of depth, and the waits for them.

An operand row-wise along the depth (K-major) has 128 bytes of depth in a panel: a step
is 32 bytes further, the next panel `panel_bytes`. One row-wise along the rows or columns of the
product (MN-major) has 128 bytes of those in a panel, and all of the depth: a step of 16 positions
is 2048 bytes further. Descriptors count 16 bytes.
"""

from __future__ import annotations

from nautile.codegen.memory import Fragment
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import PANEL_BYTES, Accumulator, Box, Issue, Ring, WaitGroup
from nautile.codegen.sm90.wgmma import DEPTH, Pinned, Product, Waiting

__all__ = ["issue", "wait"]

_FRAGMENT_BYTES = 64 * PANEL_BYTES


def issue(ctx: Context, op: Issue) -> None:
    """All steps of the depth for every 64-row fragment."""
    steps = op.depth // DEPTH[op.operand]
    right, ring = op.pairs[0]
    along = right.inner == op.axis
    left_rows = isinstance(op.left, Box) and op.left.inner != op.axis
    product = Product(
        op.columns,
        op.operand,
        left_registers=isinstance(op.left, Fragment),
        left_rows=left_rows,
        right_columns=not along,
    )
    ctx.products[product.name] = product
    ctx.emit("{")
    if isinstance(op.left, Box):
        assert op.left_ring is not None
        ctx.emit(f"const nt_u64 left = {_left(ctx, op.left, op.left_ring, left_rows)};")
    leading = "" if along or right.panels * len(op.pairs) == 1 else f", {right.panel_bytes}"
    ctx.emit(f"const nt_u64 right = nt_descriptor<128>({ctx.lies(right, ring)}{leading});")
    ctx.unroll(f"for (int k = 0; k < {steps}; k++) {{")
    b = f"right + {_step(right, along, steps)}"
    for number, target in enumerate(ctx.pieces(op.target.name)):
        a = _operand(ctx, op, number, left_rows, steps)
        ctx.emit(f"{product.name}({target}, {a}, {b}, {_kept(ctx, op)});")
    ctx.emit("}", "}")
    if op.start == "begun":
        ctx.emit(f"{keeps(ctx, op.target)} = 1;")


def keeps(ctx: Context, target: Accumulator) -> str:
    """The variable that tells whether an accumulator holds something already."""
    return f"keep_{ctx.array(target.name)[2:]}"


def _kept(ctx: Context, op: Issue) -> str:
    if op.start == "carried":
        return "1"
    return "k != 0" if op.start == "fresh" else f"(k != 0) | {keeps(ctx, op.target)}"


def _left(ctx: Context, box: Box, ring: Ring, rows: bool) -> str:
    """The descriptor of this warpgroup's rows."""
    geometry = ctx.roles.geometry
    own = geometry.fragments * (box.panel_bytes if rows else _FRAGMENT_BYTES)
    mine = "" if geometry.alternate or geometry.consumers == 1 else f" + w * {own}"
    return f"nt_descriptor<128>({ctx.lies(box, ring)}{mine})"


def _operand(ctx: Context, op: Issue, number: int, rows: bool, steps: int) -> str:
    """The left operand of step k."""
    if isinstance(op.left, Fragment):
        name = ctx.pieces(op.left.name)[number]
        return ", ".join(f"{name}[4 * k{f' + {i}' * (i > 0)}]" for i in range(4))
    bytes_ = number * (op.left.panel_bytes if rows else _FRAGMENT_BYTES)
    return f"left + {_step(op.left, not rows, steps)}" + f" + {bytes_ >> 4}" * (bytes_ > 0)


def _step(box: Box, along: bool, steps: int) -> str:
    """From the first step's descriptor to step k's."""
    if not along:
        return f"k * {16 * PANEL_BYTES >> 4}"
    if steps <= 4:
        return "k * 2"
    return f"((k >> 2) * {box.panel_bytes >> 4} + (k & 3) * 2)"


def wait(ctx: Context, op: WaitGroup) -> None:
    """The wait, with the registers that it holds in place as operands."""
    arrays: list[Pinned] = []
    names: list[str] = []
    sizes = {a.name: a.registers for a in ctx.roles.accumulators}
    packed = {f.name: f.columns // 4 for f in ctx.roles.fragments}
    for name in op.pinned:
        for piece in ctx.pieces(name):
            names.append(piece)
            held = Pinned(sizes[name]) if name in sizes else Pinned(packed[name], "nt_u32")
            arrays.append(held)
    waiting = Waiting(op.pending, tuple(arrays))
    ctx.waits[waiting.name] = waiting
    ctx.emit(f"{waiting.name}({', '.join(names)});")
