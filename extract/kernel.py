"""A chosen kernel: what extraction hands to code generation.

```
Plan   ::= kernels in launch order, bound, gap, runners-up
Kernel ::= name, parts, prediction, split     one launch
Part   ::= outputs, tiles, streams, path      one grid; several parts share a launch side by side
```

A part computes its outputs' terms. Buffers that the terms load are inputs of the program or outputs
of earlier kernels. Every axis of the part has a tile:

- a **grid** axis (free in an output and reduced nowhere in the part): one block for each tile;
- a **streamed** axis (in `streams`): a loop over tiles inside the block; all reductions over it at
  one stage share a pass, and an output that has it free is stored in a later pass;
- a **resident** axis (any other): the tile covers the whole extent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nautile.terms import Axis, Buffer, Output

if TYPE_CHECKING:
    from nautile.extract.pool import Choice

__all__ = ["Kernel", "Part", "Plan", "Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Roofline of one kernel on one device. Bytes are those that must move through device memory
    (`reads_bytes` counts re-reads that miss the L2 cache); `shares` gives the seconds that each
    resource would need alone (dram, l2, tensor, fp32, special, launch); `bound` is the largest."""

    seconds: float
    bound: str
    reads_bytes: int
    writes_bytes: int
    tensor_flops: int
    vector_flops: int
    special_ops: int
    shared_bytes: int
    registers: int
    blocks: int
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """Outputs computed by one grid of blocks, and the tile of each axis. `path` tells what the
    tiles are meant for: "wgmma" (TMA, warp roles) or "portable" (everything else)."""

    outputs: tuple[Output, ...]
    tiles: Mapping[Axis, int]
    streams: tuple[Axis, ...] = ()
    path: str = "portable"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: parts (usually one), its predicted cost and the rules that made its terms. Where
    it makes partial states of a reduction that is split over blocks, `split` gives the number of
    chunks of the axis; a later kernel merges them, or with `closing` the last of two parts, by the
    last block of each group that ends (see closing.py). One that `follows` reads what the launch
    right before it makes, and may be on the device before that one has ended. `columns` are the
    numbers of the candidates of `Plan.choice` that it came from."""

    name: str
    parts: tuple[Part, ...]
    prediction: Prediction
    rules: tuple[str, ...] = ()
    split: Mapping[Axis, int] = field(default_factory=dict)
    closing: bool = False
    follows: bool = False
    columns: tuple[int, ...] = field(default=(), compare=False)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(o for p in self.parts for o in p.outputs)

    @property
    def steps(self) -> tuple[Kernel, ...]:
        """The parts that wait for one another as kernels of their own: those of a closing kernel;
        the kernel itself, if it is none."""
        if not self.closing:
            return (self,)
        states, results = self.parts
        return (
            replace(self, name=f"{self.name} states", parts=(states,), closing=False),
            replace(self, parts=(results,), split={}, closing=False),
        )

    @property
    def leading(self) -> tuple[Part, ...]:
        """The parts whose tiles the launch's blocks are: all, but for the results that the last
        blocks of a closing kernel compute."""
        return self.parts[:1] if self.closing else self.parts

    @property
    def path(self) -> str:
        """What the tiles are meant for: "wgmma" or "portable"."""
        return self.parts[0].path


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in an order that can be launched, the seconds they are predicted to take, a lower
    bound over all candidates, the relative gap, and the next-best plans' seconds and kernels.
    `choice` keeps the candidates that it was chosen from."""

    kernels: tuple[Kernel, ...]
    intermediates: tuple[Buffer, ...]
    seconds: float
    bound: float
    gap: float
    runners_up: tuple[tuple[float, tuple[Kernel, ...]], ...] = ()
    pruned: Mapping[str, int] = field(default_factory=dict)
    choice: Choice | None = field(default=None, repr=False, compare=False)
