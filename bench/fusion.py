"""The fusion table: passes, kernels, bytes, saturation and certificate of every program.

python bench/fusion.py [PROGRAM ...] [--runs N]     no GPU needed; programs of tests/fusion

Writes bench/results/fusion.json (one object a program) and fusion.md (the table), after every
program. Those that are not measured again keep their lines; named programs alone are measured.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fusion.catalogue import Entry, catalogue  # noqa: E402
from fusion.measure import Measured, Side, certificate, measure  # noqa: E402

from nautile.certificate import Certificate  # noqa: E402
from nautile.errors import NautileError  # noqa: E402
from nautile.terms import Program  # noqa: E402
from nautile.worker import Worker  # noqa: E402

RESULTS = ROOT / "bench" / "results"
SAMPLES = 64  # elements of a tensor that a certificate compares
QUICK = 50.0  # milliseconds of saturation that need no second run
Record = dict[str, Any]


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--runs", type=int, default=3, help="saturations; the least time counts")
    options = parser.parse_args()
    wanted = [e for e in catalogue() if not options.programs or e.name in options.programs]
    known = {r["case"]: r for r in _stored()}
    for record in _measured(wanted, options.runs):
        known[record["case"]] = record
        records = [known[e.name] for e in catalogue() if e.name in known]
        (RESULTS / "fusion.json").write_text(_lines(records))
        (RESULTS / "fusion.md").write_text(page(records))


def _measured(entries: Iterable[Entry], runs: int) -> Iterable[Record]:
    with Worker() as worker:
        for entry in entries:
            try:
                record = _record(measure(entry, worker, runs=runs, quick=QUICK))
            except NautileError as error:
                record = {**_head(entry), "reached": False, "error": str(error)}
            print(json.dumps(record["case"]), record.get("error", ""), file=sys.stderr, flush=True)
            yield record


def _stored() -> list[Record]:
    path = RESULTS / "fusion.json"
    found: list[Record] = json.loads(path.read_text()) if path.exists() else []
    return found


def _lines(records: Iterable[Record]) -> str:
    """A JSON list with one program a line."""
    return "[\n" + ",\n".join(json.dumps(r) for r in records) + "\n]\n"


def _head(entry: Entry) -> Record:
    packages = ("nautile", "egglog", "highspy")
    return {
        "group": entry.group,
        "case": entry.name,
        "family": entry.family,
        "sizes": dict(entry.program.sizes),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "versions": {p: importlib.metadata.version(p) for p in packages},
    }


def _record(m: Measured) -> Record:
    entry = m.entry
    start = time.perf_counter()
    checked, trouble = certificate(m.result, SAMPLES)
    seconds = time.perf_counter() - start
    fewest = {n: entry.fewest(n) for n in m.after.over(entry.program)}
    return {
        **_head(entry),
        "before": _side(m.before, entry.program),
        "after": _side(m.after, entry.program),
        "fewest": {"kernels": entry.kernels, "passes": fewest, "bytes": m.least},
        "reached": m.reached,
        "why": entry.why,
        "stops": "" if m.reached else entry.stops,
        "cuda": not trouble,
        "certificate": {
            "verdict": checked.verdict,
            "max_relative_error": checked.max_relative_error,
            "float64_error": _float64_error(checked),
            "rmse_ratio": max(c.rmse_ratio for c in checked.checks),
            "samples": checked.samples,
            "seconds": round(seconds, 2),
        },
        "saturation": {
            "stop": m.saturation.stop,
            "rows": m.saturation.rows,
            "iterations": m.saturation.iterations,
            "milliseconds": round(m.saturation.milliseconds, 1),
            "regions": m.saturation.regions,
        },
        "extraction_seconds": round(m.extraction, 2),
    }


def _float64_error(checked: Certificate) -> float:
    """By how much the chosen terms differ from the source, nothing rounded."""
    meant = [c.max_relative_error for c in checked.checks if c.name.startswith("meaning")]
    return max(meant, default=0.0)


def _side(side: Side, program: Program) -> Record:
    over = side.over(program)
    inputs = {b.name for b in program.inputs}
    between = {n: k for n, k in side.passes.items() if n not in inputs}
    return {
        "kernels": list(side.kernels),
        "passes": over,
        "passes_between": between,
        "bytes": side.bytes,
    }


# ---- the page --------------------------------------------------------------------------------

HEAD = """# Reduction fusion: the table

