"""All tilings of a part with their predicted seconds, and the best of them as schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nautile.extract.body import Body
from nautile.extract.device import Device
from nautile.extract.footprint import Vector
from nautile.extract.kernel import Part, Prediction
from nautile.terms import Axis

__all__ = ["OVERLAP", "RESOURCES", "Priced"]

OVERLAP = 0.2  # share of the smaller demands that is not hidden under the largest
RESOURCES = ("dram", "l2", "tensor", "fp32", "special")


@dataclass(slots=True)
class Priced:
    """The tilings of a body with their predicted seconds (inf where they do not fit)."""

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

    def best(self) -> float:
        """Seconds of the fastest tiling that fits, inf where none does."""
        return float(self.seconds.min()) if len(self.seconds) else float("inf")

    def ranked(self, limit: int) -> tuple[tuple[Part, Prediction], ...]:
        """The fastest tilings, best first."""
        order = np.argsort(self.seconds, kind="stable")[:limit]
        return tuple(self._schedule(int(k)) for k in order if np.isfinite(self.seconds[k]))

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
        return Part(self.body.outputs, tiles, streams), prediction
