"""Schedule choices of a Hopper kernel that a tile program leaves open, and what the device holds.

Registers. A consumer warpgroup of 128 threads has 64 rows (or two fragments of 64): a thread holds
half of a fragment's columns, and a quarter of those of a packed operand. `CONSUMER_REGISTERS` tells
how many a thread has by the number of consumers; `SPARE_REGISTERS` of them are for everything else.

Shared memory: 232448 bytes a block, less 1024 for alignment. Some staging buffers of 8 KiB for each
consumer that stores by TMA; the rings take the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ALIGNMENT",
    "CONSUMER_REGISTERS",
    "FORMER_REGISTERS",
    "LAUNCHED",
    "SHARED_LIMIT",
    "SPARE_REGISTERS",
    "STAGING_BYTES",
    "Options",
]

SHARED_LIMIT = 232448
ALIGNMENT = 1024
STAGING_BYTES = 8192
SPARE_REGISTERS = 28
LAUNCHED = 128  # registers that a thread of four warpgroups is launched with: no product writes all
# consumers -> registers of the producer's threads and of theirs (None: what a launch gives). Fewer
# than 40 for the producer spill where its loop has bounds.
CONSUMER_REGISTERS: dict[int, tuple[int, int] | None] = {1: None, 2: (40, 232), 3: (32, 160)}
# the same where warps beside the producer form operands
FORMER_REGISTERS: dict[int, tuple[int, int] | None] = {1: None, 2: (56, 224), 3: (56, 152)}


@dataclass(frozen=True, slots=True)
class Options:
    """None takes the default. `alternate`: consumer warpgroups take tiles in turn (ping-pong);
    `turns`: those that share a tile of a chain issue in turn, so that one multiplies while another
    computes; `dynamic`: tiles are drawn from a counter; `blocks`: how many are launched at most,
    the device's multiprocessors; `group` row tiles are walked together for the second-level
    cache; `ahead`: a chain's next tile begins before this one's end; `cluster`: so many blocks
    bring what their tiles share together (no faster on an H200: 0.96 to 1.00 times the rate);
    `buffers`: staging buffers of 8 KiB a fragment, where results are stored; `midway`: a chain's
    second product is waited for in the midst of the next weights, by default where warpgroups are
    two: three hide more of it (measured: 2-3.5% won there, as much lost here)."""

    stages: int | None = None
    ahead: bool | None = None
    consumers: int | None = None
    alternate: bool | None = None
    turns: bool = True
    dynamic: bool | None = None
    descending: bool | None = None
    blocks: int = 132
    group: int = 16
    cluster: int | None = None
    buffers: int = 2
    midway: bool | None = None
    shared_limit: int = SHARED_LIMIT
