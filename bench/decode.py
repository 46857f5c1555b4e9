"""Split reductions on a GPU: the chosen count of chunks beside every other one, peers in the run.

    python bench/build_decode.py           # anywhere: makes bench/bundles
    python bench/decode.py [--only TEXT] [--seconds 280] [-o FILE]

Needs numpy, cupy and torch. Each case's programs are checked first (poisoned outputs and states,
fresh inputs, float64), then timed in random order as CUDA graphs. A record has the keys of
bench/results; beside them `split` (the chosen count of chunks), `best_split`, `ratio_to_best` (the
chosen program's time over that of the fastest count), `split_ms` and `predicted_ms` by count, and
what was reached of the copy bandwidth measured in the same process. The result file is written
after every case; a case that hangs or breaks its process costs its own record only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from decode_cases import Case, cases  # noqa: E402

__all__ = ["failure", "line", "main", "read", "write"]


def main() -> int:
    options = _options()
    wanted = [c for c in cases() if options.only in c.name]
    path = Path(options.output)
    if options.child:
        import decode_child

        decode_child.run(wanted, path, options.until)
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, [])
    until = time.time() + options.seconds
    while len(read(path)) < len(wanted) and time.time() < until:
        before, error = len(read(path)), _child(options, until)
        done = read(path)
        if len(done) < len(wanted) and (error or len(done) == before):
            reason = error or "the process left no record"
            write(path, [*done, failure(wanted[len(done)], reason)])
    done = read(path)
    records = done + [failure(c, "not run: the time was over") for c in wanted[len(done) :]]
    write(path, records)
    print(*(line(r) for r in records), f"written: {path}", sep="\n")
    return 0 if all(r["correct"] for r in records) else 1


def _options() -> argparse.Namespace:
    default = Path(os.environ.get("OUT") or HERE / "results") / "decode.json"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name has this text")
    parser.add_argument("--seconds", type=float, default=280.0, help="limit of the whole run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", default=str(default))
    return parser.parse_args()


def _child(options: argparse.Namespace, until: float) -> str | None:
    """Run what has no record yet in a process of its own; what ended it early, or None."""
    command = [sys.executable, __file__, "--child", "--until", str(until)]
    command += ["--only", options.only, "-o", options.output]
    try:
        done = subprocess.run(command, timeout=max(1.0, until + 5 - time.time()), check=False)
    except subprocess.TimeoutExpired:
        return "the run's time was over"
    return None if done.returncode == 0 else f"the process ended with status {done.returncode}"


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """The whole file at once, so that it is never half written."""
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(records, indent=1) + "\n")
    aside.replace(path)


def failure(case: Case, error: str) -> dict[str, Any]:
    """The record of a case that was not measured."""
    head = {"group": case.group, "case": case.name, "dtype": None, "shape": dict(case.sizes)}
    empty = {"correct": False, "nautile": None, "peers": {}, "gpu": None, "date": None}
    return head | empty | {"versions": {}, "error": error[:500]}


def line(record: dict[str, Any]) -> str:
    """One record for people."""
    mark, ours = "ok " if record["correct"] else "BAD", (record["nautile"] or {}).get("ms")
    if not ours:
        return f"{mark} {record['case']:46} {record.get('error', '')[:110]}"
    ratios = [f"{n} x{p['ms'] / ours:.2f}" for n, p in record["peers"].items()]
    split = f"split {record['split']}"
    if record.get("ratio_to_best"):
        split += f" (best {record['best_split']}: x{record['ratio_to_best']:.2f})"
    rate = f"{record['gb_per_s']:.0f} GB/s, {record['of_copy']:.0%} of copy"
    return f"{mark} {record['case']:46} {ours:.4f} ms, {split}, {rate}, {', '.join(ratios)}"


if __name__ == "__main__":
    sys.exit(main())
