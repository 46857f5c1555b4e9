"""Shared memory of a memory program with roles: is everything apart, aligned, and small enough? And
are the registers there that the roles take from each other?

Swizzled panels must begin at multiples of 1024 bytes, as the copy engine and the products see them
(8 rows of 128 bytes are one period of the swizzle). A box must bring as many bytes as its place
has. Limits of tensor maps are those of cuTensorMapEncodeTiled (CUDA driver API).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from nautile.codegen.gate import REGISTER_FILE
from nautile.codegen.sm90.boxes import SWIZZLE_ROWS
from nautile.codegen.sm90.memory import PANEL_BYTES, Box, Ring, RoleProgram, StoreTile, operations
from nautile.codegen.sm90.options import ALIGNMENT, SHARED_LIMIT, STAGING_BYTES
from nautile.codegen.source import TensorMap
from nautile.dtypes import DTYPES

__all__ = ["bank_conflicts", "problems", "staging_conflicts"]

_BANKS = 32
_SWIZZLE_PERIOD = 1024
_WORDS = 16
_BOX_LIMIT = 256


@dataclass(frozen=True, slots=True)
class _Region:
    name: str
    begin: int
    end: int


def problems(program: RoleProgram) -> Iterator[str]:
    """What is wrong with the layout, in words."""
    regions = sorted(_regions(program), key=lambda r: r.begin)
    for a, b in pairwise(regions):
        if a.end > b.begin:
            yield f"{a.name} overlaps {b.name}"
    end = max((r.end for r in regions), default=0)
    if end + ALIGNMENT > program.shared_bytes:
        yield f"{end} bytes and their alignment exceed {program.shared_bytes} of shared memory"
    if program.shared_bytes > SHARED_LIMIT:
        yield f"{program.shared_bytes} bytes of shared memory exceed {SHARED_LIMIT}"
    yield from _registers(program)
    for ring in program.rings:
        yield from _ring(ring)
    for op in operations(program.consumer):
        if isinstance(op, StoreTile):
            yield from _map(op.map, f"the output {op.buffer.name}", 64 * PANEL_BYTES)
            if op.staging % _SWIZZLE_PERIOD:
                yield f"the staging of {op.buffer.name} is not aligned to {_SWIZZLE_PERIOD}"


def _registers(program: RoleProgram) -> Iterator[str]:
    """What the roles take must be there: they would wait for it for ever."""
    if program.registers is None:
        return
    producer, consumer = program.registers
    consumers, threads = program.geometry.consumers, program.geometry.threads
    launched = min(255, REGISTER_FILE // threads) // 8 * 8
    if producer + consumers * consumer > launched * (1 + consumers):
        yield f"the roles take {program.registers} of {launched} registers a thread"
    if any(r % 8 or not 24 <= r <= 255 for r in program.registers):
        yield f"{program.registers} registers a thread are not possible"


def _regions(program: RoleProgram) -> Iterator[_Region]:
    for ring in program.rings:
        yield _Region(ring.name, ring.offset, ring.offset + ring.stages * ring.slot_bytes)
        begin = ring.barriers
        yield _Region(f"the barriers of {ring.name}", begin, begin + 16 * ring.stages)
    each = STAGING_BYTES * program.geometry.consumers * program.geometry.fragments
    stores = [op for op in operations(program.consumer) if isinstance(op, StoreTile)]
    for begin, buffers in sorted({(op.staging, op.buffers) for op in stores}):
        yield _Region("the staging", begin, begin + each * buffers)
    yield _Region("the words", program.words, program.words + _WORDS)


def _ring(ring: Ring) -> Iterator[str]:
    if ring.barriers % 8:
        yield f"the barriers of {ring.name} are not aligned to 8"
    inner = 0
    for box in sorted(ring.boxes, key=lambda b: b.offset):
        if box.offset < inner:
            yield f"{box.name} overlaps another box of {ring.name}"
        inner = box.offset + box.bytes
        begins = [ring.offset + box.offset, ring.slot_bytes, box.panel_bytes]
        if any(at % _SWIZZLE_PERIOD for at in begins[: 2 + (box.panels > 1)]):
            yield f"panels of {box.name} are not aligned to {_SWIZZLE_PERIOD}"
        if not box.formed:
            yield from _box(box)
    if inner > ring.slot_bytes:
        yield f"the boxes of {ring.name} exceed its slot"


def _box(box: Box) -> Iterator[str]:
    yield from _map(box.map, box.name, box.come // box.blocks * PANEL_BYTES)
    if box.blocks > 1 and (box.come < box.rows or box.rows % (SWIZZLE_ROWS * box.blocks)):
        yield f"{box.come} rows of {box.name} are not {box.blocks} parts of whole panels"
    if not 1 <= box.come <= box.rows:
        yield f"{box.come} rows of {box.rows} come into {box.name}"
    if box.map.dtype != box.element:
        yield f"{box.name} holds {box.element}, its map {box.map.dtype}"
    if len(box.places) != len(box.map.extents):
        yield f"{box.name} has {len(box.places)} coordinates in {len(box.map.extents)} axes"


def _map(made: TensorMap, name: str, expected: int) -> Iterator[str]:
    """A load or store moves `expected` bytes of a map within the limits."""
    size = DTYPES[made.dtype].bytes
    if prod(made.box) * size != expected:
        yield f"a load or store of {name} moves {prod(made.box) * size} bytes, not {expected}"
    if made.swizzle != PANEL_BYTES or made.box[0] * size != PANEL_BYTES:
        yield f"rows of {name} are not swizzled panels of {PANEL_BYTES} bytes"
    if not 1 <= len(made.extents) <= 5 or not all(1 <= b <= _BOX_LIMIT for b in made.box):
        yield f"{name} has a box of {made.box}"
    if any(s % 16 for s in (*made.strides, made.offset)) or min(made.extents) < 1:
        yield f"the strides {made.strides} or the offset {made.offset} of {name} are not possible"


def bank_conflicts(words: list[int]) -> int:
    """How many times shared memory is passed over to serve one access: the most different words,
    given by their addresses / 4, that lie in one of its 32 banks."""
    banks: dict[int, set[int]] = {}
    for word in words:
        banks.setdefault(word % _BANKS, set()).add(word)
    return max((len(found) for found in banks.values()), default=0)


def staging_conflicts(swizzled: bool = True, size: int = 2) -> int:
    """Passes for one access to a staging panel, by the bytes of an element: one 8 x 8 matrix of a
    stmatrix, eight rows of 16 bytes; or half a warp's pairs of f32, four rows of 32 bytes."""
    rows, chunks = (8, (3,)) if size == 2 else (4, (2, 3))
    places = [
        row * PANEL_BYTES + ((c ^ (row * swizzled)) << 4) for row in range(rows) for c in chunks
    ]
    return bank_conflicts([at // 4 + word for at in places for word in range(4)])
