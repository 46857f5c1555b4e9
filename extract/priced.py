"""All tilings of a part with their predicted seconds, and the best of them as schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nautile.extract.body import Body
from nautile.extract.device import Device
from nautile.extract.footprint import Flags, Vector
from nautile.extract.kernel import Part, Prediction
from nautile.terms import Axis

__all__ = ["OVERLAP", "RESOURCES", "Priced"]

OVERLAP = 0.2  # share of the smaller demands that is not hidden under the largest
RESOURCES = ("dram", "l2", "tensor", "fp32", "special")


@dataclass(slots=True)
class Priced:
    """The tilings of a body with their predicted seconds (inf where they do not fit). `wgmma` tells
    which are of the warpgroup path; none, where it is empty."""

    body: Body
    device: Device
    tiles: Mapping[Axis, Vector]
    seconds: Vector
    demand: Mapping[str, Vector]
    reads: Vector
    writes: int
    tensor_flops: Vector
    vector_flops: Vector
    special_ops: Vector
    shared: Vector
    registers: Vector
    blocks: Vector
    wgmma: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def best(self) -> float:
        """Seconds of the fastest tiling that fits, inf where none does."""
        return float(self.seconds.min()) if len(self.seconds) else float("inf")

    def ranked(self, limit: int, path: str | None = None) -> tuple[tuple[Part, Prediction], ...]:
        """The fastest tilings, best first: of all, or of one path."""
        order = np.argsort(self.seconds, kind="stable")
        if path is not None:
            order = order[[self._path(int(k)) == path for k in order]]
        return tuple(self._schedule(int(k)) for k in order[:limit] if np.isfinite(self.seconds[k]))

    def joined(self, other: Priced) -> Priced:
        """These tilings and those of another path."""

        def both(a: Vector, b: Vector) -> Vector:
            return np.concatenate([a, b])

        return Priced(
            self.body,
            self.device,
            {axis: both(size, other.tiles[axis]) for axis, size in self.tiles.items()},
            both(self.seconds, other.seconds),
            {name: both(self.demand[name], other.demand[name]) for name in self.demand},
            both(self.reads, other.reads),
            self.writes,
            both(self.tensor_flops, other.tensor_flops),
            both(self.vector_flops, other.vector_flops),
            both(self.special_ops, other.special_ops),
            both(self.shared, other.shared),
            both(self.registers, other.registers),
            both(self.blocks, other.blocks),
            np.concatenate([p.wgmma if len(p.wgmma) else p.seconds < 0 for p in (self, other)]),
        )

    def _path(self, k: int) -> str:
        return "wgmma" if len(self.wgmma) and self.wgmma[k] else "portable"

    def _schedule(self, k: int) -> tuple[Part, Prediction]:
        tiles = {axis: int(size[k]) for axis, size in self.tiles.items()}
        streams = tuple(a for a in self.body.reduced if tiles[a] < a.extent)
        shares = {name: float(self.demand[name][k]) for name in RESOURCES}
        shares["launch"] = self.device.launch_seconds
        prediction = Prediction(
            seconds=float(self.seconds[k]),
            bound=max(shares, key=lambda name: shares[name]),
            reads_bytes=round(float(self.reads[k])),
            writes_bytes=self.writes,
            tensor_flops=round(float(self.tensor_flops[k])),
            vector_flops=round(float(self.vector_flops[k])),
            special_ops=round(float(self.special_ops[k])),
            shared_bytes=int(self.shared[k]),
            registers=int(self.registers[k]),
            blocks=int(self.blocks[k]),
            shares=shares,
        )
        return Part(self.body.outputs, tiles, streams, self._path(k)), prediction
