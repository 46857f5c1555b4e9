"""Batches: files a second, hits, memory, a second run, scaling, a cluster that loses nodes.

    python bench/batch.py [--files 2000] [--seed 7] [--cases jobs1,jobs2,ray2,ray2-deaths]
                          [--compile] [--truth results.jsonl] [--keep FOLDER] [-o FILE.json]

The files are those of bench/batch_files.py: variations of the corpus, half of them duplicates up to
renaming. For each case: a run into an empty store with every cache empty, then a second run over
the same files into another folder, over the same store. `nautile batch` runs as a process of its
own; its memory and that of its workers is read every second from /proc. A case `jobsN` is the pool
with N workers; `rayN` is a Ray cluster of a head and N nodes of one processor each, all processes
of this machine; with `-deaths`, nodes are killed at random moments, one in about a minute, and
others join in their place.

```
Record ::= group "batch", case, files, programs, jobs, correct, seconds, files_per_second, computed,
           cached, distinct, failed, errors, deaths, second {seconds, files_per_second, times},
           optimizing {mean, percentiles [seconds]}  what programs took their workers, 0th to 100th
           memory {parent_peak, peak, first_half, second_half, samples [[second, parent, all]]},
           date, versions, machine        memory in bytes; halves are means of each minute's peak
```

`correct` says that the runs agree: one record an input, and every record of every run has the same
key, status and kernels; those of `--truth`, too, which an earlier run has left in the folder
`--keep`. A record `scaling` holds how many times as fast as the first case the others are. The file
keeps the records of other numbers of files.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import batch_files
import numpy as np
from ray_nodes import Nodes

from nautile.batch.results import records
from nautile.executor.machine import machine, memory_of, resident

HERE = Path(__file__).resolve().parent
SAMPLES = 600  # of the memory that are kept
LIBRARIES = ("nautile", "egglog", "highspy", "numpy", "ray", "sqlalchemy")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", default="jobs1,jobs2,ray2,ray2-deaths")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "batch.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nautile-batch-") as folder:
        home = Path(folder)
        print(batch_files.write(home / "in", given.files, given.seed), flush=True)
        found = []
        for case in given.cases.split(","):
            found.append(_measured(home, case, given.files, given.compile))
            _compare(home, found, given.truth)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(home / f"{case}-first" / "results.jsonl", given.keep / f"{case}.jsonl")
            _keep(given.output, [*found, *_scaling(found)])
    print(json.dumps([{k: v for k, v in r.items() if k != "memory"} for r in found], indent=1))


def _keep(path: Path, found: list[dict[str, Any]]) -> None:
    """Write the records beside those of other numbers of files and other cases."""
    new = {(r["case"], r["files"]) for r in found}
    old = json.loads(path.read_text()) if path.exists() else []
    rows = [r for r in old if (r["case"], r["files"]) not in new] + found
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _nothing() -> None:
    """What is done where no node dies."""


def _measured(home: Path, case: str, files: int, compiles: bool) -> dict[str, Any]:
    """A first run of that case, and a second one over its store."""
    kind, jobs = (case[:3], int(case[3])) if case.startswith("ray") else ("pool", int(case[4:]))
    with ExitStack() as stack:
        nodes = stack.enter_context(Nodes(jobs).running()) if kind == "ray" else None
        place = (
            ["--executor", "ray", "--address", nodes.address] if nodes else ["--jobs", f"{jobs}"]
        )
        each = nodes.decimate if nodes and case.endswith("-deaths") else _nothing
        first, memory = _run(home, f"{case}-first", case, place, compiles, each)
    second, _ = _run(home, f"{case}-second", case, ["--jobs", f"{jobs}"], compiles)
    return {
        "group": "batch",
        "case": case,
        "files": files,
        "programs": first["inputs"],
        "jobs": jobs,
        "compile": compiles,
        "correct": True,
        **{k: first[k] for k in ("seconds", "files_per_second", "computed", "cached", "distinct")},
        "failed": first["failed"],
        "errors": first["errors"],
        "deaths": nodes.deaths if nodes else 0,
        "optimizing": _optimizing(home / f"{case}-first" / "results.jsonl"),
        "wall_seconds": first["wall_seconds"],
        "second": {
            **{k: second[k] for k in ("seconds", "files_per_second", "computed", "wall_seconds")},
            "times": round(first["wall_seconds"] / second["wall_seconds"], 2),
        },
        "memory": memory,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "machine": {"processor": _processor(), "cores": machine().cores},
    }


def _optimizing(path: Path) -> dict[str, Any]:
    """What the programs that were computed took their workers."""
    taken = [r["worker_seconds"] for r in records(path) if not r["cached"] and r["chosen"]]
    percentiles = np.percentile(taken, range(101)) if taken else []
    return {
        "mean": round(fmean(taken or [0.0]), 3),
        "percentiles": [round(float(p), 3) for p in percentiles],
    }


def _run(
    home: Path,
    output: str,
    store: str,
    place: list[str],
    compiles: bool,
    each: Callable[[], None] = _nothing,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One run as a process of its own: its summary, and its memory."""
    flag = "--compile" if compiles else "--no-compile"
    command = [sys.executable, "-m", "nautile", "batch", "in", "-o", output, *place]
    environment = os.environ | {"NAUTILE_CACHE": str(home / f"{store}.cache")}
    start = time.monotonic()
    process = subprocess.Popen(
        [*command, flag, "--store", f"{store}.store", "--quiet"], cwd=home, env=environment
    )
    samples = list(_watched(process, start, each))
    wall = time.monotonic() - start
    if process.returncode not in (0, 1, 3):
        raise RuntimeError(f"nautile batch ended with status {process.returncode}")
    summary = json.loads((home / output / "summary.json").read_text())
    print(f"{output}: {wall:.1f} s, {summary}", flush=True)
    return summary | {"wall_seconds": round(wall, 2)}, _memory(samples)


