"""What is measured of one program: passes, kernels, bytes, saturation and certificate.

"before" is the source as it stands, one kernel for each definition; "after" is the chosen plan.
Passes are those of `nautile.extract.passes`. Bytes before and after are the cost model's for the
H200; `least` is what any program must move: each input read once, each output written once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from threadpoolctl import threadpool_limits

from nautile.certificate import Certificate, certify
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError
from nautile.extract import choose, device
from nautile.extract.baseline import baseline, source_kernels
from nautile.extract.body import analyse
from nautile.extract.device import PORTABLE
from nautile.extract.kernel import Kernel, Part
from nautile.extract.passes import passes, passes_of_part
from nautile.extract.roofline import schedules
from nautile.stages import Optimization, Options, build, saturate
from nautile.terms import Output, Program
from nautile.worker import Worker

from .catalogue import Entry

__all__ = ["Measured", "Saturation", "Side", "certificate", "measure"]


@dataclass(frozen=True, slots=True)
class Side:
    """One way to compute a program: its kernels, passes over each tensor read, bytes moved."""

    kernels: tuple[str, ...]
    passes: Mapping[str, int]
    bytes: int

    def over(self, program: Program) -> dict[str, int]:
        """The passes over the program's tensor inputs."""
        return {b.name: self.passes.get(b.name, 0) for b in program.inputs if b.shape}


@dataclass(frozen=True, slots=True)
class Saturation:
    """All regions of a program together; `milliseconds`, the least of several runs, are processor
    time of the warm child, so that others on the machine do not count."""

    stop: str
    rows: int
    iterations: int
    milliseconds: float
    regions: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table, without its certificate."""

    entry: Entry
    before: Side
    after: Side
    least: int
    saturation: Saturation
    extraction: float
    result: Optimization

    @property
    def excess(self) -> dict[str, tuple[int, int]]:
        """Inputs with more passes than the fewest: (chosen, fewest)."""
        found = self.after.over(self.entry.program)
        return {
            name: (n, self.entry.fewest(name))
            for name, n in found.items()
            if n > self.entry.fewest(name)
        }

    @property
    def reached(self) -> bool:
        """Whether the plan has the fewest passes over each input and the fewest kernels."""
        return not self.excess and len(self.after.kernels) <= self.entry.kernels


def measure(entry: Entry, worker: Worker, *, runs: int = 1, quick: float = 0.0) -> Measured:
    """Saturate (up to `runs` times, until one takes `quick` milliseconds or less) and choose."""
    program = entry.program
    result = Optimization(program, Options())
    saturate(result, worker)
    saturation = _saturation(result)
    for _ in range(runs - 1):
        if saturation.milliseconds <= quick:
            break
        again = Optimization(program, Options())
        saturate(again, worker)
        saturation = min(saturation, _saturation(again), key=lambda s: s.milliseconds)
    start = time.perf_counter()
    _choose(result)
    seconds = time.perf_counter() - start
    return Measured(
        entry, _before(program), _after(result), _least(program), saturation, seconds, result
    )


def _choose(result: Optimization) -> None:
    """Choose for the path that every card has: where products are several times as fast, two passes
    and a plain product may beat one pass."""
    target = replace(device(result.options.target), path=PORTABLE)
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    result.plan = choose(pairs, result.program, target, numerics=result.options.numerics)
    result.baseline = baseline(result.program, target)


def certificate(result: Optimization, samples: int) -> tuple[Certificate, str]:
    """The certificate of a chosen plan, tile programs included where they lower, and why there is
    no CUDA if there is none. `samples` elements of a tensor are compared on ordinary inputs."""
    trouble = ""
    try:
        build(result)
    except LoweringError as error:
        trouble = str(error)
    assert result.plan is not None
    tiles = {b.kernel.name: b.tiles for b in result.built}
    with threadpool_limits(limits=1, user_api="blas"):
        return certify(result.program, result.plan, tiles, samples=samples), trouble


def _saturation(result: Optimization) -> Saturation:
    reports = [s.report for s in result.snapshots]
    order = ("memory", "time", "rows", "iterations", "saturated")
    return Saturation(
        min((r.stop for r in reports), key=order.index),
        sum(r.rows for r in reports),
        max(r.iterations for r in reports),
        1e3 * sum(r.processor for r in reports),
        len(reports),
    )


def _after(result: Optimization) -> Side:
    assert result.plan is not None
    kernels = result.plan.kernels
    moved = sum(k.prediction.reads_bytes + k.prediction.writes_bytes for k in kernels)
    return Side(tuple(_title(k) for k in kernels), passes(kernels), moved)


def _title(kernel: Kernel) -> str:
    """What a kernel stores and over which axes it walks."""
    streams = dict.fromkeys(a.name for p in kernel.parts for a in p.streams)
    made = ", ".join(o.buffer.name for o in kernel.outputs)
    return f"{made} ({' '.join(streams)})" if streams else made


def _before(program: Program) -> Side:
    target = replace(device("h200"), path=PORTABLE)
    total: dict[str, int] = {}
    kernels = source_kernels(program)
    for outputs in kernels:
        best = schedules(outputs, target, 1)
        part = best[0][0] if best else _everything_streamed(outputs)
        for name, n in passes_of_part(part).items():
            total[name] = total.get(name, 0) + n
    titles = tuple(", ".join(o.buffer.name for o in outputs) for outputs in kernels)
    return Side(titles, total, int(baseline(program, target)["bytes"]))


def _everything_streamed(outputs: tuple[Output, ...]) -> Part:
    """The part of a definition that no tiling fits: it walks over every reduced axis."""
    return Part(outputs, {}, analyse(outputs).reduced)


def _least(program: Program) -> int:
    tensors = [*program.inputs, *(o.buffer for o in program.outputs)]
    return sum(DTYPES[b.dtype].bytes * b.size for b in tensors)
