"""Generated kernels beside the best hand-written ones, on a GPU.

    python bench/build_gpu.py GROUP...                   # anywhere: bundles into bench/bundles/gpu
    PYTHONPATH=src python bench/gpu.py GROUP... [--only TEXT] [--peers fast] [--seconds 150] [-o F]
    python bench/gpu.py --merge F... [-o bench/results/gpu.json] && python bench/render.py

Needs numpy, cupy and torch (Triton, Liger, quack, TileLang and FA4 take part where they are
installed). Correctness first (fresh inputs, poisoned outputs between guard bands, two runs,
float64), then all contestants in CUDA graphs, interleaved in random order. --peers is none, fast
(libraries and Triton), compiled (flex_attention and torch.compile too), all (max-autotune too:
minutes), or names. With --warm N they are compiled in N processes first, whose results the caches
of torch and Triton keep. The file is rewritten after every case. --dry runs everything but the
GPU. The exit status is 1 where a case was wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from gpu.case import Case  # noqa: E402
from gpu.groups import GROUPS, cases  # noqa: E402
from gpu.options import LEVELS, Options  # noqa: E402
from gpu.session import RECORDED, Machine, run, supervise  # noqa: E402
from gpu.store import line, merged, read, write  # noqa: E402
from gpu.warm import together  # noqa: E402

__all__ = ["main"]


def main() -> int:
    options = _options()
    path = Path(options.output)
    if options.merge:
        return _merge(options.merge, path)
    wanted = cases(options.groups, options.only)
    chosen = Options(_peers(options.peers), options.rounds, options.warm > 0)
    if options.making:
        return _make(wanted, chosen, options.making)
    if options.until:
        run(_machine(options.dry), wanted, path, chosen, options.until)
        return 0
    until = time.time() + options.seconds
    if options.warm and not options.dry:
        made = together(options.warm, 0.5 * options.seconds, _maker)
        print(f"{made} of {options.warm} processes compiled their peers", flush=True)
    records = supervise(wanted, path, until, _child)
    print(*(line(r) for r in records if not r["correct"]), f"written: {path}", sep="\n")
    return 1 if any(not r["correct"] and not r.get("not_run") for r in records) else 0


def _options() -> argparse.Namespace:
    default = Path(os.environ.get("OUT") or HERE / "results") / "gpu.json"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--only", default="", help="the cases whose name has one of these texts")
    parser.add_argument("--peers", default="fast", help=f"{', '.join(LEVELS)}, or names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=150.0, help="limit of the whole run")
    parser.add_argument(
        "--warm", type=int, default=0, metavar="N", help="compile peers first, in N"
    )
    parser.add_argument(
        "--making", default="", help=argparse.SUPPRESS
    )  # in a child: which of how many
    parser.add_argument("--dry", action="store_true", help="without a GPU; times are drawn")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="join results of several runs")
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)  # in a child
    parser.add_argument("-o", "--output", default=str(default))
    options = parser.parse_args()
    unknown = [g for g in options.groups if g not in GROUPS]
    if unknown or not (options.groups or options.merge):
        parser.error(f"name groups of: {', '.join(GROUPS)}")
    return options


def _peers(text: str) -> tuple[str, ...]:
    return LEVELS[text] if text in LEVELS else tuple(text.split(","))


def _machine(dry: bool) -> Machine:
    if dry:
        from gpu.dry import Dry

        return Dry()
    from gpu.cuda import Cuda

    return Cuda()


def _make(wanted: Sequence[Case], options: Options, part: str) -> int:
    """In a child of --warm: compile the peers of its part of the cases."""
    from gpu.cuda import Cuda

    machine, (first, step) = Cuda(measured=False), map(int, part.split("/"))
    for case in wanted[first::step]:
        machine.make(case, options)
        machine.clean()
    return 0


def _maker(part: str) -> list[str]:
    return [sys.executable, __file__, *sys.argv[1:], "--making", part]


def _child(until: float) -> str | None:
    """Run the rest of the cases in a process of its own; what ended it in the midst of a case."""
    command = [sys.executable, __file__, *sys.argv[1:], "--until", str(until)]
    try:
        done = subprocess.run(command, timeout=max(1.0, until + 20 - time.time()), check=False)
    except subprocess.TimeoutExpired:
        return "the run's time was over"
    if done.returncode in RECORDED:
        return None
    return f"the process ended with status {done.returncode}"


def _merge(files: list[str], path: Path) -> int:
    """Join result files, the later ones over the earlier ones."""
    rows = [read(path), *(read(Path(f)) for f in files)]
    if any(r.get("gpu") == "dry run" for records in rows for r in records):
        print("a dry run measures nothing: not merged", file=sys.stderr)
        return 2
    write(path, merged(rows))
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
