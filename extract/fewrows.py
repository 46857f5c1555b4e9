"""The time of a chain with few rows (one query, the heads that share a key head): streaming.

The emitter gives such a block one warp and a ring of up to four slots, so that several blocks share
a multiprocessor. What the memory then gives follows from the bytes under way (Little's law): a
multiprocessor's share of the bandwidth times the latency. A block alone is also bound by its one
warp, which works through a slot before it takes the next.

Measured on an H200 (bench/results): 512 blocks of 32 keys reach 4.1 TB/s in 36 us and 4.6 TB/s in
7.5 ms, as cuDNN does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nautile.extract.device import Device
from nautile.extract.footprint import Vector

__all__ = ["READING", "ROWS", "Streaming", "streaming"]

ROWS = 16  # of one warp's tile
SLOTS = 4
COMFORTABLE = 57344  # bytes of shared memory inside which a ring has more than two slots
SYSTEM = 1024  # bytes of shared memory that a block takes besides
MOST = 8  # blocks beside each other, by their registers
LATENCY = 1.1e-6  # seconds from a request to device memory to its answer, under load
STEP = 0.15e-6  # seconds of a warp for a slot, and those for each byte of it (measured: 64 blocks
# of 128 keys and 16 columns of values take 1.65 us a slot of 36 KB)
WARP = 0.65e-6 / 16384
READING = 1.07  # times the bandwidth of a copy: memory that is only read turns around less
OVERLAP = 0.05  # share of the smaller demands that is not hidden: nothing waits but for memory


@dataclass(frozen=True, slots=True)
class Streaming:
    """For each tiling: the share of the bandwidth that is reached, the least seconds that the
    blocks' own warps take, and the rounds of blocks that one multiprocessor runs."""

    reach: Vector
    least: Vector
    rounds: Vector

    def seconds(self, demand: Mapping[str, Vector]) -> Vector:
        """The time of the kernel, its launch apart, from what each resource needs."""
        stack = np.stack(list(demand.values()))
        most = stack.max(0)
        hidden = OVERLAP * (stack.sum(0) - most)
        total: Vector = np.maximum(most, self.least) + hidden + self.rounds * LATENCY
        return total


def streaming(d: Device, blocks: Vector, slot: Vector, stay: Vector, steps: Vector) -> Streaming:
    """`slot` bytes of operands a step, `stay` bytes that stay; a block takes `steps` steps."""
    slot = np.maximum(slot, 1)
    slots = np.where(steps > 1, np.clip(np.floor((COMFORTABLE - stay) / slot), 2, SLOTS), 1)
    shared = stay + slots * slot + SYSTEM
    together = d.sms * np.clip(np.floor((d.shared_bytes + SYSTEM) / shared), 1, MOST)
    ahead = np.minimum(np.where(slots > 1, slots - 1, 0.5), steps) * slot
    need = d.memory_bandwidth * LATENCY
    rounds = np.floor(blocks / together)
    rest = blocks - rounds * together
    full, last = (_reached(n * ahead / need) for n in (together, np.maximum(rest, 1)))
    taken = rounds * together / full + rest / last
    rounds = rounds + (rest > 0)
    return Streaming(blocks / taken, rounds * steps * (STEP + slot * WARP), rounds)


def _reached(flying: Vector) -> Vector:
    """The share of the bandwidth that a multiple of the bytes needed reaches: in proportion at
    first, 0.95 at 1.8 times as many, 0.99 at 3.6 (measured: 256 blocks take 4% longer than 512)."""
    found: Vector = READING * flying / (1 + flying**3) ** (1 / 3)
    return found
