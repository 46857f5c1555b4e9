"""Why a body fits no device: the limit that is passed, and the least that it needs.

A block's shared memory and registers are what the cost model counts; of all tilings of the body the
one that passes its limits least is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nautile.extract.device import Device
from nautile.extract.roofline import price
from nautile.extract.shapes import PORTABLE_SHARED
from nautile.terms import Output

__all__ = ["Limit", "limit_of"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the device, what one block needs of it at the least, and the tiling that does."""

    name: str
    needed: int
    limit: int
    tile: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return {"limit": self.name, "needed": self.needed, "most": self.limit, "tile": self.tile}

    @property
    def text(self) -> str:
        tile = " ".join(f"{a}={n}" for a, n in self.tile.items())
        unit = " bytes" if self.name == "shared memory" else ""
        return (
            f"a block needs {self.needed}{unit} of {self.name} at the least "
            f"(tiles {tile}), and there are {self.limit}{unit}"
        )


def limit_of(outputs: tuple[Output, ...], device: Device, numerics: str) -> Limit | None:
    """The limit that the best tiling passes; None where some tiling fits, or where there is none
    at all."""
    priced = price(outputs, device, numerics=numerics)
    if not len(priced.seconds) or np.isfinite(priced.seconds).any():
        return None
    tensor = any(c.operand for c in priced.body.contractions.values())
    shared = min(device.shared_bytes, PORTABLE_SHARED) if tensor else device.shared_bytes
    over = np.maximum(priced.shared / shared, priced.registers / device.registers)
    k = int(np.argmin(over))
    tile = {a.name: int(sizes[k]) for a, sizes in priced.tiles.items()}
    if priced.shared[k] / shared >= priced.registers[k] / device.registers:
        return Limit("shared memory", int(priced.shared[k]), shared, tile)
    return Limit("registers", int(priced.registers[k]), device.registers, tile)
