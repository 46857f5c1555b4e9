"""Results as Markdown: the page of all cases, and the table of goals that the README shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .goals import Judged, judge
from .store import Record

__all__ = ["between", "goal_table", "page", "section", "stamp"]

BEGIN, END = "<!-- goals: written by bench/render.py -->", "<!-- end of goals -->"
NOTE = """\
A ratio is the other's time over Nautile's, the median over rounds of the quotient within a round:
above 1, Nautile is faster. `±` is half of what lies between the least and the greatest of them.
TFLOP/s count the operations of the pairs that a mask keeps. `of copy` is the rate of the bytes that
any implementation must move, over that of a 1 GiB copy in the same process. Every time shown is of
a kernel that was right: fresh inputs, poisoned outputs between guard bands, two runs of equal
bytes, an error of at most twice torch's own (in brackets) against float64.
"""


def page(records: Sequence[Record], figure: str = "gpu.svg") -> str:
    """The page of a result file."""
    parts = [
        "# Generated kernels beside the best hand-written ones",
        "Rendered by `bench/render.py` from `gpu.json`; bench/README.md tells how it was measured.",
        f"{stamp(records)}",
        f"![what was reached of the goals]({figure})",
        goal_table(records),
        NOTE.rstrip(),
        *(_group(g, records) for g in dict.fromkeys(r["group"] for r in records)),
        _absent(records),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def stamp(records: Sequence[Record]) -> str:
    """Machines, dates and versions of all records."""
    gpus = dict.fromkeys(r["gpu"] for r in records if r.get("gpu"))
    dates = sorted({r["date"] for r in records if r.get("date")})
    versions = dict(v for r in records for v in r["versions"].items())
    when = dates[0] if dates[:1] == dates[-1:] else f"{dates[0]} to {dates[-1]}"
    return f"{', '.join(gpus)}, {when}; {', '.join(f'{n} {v}' for n, v in versions.items())}."


def goal_table(records: Sequence[Record]) -> str:
    """One row for each threshold: what it is, what was measured, whether it was reached."""
    lines = [_row("work", "goal", "least (all)", "cases", ""), _row(*["---"] * 5)]
    shown = None
    for judged in judge(records):
        work = "" if judged.goal is shown else judged.goal.work
        shown = judged.goal
        count = f"{len(judged.figures)} of {judged.expected}"
        verdict = {"not measured": ""}.get(judged.verdict, f"**{judged.verdict}**")
        lines.append(_row(work, judged.need.text(), _measured(judged), count, verdict))
    return "\n".join(lines)


def section(records: Sequence[Record], figure: str = "bench/results/gpu.svg") -> str:
    """What the README shows: the stamp, the figure and the goals."""
    image = f"![what was reached of the goals]({figure})"
    return f"{stamp(records)}\n\n{image}\n\n{goal_table(records)}"


def _measured(judged: Judged) -> str:
    """The figure that is compared, and the range of all."""
    if not judged.figures:
        return f"{len(judged.wrong)} wrong" if judged.wrong else "not measured"
    low, high = min(judged.figures.values()), max(judged.figures.values())
    wrong = f", {len(judged.wrong)} wrong" if judged.wrong else ""
    return f"{judged.value:.2f} ({low:.2f} to {high:.2f}){wrong}"


def between(text: str, section: str) -> str:
    """A text with the section between its markers. ValueError where it lacks them."""
    head, found, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"no markers {BEGIN} .. {END}")
    return f"{head}{BEGIN}\n{section}\n{END}{tail}"


def _group(group: str, records: Sequence[Record]) -> str:
    mine = [r for r in records if r["group"] == group]
    names = list(dict.fromkeys(n for r in mine for n in (*r["variants"], *r["peers"])))
    head = _row("case", "error (torch's own)", "kernels", "ms", "rate", *names)
    lines = [f"## {group}", "", head, _row(*["---"] * (5 + len(names)))]
    return "\n".join([*lines, *(_case(r, names) for r in mine)])


def _case(record: Record, names: Sequence[str]) -> str:
    ours = record["nautile"]
    if ours is None:
        why = record.get("error", "").replace("|", "\\|").replace("\n", " ")
        return _row(record["case"], why[:140], *[""] * (3 + len(names)))
    error = f"{record['relative_error']:.1e} ({record['naive_error']:.1e})"
    others = {**record["variants"], **record["peers"]}
    cells = [_ratio(others[n]) if n in others else "" for n in names]
    return _row(
        record["case"], error, str(ours["kernels"]), f"{ours['ms']:.4f}", _rate(record), *cells
    )


def _ratio(other: Record) -> str:
    half = (other["ratio_high"] - other["ratio_low"]) / 2
    return f"{other['ratio']:.2f} ± {half:.2f}"


def _rate(record: Record) -> str:
    if record.get("tflops") and record["group"] not in ("decode", "skinny"):
        return f"{record['tflops']:.0f} TFLOP/s"
    share = record.get("of_copy", math.nan)
    return f"{share:.0%} of copy"


def _absent(records: Sequence[Record]) -> str:
    """Peers that did not take part, and how often for each reason."""
    counts: dict[tuple[str, str], int] = {}
    for record in records:
        for name, reason in record.get("skipped", {}).items():
            counts[name, reason] = counts.get((name, reason), 0) + 1
    if not counts:
        return ""
    rows = [f"- {name}: {reason} ({n} cases)" for (name, reason), n in sorted(counts.items())]
    return "\n".join(["## Peers that did not take part", "", *rows])


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
