"""How often a chosen kernel walks over what it reads.

```
loop   ::= the passes, one for each streamed axis that a load has free: () where it is resident
passes ::= the number of distinct loops in which a buffer is read, summed over parts and kernels
```

A block reads a tile that does not move along a streamed axis once, so such a load is one pass; one
that is walked in two stages of a stream is two. A load that touches a vanishing part of its buffer
(a gather of one element a row) is no pass over it. Other blocks may read the same tile again: that
is counted in bytes (`Prediction.reads_bytes`), not here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from nautile.extract.body import Body, Pass, analyse
from nautile.extract.kernel import Kernel, Part
from nautile.terms import Load, walk

__all__ = ["passes", "passes_of_part"]

_TOUCH = 0.5  # of a buffer's elements; a load of fewer is no pass over it


def passes(kernels: Iterable[Kernel]) -> dict[str, int]:
    """For each buffer that the kernels read, by name, the number of passes over it."""
    total: dict[str, int] = {}
    for kernel in kernels:
        for part in kernel.parts:
            for name, n in passes_of_part(part).items():
                total[name] = total.get(name, 0) + n
    return total


def passes_of_part(part: Part) -> dict[str, int]:
    """The same for one grid of blocks."""
    body = analyse(part.outputs)
    loops: dict[str, set[tuple[Pass, ...]]] = {}
    for load in body.loads:
        found = loops.setdefault(load.buffer.name, set())
        if _reach(load) >= _TOUCH * load.buffer.size:
            found |= _loops(load, part, body)
    return {name: len(found) for name, found in loops.items()}


def _reach(load: Load) -> int:
    """The most elements of its buffer that a load can touch."""
    axes = {a for t in walk(*load.coordinates) for a in t.free} & load.free
    return math.prod(a.extent for a in axes)


def _loops(load: Load, part: Part, body: Body) -> set[tuple[Pass, ...]]:
    """The combinations of passes over streamed axes in which the load is read."""
    numbers = [
        [key for key, bag in body.passes.items() if key[0] == axis and load in bag]
        for axis in part.streams
        if axis in load.free
    ]
    return set(itertools.product(*(n for n in numbers if n)))
