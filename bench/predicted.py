"""The cost model's predictions beside what a GPU took, kernel by kernel.

    nautile build FILE... -o B --candidates 5 --json > built.jsonl      # anywhere
    nautile bench B/PROGRAM --json > PROGRAM.bench.json                 # on the GPU, each program
    python bench/predicted.py built.jsonl --bench *.bench.json --bundles B/*
                              [-o bench/results/predicted.json]

Predictions come from what `nautile build --json` printed (each kernel's implementations and their
predicted seconds), times from `nautile bench --json` and from the bundles' `tuned.json`. Nothing is
built and nothing runs here. Writes a list of records and, beside it, the same as a table (.md).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src")]

from nautile.bundle import load_bundle  # noqa: E402
from nautile.errors import NautileError  # noqa: E402
from nautile.inspector.measured import Timing, of_bundle, of_report  # noqa: E402

__all__ = ["main", "record", "table"]

DEFAULT = HERE / "results" / "predicted.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("built", nargs="+", type=Path, help="what `nautile build --json` printed")
    parser.add_argument("--bench", nargs="*", type=Path, default=[])
    parser.add_argument("--bundles", nargs="*", type=Path, default=[])
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT)
    options = parser.parse_args(arguments)
    records = []
    for built in _objects(options.built):
        found = record(built, options.bench, options.bundles)
        if found is None:
            print(f"no times of {built['program']}", file=sys.stderr)
        else:
            records.append(found)
    options.output.write_text(json.dumps(records, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(records))
    return 0 if records else 1


def _objects(paths: Iterable[Path]) -> list[dict[str, Any]]:
    lines = [x for p in paths for x in p.read_text().splitlines() if x.strip()]
    return [d for d in map(json.loads, lines) if d.get("status") == "ok" and d.get("chosen")]


def record(
    built: dict[str, Any], reports: Sequence[Path], bundles: Sequence[Path]
) -> dict[str, Any] | None:
    """One program's record; None where nothing of it was measured."""
    name = built["program"]
    own = [b for b in bundles if _holds(b, name)]
    times = [t for b in own for t in of_bundle(b, name)]
    times += [t for r in reports for t in of_report(r, name)]
    if not times:
        return None
    whole = [t for t in times if t.kernel is None]
    predicted = 1e3 * built["chosen"]["seconds"]
    shape, dtype = _tensors(own[0], name) if own else ({}, "")
    return {
        "group": "predicted",
        "case": name,
        "dtype": dtype,
        "shape": shape,
        "correct": _correct(reports, name),
        "nautile": {
            "ms": 1e3 * whole[-1].measured if whole else None,
            "predicted_ms": predicted,
            "kernels": len(built["chosen"]["kernels"]),
        },
        "kernels": _kernels(built, times),
        "peers": {},
        "target": built["target"],
        "gpu": times[-1].gpu,
        "date": times[-1].date,
        "versions": {"key": built["key"]},
    }


def _holds(bundle: Path, program: str) -> bool:
    try:
        return any(p.name == program for p in load_bundle(bundle).manifest.programs)
    except NautileError as error:
        print(f"{bundle}: {error}", file=sys.stderr)
        return False


def _tensors(bundle: Path, program: str) -> tuple[dict[str, list[int]], str]:
    buffers = [b for b in load_bundle(bundle).manifest.buffers if b.program == program]
    shapes = {b.name: list(b.shape) for b in buffers if b.role == "input"}
    types = {b.dtype for b in buffers if b.role == "output"}
    return shapes, "/".join(sorted(types))


def _correct(reports: Sequence[Path], program: str) -> bool | None:
    """The verdict of the runs' own checks; None where none was made."""
    verdicts = []
    for path in reports:
        for line in path.read_text().splitlines():
            report = json.loads(line) if line.startswith("{") else {}
            if report.get("program") == program and "verdict" in report:
                verdicts.append(report["verdict"] == "pass")
    return all(verdicts) if verdicts else None


def _kernels(built: dict[str, Any], times: Sequence[Timing]) -> list[dict[str, Any]]:
    """Every implementation that was measured, under its kernel."""
    known = {
        (k["name"], way["schedule"]): way["seconds"]
        for k in built["chosen"]["kernels"]
        for way in k.get("implementations", ())
    }
    latest = {(t.kernel, t.schedule): t for t in times if t.kernel is not None}
    return [
        {
            "kernel": kernel,
            "schedule": schedule,
            "predicted_ms": 1e3 * known[kernel, schedule],
            "ms": 1e3 * t.measured,
            "ratio": t.measured / known[kernel, schedule],
            "picked": t.picked,
        }
        for (kernel, schedule), t in latest.items()
        if kernel is not None and (kernel, schedule) in known
    ]


def table(records: Sequence[dict[str, Any]]) -> str:
    """The records for people."""
    lines = ["# Predicted and measured", "", "Rendered by `bench/predicted.py`.", ""]
    ratios = [
        r["nautile"]["ms"] / r["nautile"]["predicted_ms"] for r in records if r["nautile"]["ms"]
    ]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines += [
            f"Whole programs: {len(ratios)}; measured by predicted {min(ratios):.2f} to "
            f"{max(ratios):.2f}, geometric mean {mean:.2f}.",
            "",
        ]
    lines += [
        "| program | kernel | schedule | predicted ms | ms | ratio | GPU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in records:
        n = r["nautile"]
        if n["ms"]:
            lines.append(_line(r, "all", "", n["predicted_ms"], n["ms"]))
        for k in r["kernels"]:
            mark = "**" if k["picked"] else ""
            name = f"{mark}{k['kernel']}{mark}"
            lines.append(_line(r, name, k["schedule"], k["predicted_ms"], k["ms"]))
    return "\n".join(lines) + "\n"


def _line(record: dict[str, Any], kernel: str, schedule: str, predicted: float, ms: float) -> str:
    where = f"{record['gpu']}, {record['date']}"
    figures = f"{predicted:.4f} | {ms:.4f} | {ms / predicted:.2f}"
    return f"| {record['case']} | {kernel} | {schedule} | {figures} | {where} |"


if __name__ == "__main__":
    sys.exit(main())
