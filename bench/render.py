"""Render bench/results/*.json as bench/results/README.md.

    python bench/render.py [FOLDER]

gpu.json becomes gpu.md and gpu.svg, and the table of goals in the README of the repository;
emission.json, sanitizer.json and profiles/*.json become pages as well (pages.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pages
from gpu import plot, table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
HEAD = "# Measurements\n\nRendered by `bench/render.py` from the JSON files beside this page.\n"
NOTE = """\
A ratio is the peer's time over Nautile's: above 1, Nautile is faster. A share of copy is the rate
of bytes over that of a 1 GiB copy in the same process, which writes half of what it moves: what
only reads may pass it. Where a reduction may be split over blocks, `chunks` is the count that was
chosen, `best` the fastest of those measured, and `over best` the time over that of the fastest.
"""
PAGED = ("gpu", *pages.PAGES)  # these, and tables of another kind, have pages of their own
_SPLIT = ["chunks", "best", "over best"]


def render(folder: Path) -> str:
    """The page for all result files of a folder."""
    parts = [HEAD, NOTE]
    for path in sorted(folder.glob("*.json")):
        records = json.loads(path.read_text())
        if path.stem in PAGED or not isinstance(records, list) or "peers" not in records[0]:
            page = path.with_suffix(".md")
            name = page.name if page.exists() or path.stem in PAGED else path.name
            parts.append(f"\n## {path.stem}\n\n[{name}]({name})\n")
            continue
        parts.append(f"\n## {path.stem}\n\n{_stamp(records)}\n")
        for group in dict.fromkeys(r["group"] for r in records):
            parts.append(_table(group, [r for r in records if r["group"] == group]))
    if (folder / "profiles.md").exists():
        parts.append("\n## profiles\n\n[profiles.md](profiles.md)\n")
    return "\n".join(parts).rstrip() + "\n"


def _stamp(records: list[dict[str, Any]]) -> str:
    """Machine, date and versions, once for the file."""
    first = records[0]
    versions = ", ".join(f"{k} {v}" for r in records[:1] for k, v in r["versions"].items())
    smi = ", ".join(f"{k} {v}" for k, v in first.get("smi", {}).items())
    return f"{first['gpu']}, {first['date']}; {versions}" + (f"; {smi}" if smi else "") + "."


def _table(group: str, records: list[dict[str, Any]]) -> str:
    peers = list(dict.fromkeys(n for r in records for n in r["peers"]))
    split = _SPLIT if any("split" in r for r in records) else []
    head = ["case", "correct", "error (torch's own)", "kernels", "ms", "rate", *split, *peers]
    lines = [f"\n### {group}\n", _row(head), _row(["---"] * len(head))]
    return "\n".join(lines + [_row(_cells(r, peers)) for r in records])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(r: dict[str, Any], peers: list[str]) -> list[str]:
    ours = r["nautile"]
    if ours is None:
        why = str(r.get("error", ""))[:120].replace("|", "\\|").replace("\n", " ")
        return [r["case"], "no", why, *[""] * (3 + len(peers))]
    error = f"{r['relative_error']:.1e} ({r['naive_error']:.1e})" if "relative_error" in r else ""
    times = [_ratio(r["peers"].get(n), ours["ms"]) for n in peers]
    if "split" in r:
        over = f"{r['ratio_to_best']:.2f}" if r.get("ratio_to_best") else ""
        times = [str(r["split"]), str(r.get("best_split") or ""), over, *times]
    mark = "yes" if r["correct"] else "no"
    return [r["case"], mark, error, str(ours["kernels"]), f"{ours['ms']:.4f}", _rate(r), *times]


def _ratio(peer: dict[str, float] | None, ours: float) -> str:
    return f"{peer['ms'] / ours:.2f} ({peer['ms']:.4f} ms)" if peer else ""


def _rate(r: dict[str, Any]) -> str:
    if r.get("tflops"):
        return f"{r['tflops']['nautile']:.0f} TFLOP/s"
    if r.get("of_copy"):
        return f"{r['of_copy']:.0%} of copy"
    return f"{r['gb_per_s']:.0f} GB/s" if r.get("gb_per_s") else ""


def render_gpu(folder: Path, readme: Path | None = None) -> None:
    """Write the page and the figure of gpu.json, if there is one, and its table into a README."""
    path = folder / "gpu.json"
    if not path.exists():
        return
    records = json.loads(path.read_text())
    (folder / "gpu.md").write_text(table.page(records))
    (folder / "gpu.svg").write_text(plot.figure(records, table.stamp(records).partition(";")[0]))
    if readme is not None:
        readme.write_text(table.between(readme.read_text(), table.section(records)))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    pages.written(where)
    (where / "README.md").write_text(render(where))
    render_gpu(where, HERE.parent / "README.md" if where == RESULTS else None)
    print(where / "README.md")
