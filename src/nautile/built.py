"""What a kernel of a plan became: tile programs, CUDA and machine code, and every way to run it.

```
Built          ::= kernel, tiles, cuda, compiled      the portable implementation
                   better [Implementation]            for the target's own architecture, tried first
                   spare [Implementation]             others that a measurement may prefer
Implementation ::= kernel (its schedule), steps [Step], run one after the other
Step           ::= tiles, cuda, compiled {architecture: machine code}
```
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nautile.codegen.compile import Compiled
    from nautile.codegen.source import CudaKernel
    from nautile.codegen.tile import TileProgram
    from nautile.extract.kernel import Kernel

__all__ = ["Built", "Implementation", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One CUDA kernel: its tile programs, its text and its machine code by architecture."""

    tiles: tuple[TileProgram, ...]
    cuda: CudaKernel
    compiled: Mapping[str, Compiled] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to do a launch's work: a schedule of the kernel, and the CUDA kernels of it, which
    run one after the other. Several implementations may share a schedule: their `variant` counts
    what the tile program leaves open, like the order of the blocks."""

    kernel: Kernel
    steps: tuple[Step, ...]
    variant: int = 0

    @property
    def tiles(self) -> tuple[TileProgram, ...]:
        """The tile programs of all steps, one a part of the kernel."""
        return tuple(t for step in self.steps for t in step.tiles)

    @property
    def architecture(self) -> str:
        """What all steps need: one architecture of its own ("sm_90a"), or the lowest."""
        return max((s.cuda.architecture for s in self.steps), key=lambda a: (a[-1] in "af", a))

    @property
    def schedule(self) -> str:
        """The schedule as people read it: architecture, tiles, blocks and threads."""
        tiles = {a.name: t for part in self.kernel.leading for a, t in part.tiles.items()}
        shapes = (
            f"{math.prod(s.cuda.grid)} blocks of {s.cuda.threads} threads" for s in self.steps
        )
        named = " ".join(f"{a}={t}" for a, t in tiles.items())
        other = f", variant {self.variant}" if self.variant else ""
        return f"{self.architecture}, tiles {named}, {' then '.join(shapes)}{other}"


@dataclass(frozen=True, slots=True)
class Built:
    """One launch, all the way down: the kernel, its tile programs, its portable CUDA and cubins,
    and other ways to do its work."""

    kernel: Kernel
    tiles: tuple[TileProgram, ...]
    cuda: CudaKernel
    compiled: Mapping[str, Compiled] = field(default_factory=dict)
    better: tuple[Implementation, ...] = ()
    spare: tuple[Implementation, ...] = ()

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Every way to do the launch's work, the best first."""
        portable = Step(self.tiles, self.cuda, self.compiled)
        return (*self.better, Implementation(self.kernel, (portable,)), *self.spare)

    @property
    def best(self) -> Implementation:
        """The one that runs on the target."""
        return self.implementations[0]
