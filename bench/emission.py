"""How long kernels take from the plan to CUDA and from CUDA to machine code. Needs no GPU.

    python bench/emission.py [--only TEXT] [--candidates 64] [--threads 2] [-o FILE]

For each kind of kernel: `emit`, the seconds that the first schedule's CUDA takes, `compile`, the
seconds that NVRTC takes for it, without the cache; and for two of them `many`, the same for that
many schedules of one kernel, compiled in threads. Each comes twice: as the wall clock has it (other
work on the machine counts), and as the seconds of processor that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu.case import Case, text_of  # noqa: E402

if TYPE_CHECKING:
    from nautile.codegen.source import CudaKernel
    from nautile.extract.kernel import Plan
    from nautile.options import Options
    from nautile.worker import Worker

__all__ = ["KINDS", "Kind", "Spent", "main", "many", "measured", "spent"]

RESULT = HERE / "results" / "emission.json"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A program of the harness whose first kernel is of the kind that `name` tells. With `many`,
    all its schedules are timed as well."""

    name: str
    file: str
    program: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    target: str = "h200"
    many: bool = False


_DECODE = {"B": 16, "H": 64, "Hk": 8, "T": 1, "S": 32768}
KINDS = (
    Kind("product, warpgroups", "products", "gemm", many=True),
    Kind("product, portable", "products", "gemm", target="a100"),
    Kind("product with bias and GELU", "products", "bias_gelu"),
    Kind("gated pair of products", "products", "swiglu"),
    Kind("eight-bit product", "fp8", "gemm8"),
    Kind("attention, warpgroups", "attention", "causal", many=True),
    Kind("attention, portable", "attention", "causal", target="a100"),
    Kind("attention with cap, bias and window", "attention", "together"),
    Kind("split reduction", "attention", "full", _DECODE),
    Kind("rows in a block", "rows", "softmax_rows"),
    Kind("rows in clusters", "rows", "softmax_rows", {"N": 65536}),
    Kind("pointwise", "rows", "chain"),
    Kind("general", "corpus", "mixtral_router"),
)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the wall clock, and of processor in all threads of this process and in processes
    that it started and waited for."""

    wall: float
    cpu: float


def spent(action: Callable[[], Any]) -> tuple[Any, Spent]:
    """What an action gives, and what it took."""
    wall, cpu = time.perf_counter(), _processor_seconds()
    result = action()
    return result, Spent(time.perf_counter() - wall, _processor_seconds() - cpu)


def _processor_seconds() -> float:
    others = os.times()
    return time.process_time() + others.children_user + others.children_system


def measured(kind: Kind, worker: Worker) -> Row:
    """The row of one kind: its first kernel, by the first schedule that the compiler takes."""
    from nautile import building
    from nautile.codegen.compile import compile_kernel

    plan, options = _plan(kind, worker)
    kernel = plan.kernels[0]
    built, emitted = spent(lambda: building.build(kernel, options))
    way = built.implementations[0]
    (target,) = building.architectures(options)
    row: Row = {"kind": kind.name, "program": kind.program, "target": kind.target}
    steps = []
    for step in way.steps:
        made, taken = spent(partial(compile_kernel, step.cuda, target, cache=None))
        size = {"lines": step.cuda.text.count("\n"), "cubin_bytes": len(made.cubin)}
        steps.append({"kernel": step.cuda.name, **size, **_row(taken)})
    whole = Spent(
        emitted.wall + sum(s["wall_s"] for s in steps), emitted.cpu + sum(s["cpu_s"] for s in steps)
    )
    return row | {
        "schedule": way.schedule,
        "implementations": len(built.implementations),
        "emit": _row(emitted),
        "compile": steps,
        "whole": _row(whole),
    }


def many(kind: Kind, worker: Worker, count: int, threads: int) -> Row:
    """So many schedules of a kernel: emitted, then compiled in threads without the cache. A
    schedule that the gate refuses counts as one that was tried."""
    from nautile import building

    plan, options = _plan(kind, worker)
    kernel, wanted = plan.kernels[0], replace(options, candidates=count)
    built, emitted = spent(lambda: building.build(kernel, wanted))
    kernels = [s.cuda for way in built.implementations for s in way.steps]
    (target,) = building.architectures(options)
    refused, compiled = spent(lambda: sum(_refused(kernels, target, threads)))
    return {
        "kind": kind.name, "program": kind.program, "target": kind.target, "threads": threads,
        "schedules": len(built.implementations), "kernels": len(kernels), "refused": refused,
        "emit": _row(emitted), "compile": _row(compiled),
        "whole": _row(Spent(emitted.wall + compiled.wall, emitted.cpu + compiled.cpu)),
    }  # fmt: skip


def _plan(kind: Kind, worker: Worker) -> tuple[Plan, Options]:
    from nautile import lang
    from nautile.stages import Optimization, Options, choose, saturate

    case = Case("emission", kind.file, kind.program, kind.sizes)
    (program,) = lang.parse(text_of(case), f"{kind.file}.nau", dict(kind.sizes))
    result = Optimization(program, Options(target=kind.target, compile=True))
    saturate(result, worker)
    choose(result)
    assert result.plan is not None
    return result.plan, result.options


def _refused(kernels: Sequence[CudaKernel], target: str, threads: int) -> Iterator[bool]:
    """Whether the gate refuses each kernel."""
    from nautile.codegen.compile import compile_kernel
    from nautile.errors import CompileError

    def refused(kernel: CudaKernel) -> bool:
        try:
            compile_kernel(kernel, target, cache=None)
        except CompileError as error:
            if error.code != "gate":
                raise
            return True
        return False

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(refused, kernels)


def _row(taken: Spent) -> Row:
    return {"wall_s": round(taken.wall, 3), "cpu_s": round(taken.cpu, 3)}


def main() -> int:
    options = _options()
    from nautile.codegen.compile import compiler_version
    from nautile.worker import Worker

    found: dict[str, Any] = {
        "date": date.today().isoformat(), "cores": os.cpu_count(), "processor": _processor(),
        "nvrtc": compiler_version(), "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    chosen = [k for k in KINDS if options.only in k.name]
    worker = Worker()
    try:
        found["kernels"] = list(_told(chosen, partial(measured, worker=worker)))
        wide = partial(many, worker=worker, count=options.candidates, threads=options.threads)
        found["schedules"] = list(_told([k for k in chosen if k.many], wide))
    finally:
        worker.close()
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(options.output)
    wanted = len(chosen) + sum(k.many for k in chosen)
    return 0 if len(found["kernels"]) + len(found["schedules"]) == wanted else 1


def _told(kinds: Sequence[Kind], make: Callable[[Kind], Row]) -> Iterator[Row]:
    """The rows of those that compile."""
    from nautile.errors import NautileError

    for kind in kinds:
        try:
            row = make(kind)
        except NautileError as error:
            print(f"{kind.name}: {error}", file=sys.stderr, flush=True)
            continue
        whole, emit = row["whole"], row["emit"]
        print(f"{row['kind']:40} {whole['wall_s']:7.2f} s, {whole['cpu_s']:6.2f} s of processor"
              f" ({emit['cpu_s']:.2f} s to emit)", flush=True)  # fmt: skip
        yield row


def _processor() -> str:
    """The processor's name, as Linux has it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    return next(named, platform.processor())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the kinds whose name has this text")
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
