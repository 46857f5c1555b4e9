"""Splits whose second launch is done by the first one's last blocks: which, their time, schedules.

What it saves is a launch and the gap before it; what remains is that a block counts itself and that
the last of a group reads the states of all, which lie in the second-level cache. A group is closed
by one block, so its states may not be many: `closing_seconds` prices that, and there are two
launches where they are cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from nautile.dtypes import DTYPES
from nautile.extract.closing import closing
from nautile.extract.contractions import contracts
from nautile.extract.device import Device
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.terms import Buffer, Load, Online, Output, Reduce, buffers, walk

__all__ = ["COUNTED", "closed", "closed_schedules", "closing_seconds", "joined", "launched"]

COUNTED = 1.0e-6  # seconds: a fence, a barrier, an atomic, the first states' answer
GATHERED = 3.0e10  # bytes a second at which four warps read states, and what else results need
MOST = 1.0e-5  # seconds of a closing that is looked at
REDUCED = (Reduce, Online)

Outputs = tuple[Output, ...]
Schedule = tuple[tuple[Part, ...], Prediction]
MERGED = ("sum", "prod", "max", "min")


def closing_seconds(part: Part, results: Part) -> float | None:
    """Seconds that closing adds to the launch of the states' part, or None where its blocks can't
    close the results: those of products alone do."""
    states = part.outputs
    if results.streams or not _merges(results) or not _multiplies(states):
        return None
    found = closing(states, part.tiles, results.outputs)
    if found is None:
        return None
    axes = dict.fromkeys(a for o in states for a in o.axes)
    groups = prod(-(-a.extent // part.tiles[a]) for a in axes if a not in found.over)
    seconds = COUNTED + _moved(results) / groups / (GATHERED * _warps(part) / 4)
    return seconds if seconds < MOST else None


def _moved(results: Part) -> int:
    """Bytes that are read for the results, each element once, and that they take."""
    terms = [o.term for o in results.outputs]
    touched: dict[Buffer, int] = {o.buffer: o.buffer.size for o in results.outputs}
    for load in (t for t in walk(*terms) if isinstance(t, Load)):
        size = min(load.buffer.size, prod(a.extent for a in load.free))
        touched[load.buffer] = max(touched.get(load.buffer, 0), size)
    return sum(size * DTYPES[b.dtype].bytes for b, size in touched.items())


def _warps(part: Part) -> int:
    """Warps of a block that close, four at most: on the portable path a chain's own 16 rows."""
    online = any(isinstance(t, Online) for t in walk(*(o.term for o in part.outputs)))
    if part.path != "portable" or not online:
        return 4
    axes = {a for o in part.outputs for a in o.axes[:-1]}
    rows = max((part.tiles[a] for a in axes), default=64)
    return min(4, -(-rows // 16))


def _merges(results: Part) -> bool:
    """Whether the results are made of plain merged states; a reduction of merged values would ask
    for those of other elements."""
    inside = [t for t in walk(*(o.term for o in results.outputs)) if isinstance(t, Reduce)]
    nested = any(isinstance(t, REDUCED) and r.axis in t.free for r in inside for t in walk(r.body))
    return not nested and all(t.monoid in MERGED for t in inside)


def _multiplies(states: Outputs) -> bool:
    return any(contracts(t) for t in walk(*(o.term for o in states)) if isinstance(t, REDUCED))


def launched(schedules: Sequence[tuple[Part, Prediction]]) -> float:
    """Seconds of launches one after the other, the second done by the first where that is
    faster."""
    total = sum(p.seconds for _, p in schedules)
    if len(schedules) != 2:
        return total
    (first, _), (then, last) = schedules
    more = closing_seconds(first, then)
    return total if more is None else total - max(0.0, last.seconds - more)


def closed(first: Kernel, then: Kernel) -> Kernel | None:
    """Both kernels as one launch, or None where that is not possible or not faster."""
    if len(first.parts) != 1 or len(then.parts) != 1 or first.closing or then.split:
        return None
    more = closing_seconds(first.parts[0], then.parts[0])
    if more is None or more >= then.prediction.seconds:
        return None
    prediction = _with(first.prediction, then.prediction, more)
    rules = tuple(dict.fromkeys((*first.rules, *then.rules)))
    parts = (first.parts[0], then.parts[0])
    columns = tuple(dict.fromkeys((*first.columns, *then.columns)))
    return Kernel(then.name, parts, prediction, rules, first.split, closing=True, columns=columns)


def _with(first: Prediction, then: Prediction, more: float) -> Prediction:
    """The first launch, and what closing adds."""
    return replace(
        first,
        seconds=first.seconds + more,
        reads_bytes=first.reads_bytes + then.reads_bytes,
        writes_bytes=first.writes_bytes + then.writes_bytes,
        vector_flops=first.vector_flops + then.vector_flops,
        special_ops=first.special_ops + then.special_ops,
    )


def closed_schedules(
    kernel: Kernel, device: Device, limit: int, *, numerics: str, path: str | None
) -> tuple[Schedule, ...]:
    """Other tiles of the states' part under which its blocks can still close the results."""
    from nautile.extract.roofline import price

    states, results = kernel.parts
    found: list[Schedule] = []
    priced = price(states.outputs, device, numerics=numerics)
    for part, prediction in priced.ranked(4 * limit, path):
        more = closing_seconds(part, results)
        if more is not None:
            seconds = prediction.seconds + more
            found.append(((part, results), replace(prediction, seconds=seconds)))
    return tuple(sorted(found, key=lambda s: s[1].seconds)[:limit])


def joined(kernels: Sequence[Kernel], wanted: frozenset[str]) -> tuple[Kernel, ...]:
    """The kernels in order; one that makes states closes them itself where only one other kernel
    reads them. `wanted` are the buffers that the program returns."""
    found = list(kernels)
    for first in kernels:
        own = {o.buffer.name for o in first.outputs}
        readers = [k for k in found if k is not first and _reads(k, own)]
        if first.split and len(readers) == 1 and not own & wanted:
            both = closed(first, readers[0])
            if both is not None:
                found[found.index(readers[0])] = both
                found.remove(first)
    return tuple(_following(found))


def _following(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """The kernels, those marked that merge the states of the one right before them."""
    before: Kernel | None = None
    for kernel in kernels:
        own = {o.buffer.name for o in before.outputs} if before is not None else set()
        after = before is not None and bool(before.split) and not before.closing
        yield replace(kernel, follows=True) if after and _reads(kernel, own) else kernel
        before = kernel


def _reads(kernel: Kernel, names: set[str]) -> bool:
    return any(b.name in names for b in buffers(*(o.term for o in kernel.outputs)))
