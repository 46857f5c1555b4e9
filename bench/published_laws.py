"""Which published laws of graph rewriting do the packs derive?

    python bench/published_laws.py

`published_laws.nau` holds the laws, a program each with the two sides as its results. A law holds
**by notation** where both sides are one term as they are read: index notation has no transposes to
move. Else its two sides go into one e-graph, which the default packs saturate under `real`; then
all packs, then `fast`: it is **derived** where they meet, by the rules that are named (none can be
left out). What is not derived is told with the reason. The table is
`bench/results/published_laws.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nautile import lang, rules
from nautile.egraph import Limits
from nautile.inline import inline_outputs
from nautile.rules.law import Rule
from nautile.terms import Index, Output, Program, substitute
from nautile.worker import Worker

ROOT = Path(__file__).resolve().parents[1]
LAWS = ROOT / "bench" / "published_laws.nau"
TABLE = ROOT / "bench" / "results" / "published_laws.md"
LIMITS = Limits(rows=6000, seconds=10.0)
BEYOND = {
    "matmul_of_concats": "no law takes a reduction apart at a position of its axis",
    "split_of_concat": "no law knows the range of an index, nor rewrites coordinates",
    "matmul_by_identity": "no law picks a term at a position",
    "conv_enlarged_kernel": "no law takes a reduction apart at a position of its axis",
}


@dataclass(frozen=True, slots=True)
class Found:
    """How a published law holds: by notation, in which packs and class, by which rules."""

    law: str
    how: str
    by: tuple[str, ...] = ()


def levels() -> list[tuple[str, tuple[Rule, ...]]]:
    """Sets of rules to try, smallest first."""
    whole = rules.load(rules.packs())
    return [
        ("default packs", rules.load(classes=("exact", "real"))),
        ("all packs", rules.select(whole, "real")),
        ("all packs, fast", rules.select(whole, "fast")),
    ]


def derive(program: Program, worker: Worker, sets: list[tuple[str, tuple[Rule, ...]]]) -> Found:
    """How the two results of a program are found equal."""
    outputs = sides(program)
    if outputs[0].term is outputs[1].term:
        return Found(program.name, "by notation")
    for name, laws in sets:
        used = _meet(outputs, laws, worker)
        if used is not None:
            return Found(program.name, name, _fewest(outputs, laws, used, worker))
    return Found(program.name, "not derived")


def sides(program: Program) -> tuple[Output, ...]:
    """Both results, their definitions written out, over the same axes."""
    written = {d.name: (d.axes, d.body) for d in program.definitions}
    left, right = inline_outputs(program.outputs, written)
    places = dict(zip(right.axes, map(Index, left.axes), strict=True))
    return left, Output(right.buffer, left.axes, substitute(right.term, places))


def _meet(outputs: tuple[Output, ...], laws: Sequence[Rule], worker: Worker) -> set[str] | None:
    """The rules that fired, where they make both sides equal."""
    found = worker.saturate(outputs, laws, limits=LIMITS)
    left, right = found.roots
    return {n for n, count in found.report.matches.items() if count} if left == right else None


def _fewest(
    outputs: tuple[Output, ...], laws: Sequence[Rule], used: set[str], worker: Worker
) -> tuple[str, ...]:
    kept = [rule for rule in laws if rule.name in used]
    for rule in list(kept):
        fewer = [other for other in kept if other is not rule]
        if _meet(outputs, fewer, worker) is not None:
            kept = fewer
    return tuple(rule.name for rule in kept)


def table(found: Sequence[Found]) -> str:
    """The table as Markdown."""
    lines = [
        "# Published laws and the packs",
        "",
        "Laws of TASO (SOSP 2019) and TENSAT (MLSys 2021); `bench/published_laws.nau` writes them "
        "in the expression language, `bench/published_laws.py` makes this table.",
        "",
        "| law | holds | by |",
        "|---|---|---|",
    ]
    for f in found:
        by = BEYOND.get(f.law, "") if f.how == "not derived" else ", ".join(f.by)
        lines.append(f"| {f.law} | {f.how} | {by} |")
    held = sum(f.how != "not derived" for f in found)
    notation, default = (_count(found, how) for how in ("by notation", "default packs"))
    lines += [
        "",
        f"{held} of {len(found)} hold, {notation} by notation, {default} in the default packs.",
    ]
    return "\n".join(lines) + "\n"


def _count(found: Sequence[Found], how: str) -> int:
    return sum(f.how == how for f in found)


def main() -> int:
    with Worker() as worker:
        sets = levels()
        found = [derive(p, worker, sets) for p in lang.parse_file(LAWS)]
    TABLE.write_text(table(found))
    print(table(found))
    return 0 if all(f.how != "not derived" or f.law in BEYOND for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
