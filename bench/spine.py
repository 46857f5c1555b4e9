"""The spine on a GPU: correctness against float64 first, then time, peers in the same run.

    python bench/build_spine.py            # anywhere: makes bench/bundles
    python bench/spine.py [--groups rows,gemm,attention,examples] [--seconds 480] [-o FILE]

Needs numpy, cupy and torch. Cases run in child processes: one that hangs or breaks its CUDA context
is recorded and the rest go on. Each record: group, case, dtype, shape, correct, nautile {ms,
kernels}, peers {name: {ms}}, gpu, date, versions; beside them the relative error, the bundle's own
check, and what was reached of the copy bandwidth measured in the same process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from cases import GROUPS, Case, cases  # noqa: E402
from machine import smi  # noqa: E402

__all__ = ["main"]


def main() -> int:
    options = _options()
    groups = tuple(options.groups.split(","))
    if options.child:
        import spine_child

        spine_child.run(cases(groups), Path(options.child), options.peers)
        return 0
    deadline = time.monotonic() + options.seconds
    records = _records(groups, deadline, options)
    stamp = {"gpu": smi("name")["name"], "date": datetime.date.today().isoformat()}
    records = [stamp | r for r in records]
    path = Path(options.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records, indent=1) + "\n")
    print(*(_line(r) for r in records), f"written: {path}", sep="\n")
    return 0 if all(r["correct"] for r in records) else 1


def _options() -> argparse.Namespace:
    default = Path(os.environ.get("OUT") or HERE / "results") / "spine.json"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--seconds", type=float, default=480.0, help="limit of the whole run")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="only our kernels")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", default=str(default))
    return parser.parse_args()


def _records(
    groups: tuple[str, ...], deadline: float, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run the groups' cases in children until all have a record or the time is over."""
    wanted, log = cases(groups), Path(options.output).with_suffix(".jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    while len(done := _read(log)) < len(wanted) and time.monotonic() < deadline:
        error = _child(groups, log, deadline, options.peers)
        now = len(_read(log))
        if now < len(wanted) and (error is not None or now == len(done)):
            _append(log, _failure(wanted[now], error or "the process left no record"))
    rest = wanted[len(done) :]
    records = done + [_failure(c, "not run: the time was over") for c in rest]
    log.unlink()
    return records


def _child(groups: tuple[str, ...], log: Path, deadline: float, peers: bool) -> str | None:
    """What ended a child early, or None."""
    command = [sys.executable, __file__, "--groups", ",".join(groups), "--child", str(log)]
    left = max(1.0, deadline - time.monotonic())
    try:
        done = subprocess.run(
            [*command, *([] if peers else ["--no-peers"])], timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        return "the run's time was over"
    return None if done.returncode == 0 else f"the process ended with status {done.returncode}"


def _read(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def _append(log: Path, record: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _failure(case: Case, error: str) -> dict[str, Any]:
    head = {"group": case.group, "case": case.name, "dtype": None, "shape": None}
    empty = {"correct": False, "nautile": None, "peers": {}, "versions": {}}
    return head | empty | {"error": error}


def _line(record: dict[str, Any]) -> str:
    ours = (record["nautile"] or {}).get("ms")
    ratios = [f"{n} x{p['ms'] / ours:.2f}" for n, p in record["peers"].items() if ours]
    of_copy = [f"{record['of_copy']:.0%} of copy"] if record.get("of_copy") else []
    time_text = f"{ours:.4f} ms" if ours else record.get("error", "")[:100]
    mark = "ok " if record["correct"] else "BAD"
    return f"{mark} {record['case']:48} {time_text}  {', '.join((*of_copy, *ratios))}"


if __name__ == "__main__":
    sys.exit(main())
