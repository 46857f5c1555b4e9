"""The text with which the last of a group of blocks to end computes the group's results.

Every block stores its states, then counts itself; the one that completes the count finds all states
stored and computes the results (see extract/closing.py). Counters are zero before a launch, and the
last block of each group leaves its own so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from nautile.codegen.closed import Names, Numbers, result
from nautile.codegen.memory import Close
from nautile.codegen.sm80.context import STORED
from nautile.codegen.tile import Fold, Map, Read, Statement, TileProgram, Write
from nautile.codegen.types import carrier
from nautile.errors import LoweringError
from nautile.extract.closing import closing
from nautile.extract.kernel import Kernel
from nautile.terms import Axis, Buffer

__all__ = ["Barrier", "close", "closes", "group_count", "reads", "writes"]

_MONOIDS = ("sum", "prod", "max", "min")


@dataclass(frozen=True, slots=True)
class Barrier:
    """How the threads that close meet: their number, and which one a thread is; a barrier of them;
    one that tells all of them whether `{}` holds for any; what waits for stores that are under
    way, if anything."""

    threads: int
    thread: str
    sync: str
    any: str
    stored: str = ""


def closes(kernel: Kernel, results: TileProgram) -> Close:
    """How the blocks of a kernel's first part compute those of its last, which is `results`;
    LoweringError where this text cannot."""
    states, last = kernel.parts
    found = closing(states.outputs, states.tiles, last.outputs)
    if found is None:
        raise LoweringError(f"{kernel.name}: its states are those of several groups of blocks")
    for s in results.body:
        _check(s)
    axes = dict.fromkeys(a for o in states.outputs for a in o.axes)
    grid = tuple((a, states.tiles[a]) for a in axes)
    return Close(found, results, grid, tuple(o.buffer for o in states.outputs))


def _check(s: Statement) -> None:
    if isinstance(s, (Read, Map, Write)):
        return
    fold = s if isinstance(s, Fold) and s.monoid in _MONOIDS else None
    plain = fold and fold.repair is None and fold.offset is None and fold.before is None
    if fold is None or not plain or carrier(fold.target.dtype) != "f32":
        raise LoweringError("results of more than sums, products and extremes of f32 states")


def group_count(op: Close) -> int:
    """Counters: one for each group of blocks."""
    return prod(-(-a.extent // t) for a, t in op.grid if a not in op.closing.over)


def writes(op: Close) -> list[Buffer]:
    """The results."""
    return [s.buffer for s in op.results.body if isinstance(s, Write)]


def reads(op: Close) -> list[Buffer]:
    """What is read besides the states."""
    found = dict.fromkeys(s.buffer for s in op.results.body if isinstance(s, Read))
    return [b for b in found if b not in op.states]


def close(
    op: Close, names: Names, origin: Callable[[Axis], str], own: Barrier, first: int = 0
) -> Iterator[str]:
    """The lines, at the end of a block's tile; `origin` spells the place of the tile along an axis
    of the grid, `first` is the number of the first counter."""
    numbers = {a: _tile_number(origin(a), t) for a, t in op.grid}
    blocks = prod(-(-a.extent // t) for a, t in op.grid if a in op.closing.over)
    at = " + ".join([*[str(first)] * (first > 0), *_group(op, numbers)])
    yield f"{{  // the last of {blocks} blocks computes {', '.join(b.name for b in writes(op))}"
    yield f"int* const arrived = counter{f' + {at}' * bool(at)};"
    yield from [own.stored] * bool(own.stored)
    yield from ("int last = 0;", own.sync, f"if ({own.thread} == 0) {{")
    yield f"last = nt_arrived(arrived) == {blocks - 1};"
    yield from ("if (last) *arrived = 0;  // as every launch leaves it", "}")
    yield f"if ({own.any.format('last')}) {{"
    stored = {b: f"stored_{number}" for number, b in enumerate(op.states)}
    for buffer, name in stored.items():
        yield f"const {STORED[buffer.dtype]}* const {name} = nt_after({names(buffer)});"

    def named(buffer: Buffer) -> str:
        return stored.get(buffer) or names(buffer)

    for s in op.results.body:
        if isinstance(s, Write):
            yield from result(op, s, named, numbers, own.threads, own.thread)
    yield from ("}", "}")


def _tile_number(at: str, tile: int) -> str:
    return at if tile == 1 or at == "0" else f"({at} / {tile})"


def _group(op: Close, numbers: Numbers) -> list[str]:
    """The number of the block's group, as a sum."""
    parts: list[str] = []
    scale = 1
    for axis, tile in reversed(op.grid):
        count = -(-axis.extent // tile)
        if axis not in op.closing.over and count > 1:
            parts.append(f"{numbers[axis]} * {scale}" if scale > 1 else numbers[axis])
            scale *= count
    return parts
