"""Results of 16 bits, gathered in shared memory into rows of whole 16-byte words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nautile.codegen.memory import (
    Barrier,
    Fetch,
    Fragment,
    Geometry,
    Multiply,
    Operation,
    Place,
    Store,
    Stream,
    Wait,
)
from nautile.codegen.schedule.registers import gathers

__all__ = ["staged", "staging"]


def staging(fragments: Iterable[Fragment], g: Geometry) -> int:
    """Bytes to gather 16 rows of every warp's widest 16-bit output."""
    widths = [f.columns // g.warp_columns for f in fragments if f.column]
    return g.warp_rows * g.warp_columns * 16 * (max(widths, default=0) * 2 + 16)


def staged(body: Iterable[Operation], g: Geometry) -> Iterable[Operation]:
    """Two-byte outputs go through shared memory once the rings have been read."""
    free = False
    for op in body:
        if isinstance(op, Store) and gathers(op, g.warp_columns):
            if not free:
                yield Wait(0)
                yield Barrier()
            free = True
            op = replace(op, staging=0)
        elif isinstance(op, (Stream, Multiply, Fetch, Place)):
            free = False
        yield op