Made by `bench/fusion.py`; `tests/fusion/test_table.py` holds every line of it to what is said here.
The programs are those of `tests/fusion/programs` and the subgraphs of `tests/data/corpus`.

"Before" is the source with one kernel for each definition, "after" the chosen plan for the H200,
and "fewest" what the mathematics permits, written by hand (`tests/fusion/fewest.toml`). Passes over
an input are the loops of launched kernels in which it is read; inputs that are not named are read
once. Bytes are the cost model's, `least` what any program must move. The certificate compares the
chosen program with the source: the largest relative error in float64, and the root mean square
error of its tile programs over that of the source's own naive evaluation in the same types (2 is
allowed). Saturation is processor time, the least of up to three runs in a warm child process.
"""
COLUMNS = (
    "program", "family", "kernels before → after (fewest)", "passes before", "passes after",
    "GB before → after (least)", "certificate", "rows", "iterations", "ms", "extraction s",
)  # fmt: skip


def page(records: list[Record]) -> str:
    """The table as Markdown."""
    parts = [HEAD, _summary(records), _stamp(records)]
    for group in dict.fromkeys(r["group"] for r in records):
        mine = [r for r in records if r["group"] == group]
        parts += [f"## {group}\n", _row(COLUMNS), _row(["---"] * len(COLUMNS))]
        parts += [_row(_cells(r)) for r in mine]
        parts += ["", *_notes(mine)]
    return "\n".join(parts).rstrip() + "\n"


def _summary(records: list[Record]) -> str:
    reached = sum(r["reached"] for r in records)
    passed = sum(r.get("certificate", {}).get("verdict") == "pass" for r in records)
    return (
        f"{len(records)} programs; {reached} with the fewest passes over each input and the fewest "
        f"kernels; {passed} certificates pass.\n"
    )


def _stamp(records: list[Record]) -> str:
    first = records[0]
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    return f"{first['machine']}, {first['date']}; {versions}.\n"


def _cells(r: Record) -> list[str]:
    if "error" in r:
        return [r["case"], r["family"], "error", *[""] * (len(COLUMNS) - 3)]
    before, after, fewest, s = r["before"], r["after"], r["fewest"], r["saturation"]
    kernels = f"{len(before['kernels'])} → {len(after['kernels'])} ({fewest['kernels']})"
    moved = f"{_gb(before['bytes'])} → {_gb(after['bytes'])} ({_gb(fewest['bytes'])})"
    check = r["certificate"]
    ending = "" if s["stop"] == "saturated" else f" ({s['stop']})"
    return [
        r["case"] + ("" if r["reached"] else " \\*"),
        r["family"],
        kernels,
        _passes(before["passes"]),
        _passes(after["passes"]),
        moved,
        f"{check['verdict']} {check['float64_error']:.0e}, {check['rmse_ratio']:.2f}",
        f"{s['rows']}{ending}",
        str(s["iterations"]),
        f"{s['milliseconds']:.0f}",
        f"{r['extraction_seconds']:.1f}",
    ]


def _passes(over: Mapping[str, int]) -> str:
    """`1`, or `1; K 2, x 3`: the inputs that are not read once are named."""
    more = ", ".join(f"{name} {n}" for name, n in over.items() if n != 1)
    return f"1; {more}" if more and 1 in over.values() else more or "1"


def _gb(count: int) -> str:
    return f"{count / 1e9:.3g}"


def _notes(records: list[Record]) -> list[str]:
    """Why more than one is the fewest, and what stops a plan that needs more than the fewest."""
    notes = []
    for r in records:
        if r.get("error"):
            notes.append(f"- **{r['case']}**: {r['error']}")
        if r.get("why"):
            notes.append(f"- {r['case']}: {r['why']}.")
        if not r["reached"] and "error" not in r:
            notes.append(f"- **{r['case']}** \\*: {r['stops'] or 'not explained'}.")
        if len(r.get("after", {}).get("kernels", ())) > 1:
            notes.append(f"- {r['case']} in kernels: {'; '.join(r['after']['kernels'])}.")
        if not r.get("cuda", True):
            notes.append(f"- {r['case']}: no emitter prints this plan yet.")
    return [*notes, ""]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
