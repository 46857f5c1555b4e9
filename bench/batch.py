"""Batches: files a second, hits, memory over time, a second run, scaling from one worker to two.

    python bench/batch.py [--files 2000] [--seed 7] [--jobs 1,2] [--compile] [-o FILE.json]

The files are those of bench/batch_files.py: variations of the corpus, half of them duplicates up to
renaming. For each number of workers: a run into an empty store with every cache empty, then a
second run over the same files into another folder, over the same store. `nautile batch` runs as a
process of its own; its memory and that of its workers is read every second from /proc.

```
Record ::= group "batch", case, files, programs, jobs, correct, seconds, files_per_second, computed,
           cached, distinct, failed, errors, second {seconds, files_per_second, times},
           memory {parent_peak, peak, first_half, second_half, samples [[second, parent, all]]},
           date, versions, machine        memory in bytes; halves are means of each minute's peak
```

`correct` says that the runs agree: one record an input, and every record of every run has the same
key, status and kernels. A last record, `scaling`, holds the ratios between the numbers of workers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import batch_files

from nautile.batch.results import records
from nautile.executor.machine import machine, memory_of, resident

HERE = Path(__file__).resolve().parent
SAMPLES = 600  # of the memory that are kept
LIBRARIES = ("nautile", "egglog", "highspy", "numpy", "sqlalchemy")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "batch.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nautile-batch-") as folder:
        home = Path(folder)
        print(batch_files.write(home / "in", given.files, given.seed), flush=True)
        jobs = [int(n) for n in given.jobs.split(",")]
        found = [_measured(home, n, given.files, given.compile) for n in jobs]
        _compare(home, found)
    found += _scaling(found)
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps([{k: v for k, v in r.items() if k != "memory"} for r in found], indent=1))


def _measured(home: Path, jobs: int, files: int, compiles: bool) -> dict[str, Any]:
    """A first run with so many workers, and a second one over its store."""
    name = f"jobs{jobs}"
    first, memory = _run(home, f"{name}-first", name, jobs, compiles)
    second, _ = _run(home, f"{name}-second", name, jobs, compiles)
    return {
        "group": "batch",
        "case": name,
        "files": files,
        "programs": first["inputs"],
        "jobs": jobs,
        "compile": compiles,
        "correct": True,
        **{k: first[k] for k in ("seconds", "files_per_second", "computed", "cached", "distinct")},
        "failed": first["failed"],
        "errors": first["errors"],
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


def _run(
    home: Path, output: str, store: str, jobs: int, compiles: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One run as a process of its own: its summary, and its memory."""
    flag = "--compile" if compiles else "--no-compile"
    command = [sys.executable, "-m", "nautile", "batch", "in", "-o", output, "--jobs", str(jobs)]
    environment = os.environ | {"NAUTILE_CACHE": str(home / f"{store}.cache")}
    start = time.monotonic()
    process = subprocess.Popen(
        [*command, flag, "--store", f"{store}.store", "--quiet"], cwd=home, env=environment
    )
    samples = list(_watched(process, start))
    wall = time.monotonic() - start
    if process.returncode not in (0, 1):
        raise RuntimeError(f"nautile batch ended with status {process.returncode}")
    summary = json.loads((home / output / "summary.json").read_text())
    print(f"{output}: {wall:.1f} s, {summary}", flush=True)
    return summary | {"wall_seconds": round(wall, 2)}, _memory(samples)


def _watched(process: subprocess.Popen[bytes], start: float) -> Iterator[tuple[float, int, int]]:
    """Seconds, the memory of the batch process, and that of all processes, once a second."""
    while process.poll() is None:
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


def _compare(home: Path, found: list[dict[str, Any]]) -> None:
    """Set `correct` of each: its two runs have what the first of all has."""
    truth: dict[Any, Any] | None = None
    for row in found:
        for part in ("first", "second"):
            path = home / f"{row['case']}-{part}" / "results.jsonl"
            made = [(_mark(r), _lasting(r)) for r in records(path)]
            truth = truth or dict(made)
            row["correct"] &= len(made) == len(dict(made)) and dict(made) == truth


def _mark(record: Mapping[str, Any]) -> tuple[str, str | None]:
    return record["input"]["path"], record["input"]["program"]


def _lasting(record: Mapping[str, Any]) -> Any:
    """What every run must agree on. Which of several duplicates is optimized first may differ, and
    with it the names that break ties; so kernels are compared by their number and predicted time
    to one percent."""
    chosen = record["chosen"]
    kernels = chosen and (len(chosen["kernels"]), f"{chosen['seconds']:.2g}")
    return record["key"], record["status"], record["index"], kernels


def _scaling(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The time of the fewest workers over that of each other number."""
    if len(found) < 2:
        return []
    base = found[0]
    ratios = {str(r["jobs"]): round(base["seconds"] / r["seconds"], 3) for r in found[1:]}
    row = {"group": "batch", "case": "scaling", "base_jobs": base["jobs"], "times": ratios}
    return [row | {"correct": all(r["correct"] for r in found), "date": base["date"]}]


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
