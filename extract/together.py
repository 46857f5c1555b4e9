"""Independent bodies side by side in one launch: one launch latency, one tail, shared reads.

The blocks of the parts follow one another in one grid. The parts must be of one kind and take tiles
of the same sizes, so that a block's threads and shared memory fit all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.closed import closed_schedules
from nautile.extract.device import Device
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.extract.priced import OVERLAP, RESOURCES
from nautile.terms import buffers

if TYPE_CHECKING:
    from nautile.extract.candidates import Candidate, Generator

__all__ = ["alternatives", "combined", "side_by_side"]

PARTS = 4
CHOICES = 12


def side_by_side(a: Candidate, b: Candidate, generator: Generator) -> Candidate | None:
    """One launch of the parts of both, or None where no common tiling is known."""
    from nautile.extract.candidates import Candidate

    groups = a.groups + b.groups
    if len(groups) > PARTS:
        return None
    device = generator.classes.device
    tables = [generator.table(generator.outputs(g)) for g in groups]
    best = combined(tables, device)
    if best is None:
        return None
    parts, prediction = best
    choice = {**a.choice, **b.choice}
    return Candidate(a.makes | b.makes, a.needs | b.needs, groups, choice, parts, prediction)


Table = Sequence[tuple[Part, Prediction]]


def alternatives(
    kernel: Kernel,
    device: Device,
    limit: int = 8,
    *,
    numerics: str = "real",
    path: str | None = None,
) -> tuple[tuple[tuple[Part, ...], Prediction], ...]:
    """Schedules of a kernel's parts that can share its launch, best first, `limit` at most: those
    of one path, or the best of any, and after them the best portable ones."""
    from nautile.extract.roofline import price

    if kernel.closing:
        return closed_schedules(kernel, device, limit, numerics=numerics, path=path)
    if len(kernel.parts) == 1:
        priced = price(kernel.parts[0].outputs, device, numerics=numerics)
        found = priced.ranked(limit, path)
        if path is None:
            found += tuple(s for s in priced.ranked(limit, "portable") if s not in found)
        return tuple(((part,), prediction) for part, prediction in found)
    if path not in (None, "portable"):
        return ()  # parts side by side are portable
    own = [price(p.outputs, device, numerics=numerics) for p in kernel.parts]
    return tuple(_common([p.ranked(8 * limit, "portable") for p in own], device)[:limit])


def combined(tables: Sequence[Table], device: Device) -> tuple[tuple[Part, ...], Prediction] | None:
    """The best common tiling of several parts, one table of schedules a part, of the portable path
    alone: other kernels have no blocks to share."""
    return next(iter(_common(tables, device)), None)


def _common(tables: Sequence[Table], device: Device) -> list[tuple[tuple[Part, ...], Prediction]]:
    by_shape = [_by_shape(table) for table in tables]
    common = [s for s in by_shape[0] if all(s in shapes for shapes in by_shape[1:])]
    options = []
    for shape in common:
        rows = [shapes[shape] for shapes in by_shape]
        parts = tuple(part for part, _ in rows)
        options.append((parts, _launch(parts, [p for _, p in rows], device)))
    return sorted(options, key=lambda option: option[1].seconds)


def _by_shape(table: Table) -> Mapping[tuple[int, ...], tuple[Part, Prediction]]:
    shapes: dict[tuple[int, ...], tuple[Part, Prediction]] = {}
    for part, prediction in table:
        if part.path != "portable":
            continue
        shape = tuple(sorted(t for t in part.tiles.values() if t > 1))
        shapes.setdefault((*shape, -len(part.streams)), (part, prediction))
    return shapes


@dataclass(frozen=True, slots=True)
class _Tail:
    """How far the last wave of `blocks` is from full."""

    blocks: int
    device: Device

    @property
    def factor(self) -> float:
        if self.blocks > 8 * self.device.sms:
            return 1.02
        waves = -(-self.blocks // self.device.sms)
        return waves * self.device.sms / max(1, self.blocks)


def _launch(parts: Sequence[Part], rows: Sequence[Prediction], device: Device) -> Prediction:
    blocks = sum(p.blocks for p in rows)
    after = _Tail(blocks, device).factor
    shares = dict.fromkeys(RESOURCES, 0.0)
    steps = 0.0
    for p in rows:
        before = _Tail(p.blocks, device).factor
        for name in RESOURCES:
            change = after / before if name not in ("dram", "l2") else 1.0
            shares[name] += p.shares[name] * change
        steps += p.seconds - _blend([p.shares[n] for n in RESOURCES]) - device.launch_seconds
    saved = _read_twice(parts)
    shares["dram"] -= saved / device.memory_bandwidth
    shares["launch"] = device.launch_seconds
    seconds = _blend([shares[n] for n in RESOURCES]) + device.launch_seconds + max(0.0, steps)
    return Prediction(
        seconds=seconds,
        bound=max(shares, key=lambda name: shares[name]),
        reads_bytes=sum(p.reads_bytes for p in rows) - saved,
        writes_bytes=sum(p.writes_bytes for p in rows),
        tensor_flops=sum(p.tensor_flops for p in rows),
        vector_flops=sum(p.vector_flops for p in rows),
        special_ops=sum(p.special_ops for p in rows),
        shared_bytes=max(p.shared_bytes for p in rows),
        registers=max(p.registers for p in rows),
        blocks=blocks,
        shares=shares,
    )


def _blend(seconds: Sequence[float]) -> float:
    values = np.array(seconds)
    return float(values.max() + OVERLAP * (values.sum() - values.max()))


def _read_twice(parts: Sequence[Part]) -> int:
    """Bytes of the tensors that a part reads after an earlier part of the same launch did."""
    seen: set[str] = set()
    saved = 0
    for part in parts:
        for buffer in buffers(*(o.term for o in part.outputs)):
            if buffer.name in seen:
                saved += buffer.size * DTYPES[buffer.dtype].bytes
            seen.add(buffer.name)
    return saved
