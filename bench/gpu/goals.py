"""What the results must show: `goals.json`, and what of it was reached.

```
Goal ::= work, where {fact: [values]}, needs [Need]
Need ::= least, how, and one of
         over [peers] or "best"     the fastest of these peers' time over ours
         measure                    a figure of the record itself
         rate_of program            our operations a second over those of that program in plain
                                    attention at the same sizes
         time_of program            the time of that program in another type over ours
how  ::= each (the default)         every case reaches `least`
       | mean                       the geometric mean of all does
       | share                      all do; what is told is the share that does
```
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .case import Case
from .figures import geometric_mean
from .groups import GROUPS, cases
from .store import Record

__all__ = ["Goal", "Judged", "Need", "goals", "judge"]

FILE = Path(__file__).resolve().parent / "goals.json"


@dataclass(frozen=True, slots=True)
class Need:
    least: float
    over: Sequence[str] | str = ()
    measure: str = ""
    rate_of: str = ""
    time_of: str = ""
    how: str = "each"

    def text(self) -> str:
        """The threshold for people."""
        if self.over == "best":
            against = "of the best peer"
        elif self.over:
            against = f"x {' / '.join(self.over)}"
        elif self.measure:
            against = {"of_copy": "of copy bandwidth"}.get(self.measure, f"({self.measure})")
        else:
            against = f"of {self.rate_of}'s rate" if self.rate_of else f"x {self.time_of} in bf16"
        word = {"mean": "mean ", "share": "all ", "each": ""}[self.how]
        return f"{word}{self.least:g} {against}"


@dataclass(frozen=True, slots=True)
class Goal:
    work: str
    where: Mapping[str, Sequence[Any]]
    needs: tuple[Need, ...]

    def takes(self, facts: Mapping[str, Any]) -> bool:
        """Whether the goal speaks of a case of these facts."""
        return all(facts.get(name) in values for name, values in self.where.items())


@dataclass(frozen=True, slots=True)
class Judged:
    """One need against the results: the figures by case, and what follows from them."""

    goal: Goal
    need: Need
    figures: Mapping[str, float]
    expected: int
    wrong: tuple[str, ...] = field(default=())

    @property
    def value(self) -> float:
        """What is compared with the threshold; NaN where nothing was measured."""
        found = list(self.figures.values())
        if self.need.how == "mean":
            return geometric_mean(found)
        if self.need.how == "share":
            passed = sum(v >= self.need.least for v in found)
            return passed / len(found) if found else math.nan
        return min(found, default=math.nan)

    @property
    def verdict(self) -> str:
        """reached, missed, partly (as far as it was measured) or not measured."""
        if self.wrong:
            return "missed"
        if not self.figures:
            return "not measured"
        least = 1.0 if self.need.how == "share" else self.need.least
        if self.value < least:
            return "missed"
        return "reached" if len(self.figures) == self.expected else "partly"


def goals() -> tuple[Goal, ...]:
    """All goals, in the order of the table."""
    rows = json.loads(FILE.read_text())
    return tuple(Goal(r["work"], r["where"], tuple(Need(**n) for n in r["needs"])) for r in rows)


def judge(records: Sequence[Record]) -> list[Judged]:
    """Every need of every goal against the results."""
    known = cases(GROUPS)
    return [_judged(g, n, records, known) for g in goals() for n in g.needs]


def _judged(goal: Goal, need: Need, records: Sequence[Record], known: Sequence[Case]) -> Judged:
    mine = [r for r in records if goal.takes(_facts(r))]
    figures = {r["case"]: _figure(need, r, records) for r in mine if r["correct"]}
    found = {name: value for name, value in figures.items() if value is not None}
    wrong = tuple(r["case"] for r in mine if not r["correct"] and not r.get("not_run"))
    return Judged(goal, need, found, sum(goal.takes(c.facts()) for c in known), wrong)


def _facts(record: Record) -> dict[str, Any]:
    named: dict[str, Any] = {name: record[name] for name in ("group", "program", "dtype")}
    return {**named, **record["shape"]}


def _figure(need: Need, record: Record, records: Sequence[Record]) -> float | None:
    if need.measure:
        return float(record[need.measure])
    if need.rate_of:
        return _rate(record, _same(need.rate_of, record, records))
    if need.time_of:
        other = _same(need.time_of, record, records)
        return other["nautile"]["ms"] / record["nautile"]["ms"] if other else None
    able = {n: p for n, p in record["peers"].items() if "ratio" in p}
    named = able if need.over == "best" else {n: p for n, p in able.items() if n in need.over}
    return min((p["ratio"] for p in named.values()), default=None)


def _same(program: str, record: Record, records: Sequence[Record]) -> Record | None:
    """The correct record of another program of the same group, at the same sizes: groups are
    measured in one run."""
    wanted = {"program": program, "shape": record["shape"], "group": record["group"]}
    found = (r for r in records if r["correct"] and wanted.items() <= r.items())
    return next(found, None)


def _rate(record: Record, other: Record | None) -> float | None:
    if other is None or not other.get("tflops") or not record.get("tflops"):
        return None
    return float(record["tflops"] / other["tflops"])