def _watched(
    process: subprocess.Popen[bytes], start: float, each: Callable[[], None]
) -> Iterator[tuple[float, int, int]]:
    """Seconds, the memory of the batch process, and that of all processes, once a second, when
    `each` is called."""
    while process.poll() is None:
        each()
        yield time.monotonic() - start, resident(process.pid), memory_of(process.pid)
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            continue


def _memory(samples: list[tuple[float, int, int]]) -> dict[str, Any]:
    """Peaks, and whether the second half of the run took more than the first."""
    half = samples[-1][0] / 2 if samples else 0.0
    step = max(1, len(samples) // SAMPLES)
    return {
        "parent_peak": max((parent for _, parent, _ in samples), default=0),
        "peak": max((whole for _, _, whole in samples), default=0),
        "first_half": _level([s for s in samples if s[0] < half]),
        "second_half": _level([s for s in samples if s[0] >= half]),
        "samples": [[round(t, 1), parent, whole] for t, parent, whole in samples[::step]],
    }


def _level(samples: list[tuple[float, int, int]]) -> int:
    """The mean of each minute's peak."""
    peaks: dict[int, int] = {}
    for second, _, whole in samples:
        minute = int(second // 60)
        peaks[minute] = max(peaks.get(minute, 0), whole)
    return round(fmean(peaks.values())) if peaks else 0


def _compare(home: Path, found: list[dict[str, Any]], known: Path | None) -> None:
    """Set `correct` of each: its two runs have what the first of all has, or what is known."""
    truth = {_mark(r): _lasting(r) for r in records(known)} if known else None
    keyed = known is None  # another release has other keys
    for row in found:
        for part in ("first", "second"):
            path = home / f"{row['case']}-{part}" / "results.jsonl"
            made = [(_mark(r), _lasting(r)) for r in records(path)]
            truth = truth or dict(made)
            pairs = ((m, what, truth.get(m)) for m, what in dict(made).items())
            differ = [m for m, what, wanted in pairs if not _agree(what, wanted, keyed)]
            row["correct"] &= len(made) == len(dict(made)) == len(truth) and not differ
            for mark in differ[:10]:
                print(path, mark, dict(made)[mark], truth.get(mark), flush=True)


def _mark(record: Mapping[str, Any]) -> tuple[str, str | None]:
    return record["input"]["path"], record["input"]["program"]


def _lasting(record: Mapping[str, Any]) -> tuple[Any, float]:
    """What every run must agree on."""
    chosen = record["chosen"]
    count, seconds = (len(chosen["kernels"]), chosen["seconds"]) if chosen else (0, 0.0)
    return (record["key"], record["status"], record["index"], count), seconds


def _agree(one: tuple[Any, float], other: tuple[Any, float] | None, keyed: bool) -> bool:
    """Which of several duplicates is optimized first may differ, and with it the names that break
    ties; so predicted times are compared to one percent."""
    if other is None or one[0][not keyed :] != other[0][not keyed :]:
        return False
    return math.isclose(one[1], other[1], rel_tol=0.01)


def _scaling(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as fast as the first case the others are."""
    if len(found) < 2:
        return []
    base = found[0]
    ratios = {r["case"]: round(base["seconds"] / r["seconds"], 3) for r in found[1:]}
    row = {"group": "batch", "case": "scaling", "files": base["files"], "base": base["case"]}
    correct = all(r["correct"] for r in found)
    return [row | {"times": ratios, "correct": correct, "date": base["date"]}]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.machine()
    return platform.machine()


if __name__ == "__main__":
    main()
