"""Build the bundles that bench/gpu.py measures. Needs no GPU.

    python bench/build_gpu.py [GROUP...] [--only TEXT] [--target h200] [--jobs 2] [--again]
                              [--candidates 1]

Each case becomes bench/bundles/gpu/NAME with sampled values of its float64 reference. What became
of each is a row of bench/bundles/gpu/built.json: seconds in all and of each stage, kernels,
schedules, predicted milliseconds and bytes of the bundle, or the error. A failure is a result: the
exit status is 1 only where nothing was built. Cases that have a bundle are skipped without --again.
With --candidates a bundle holds several schedules of each kernel, which bench/gpu.py times beside
each other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu.case import BUNDLES, Case, text_of
from gpu.groups import GROUPS, cases

if TYPE_CHECKING:
    from nautile.worker import Worker

__all__ = ["build", "each", "main", "size_of"]

ABOUT = BUNDLES / "built.json"
STAGES = ("saturate", "choose", "build", "compile", "write")
LONGEST = 600  # seconds of one case
Row = dict[str, Any]


def main() -> int:
    options = _options()
    wanted = {c.name: c for c in cases(options.groups or GROUPS, options.only)}
    if not options.again:
        wanted = {n: c for n, c in wanted.items() if not (c.folder / "manifest.json").exists()}
    built = 0
    make = partial(build, candidates=options.candidates)
    for name, row in each(list(wanted.values()), options.target, options.jobs, make):
        _note(name, row)
        built += "error" not in row
        said = row.get("error") or f"{row['kernels']} kernels, {row['seconds']:.1f} s"
        print(f"{name}: {said}", flush=True)
    total = sum(size_of(c.folder) for c in cases(GROUPS) if c.folder.is_dir())
    print(f"{built} of {len(wanted)} built; all bundles: {total / 1e6:.1f} MB")
    return 0 if built or not wanted else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--only", default="", help="the cases whose name has one of these texts")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--candidates", type=int, default=1, help="schedules of each kernel")
    parser.add_argument("--again", action="store_true", help="build what has a bundle as well")
    options = parser.parse_args()
    unknown = [g for g in options.groups if g not in GROUPS]
    if unknown:
        parser.error(f"unknown group {', '.join(unknown)}; known: {', '.join(GROUPS)}")
    return options


def each(
    wanted: list[Case], target: str, jobs: int, make: Callable[[Case, str], Row]
) -> Iterator[tuple[str, Row]]:
    """What became of each case, as they end; a process that dies costs the case that it had."""
    left = {c.name: c for c in wanted}
    while left:
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
        tasks = {pool.submit(make, c, target): c.name for c in left.values()}
        for task in as_completed(tasks):
            try:
                row = task.result()
            except BrokenProcessPool:
                break
            yield tasks[task], row
            del left[tasks[task]]
        else:
            pool.shutdown()
            return
        pool.shutdown(cancel_futures=True)
        yield from _alone(left, target, make)


def _alone(
    left: dict[str, Case], target: str, make: Callable[[Case, str], Row]
) -> Iterator[tuple[str, Row]]:
    """After a crash: the next cases one a process, until the one that crashes has been found."""
    for name in list(left):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            task = pool.submit(make, left.pop(name), target)
            try:
                yield name, task.result()
            except BrokenProcessPool:
                yield name, {"error": "the process that built it died"}
                return


def build(case: Case, target: str, candidates: int = 1) -> Row:
    """Optimize, compile and write one case; what became of it, an error too."""
    start = time.perf_counter()
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(LONGEST)
    try:
        row = _build(case, target, candidates)
    except Exception as error:
        shutil.rmtree(case.folder, ignore_errors=True)  # an older bundle would be measured
        _worker().close()
        _worker.cache_clear()  # it may hang in the midst of a saturation
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        row = {"error": f"{type(error).__name__}: {error}"[:400] + f" ({place})"}
    finally:
        signal.alarm(0)
    return row | {"seconds": time.perf_counter() - start}


def _late(number: int, frame: Any) -> None:
    raise TimeoutError(f"took more than {LONGEST} s")


@cache
def _worker() -> Worker:
    """The saturation worker of this process."""
    from nautile.worker import Worker

    return Worker()


def _build(case: Case, target: str, candidates: int) -> Row:
    from nautile import lang
    from nautile.bundle import write_bundle
    from nautile.stages import Optimization, Options, build, choose, compile_all, saturate

    chosen = Options(target=target, compile=True, candidates=candidates)
    found = {p.name: p for p in lang.parse(text_of(case), f"{case.file}.nau", dict(case.sizes))}
    result = Optimization(found[case.program], chosen)
    taken: dict[str, float] = {}
    stages: tuple[Callable[[Optimization], object], ...] = (
        partial(saturate, worker=_worker()),
        choose,
        build,
        compile_all,
        partial(write_bundle, case.folder),
    )
    for name, stage in zip(STAGES, stages, strict=True):
        start = time.perf_counter()
        stage(result)
        taken[name] = time.perf_counter() - start
    assert result.plan is not None
    return {
        "kernels": len(result.built),
        "schedules": [w.schedule for b in result.built for w in b.implementations],
        "stages": taken,
        "predicted_ms": result.plan.seconds * 1e3,
        "bytes": size_of(case.folder),
    }


def size_of(folder: Path) -> int:
    """Bytes of the files of a bundle."""
    return sum(f.stat().st_size for f in folder.iterdir() if f.is_file())


def _note(name: str, row: Row) -> None:
    """The row into the file of all rows, which is never half written."""
    BUNDLES.mkdir(parents=True, exist_ok=True)
    rows: Mapping[str, Row] = json.loads(ABOUT.read_text()) if ABOUT.exists() else {}
    aside = ABOUT.with_suffix(".part")
    aside.write_text(json.dumps({**rows, name: row}, indent=1) + "\n")
    os.replace(aside, ABOUT)


if __name__ == "__main__":
    sys.exit(main())
