"""Build bundles of the programs in tests/fusion/programs. Needs no GPU.

    python bench/build_fusion.py [--target h200] [--only TEXT] [--seconds 900]

Each program becomes bench/bundles/fused-FILE-PROGRAM at the sizes that its file gives, with sampled
values of the float64 reference, for `python bench/check_bundles.py` on a machine with a GPU. What
does not build is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cases import BUNDLES

from nautile import lang
from nautile.bundle import write_bundle
from nautile.stages import Optimization, Options, build, choose, compile_all, saturate
from nautile.terms import Program
from nautile.worker import Worker

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "fusion" / "programs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--only", default="", help="build the programs whose name has this text")
    parser.add_argument("--seconds", type=float, default=900.0, help="begin none after that")
    options = parser.parse_args()
    start, failed, worker = time.perf_counter(), 0, Worker()
    for name, program in _programs(options.only):
        if time.perf_counter() - start > options.seconds:
            print(f"{name}: not built, the time is over", file=sys.stderr)
            failed += 1
            continue
        began = time.perf_counter()
        try:
            kernels = _build(program, name, options.target, worker)
            print(f"{name}: {kernels} kernels, {time.perf_counter() - began:.1f} s", flush=True)
        except Exception as error:  # one program that fails must not hide the others
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed += 1
    worker.close()
    return 1 if failed else 0


def _programs(only: str) -> Iterator[tuple[str, Program]]:
    for path in sorted(PROGRAMS.glob("*.nau")):
        for program in lang.parse_file(path):
            name = f"fused-{path.stem}-{program.name}"
            if only in name:
                yield name, program


def _build(program: Program, name: str, target: str, worker: Worker) -> int:
    """Without a certificate: tests/fusion makes those."""
    result = Optimization(program, Options(target=target, compile=True))
    saturate(result, worker)
    choose(result)
    build(result)
    compile_all(result)
    write_bundle(BUNDLES / name, result)
    return len(result.built)


if __name__ == "__main__":
    sys.exit(main())
