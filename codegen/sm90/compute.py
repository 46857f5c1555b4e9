"""What consumers do with registers: products, values of accumulators' shape, and stores."""

from __future__ import annotations

from nautile.codegen.memory import (
    Clear,
    FoldRow,
    Keep,
    Pack,
    Pointwise,
    Rescale,
    Settle,
    Store,
)
from nautile.codegen.sm90 import elements, pointwise
from nautile.codegen.sm90.ahead import ahead
from nautile.codegen.sm90.context import Context
from nautile.codegen.sm90.memory import (
    Ahead,
    Begin,
    Form,
    Issue,
    Mask,
    MaskTail,
    Operation,
    Pin,
    Promote,
    StoreTile,
    Unpack,
    WaitGroup,
)
from nautile.codegen.sm90.products import issue, keeps, wait
from nautile.codegen.sm90.store import store, store_tile
from nautile.codegen.sm90.unpack import form, unpack

__all__ = ["compute"]


def compute(ctx: Context, op: Operation) -> None:
    """The text of one operation."""
    match op:
        case Begin(target):
            ctx.emit(f"int {keeps(ctx, target)} = 0;")
        case Issue():
            issue(ctx, op)
        case WaitGroup():
            wait(ctx, op)
        case Ahead():
            ahead(ctx, op)
        case Promote():
            elements.promote(ctx, op)
        case Unpack():
            unpack(ctx, op)
        case Form():
            form(ctx, op)
        case Pin():
            elements.pin(ctx, op)
        case Mask():
            elements.mask(ctx, op)
        case MaskTail():
            elements.mask_tail(ctx, op)
        case Pointwise():
            pointwise.pointwise(ctx, op)
        case FoldRow():
            elements.fold(ctx, op)
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
        case StoreTile():
            store_tile(ctx, op)
        case Store():
            store(ctx, op)
