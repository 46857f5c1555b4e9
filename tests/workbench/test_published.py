"""The table of published laws: each is derived again by the rules that it names, no fewer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nautile import lang, rules
from nautile.egraph import Limits
from nautile.terms import Program
from nautile.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from published_laws import BEYOND, LAWS, TABLE, sides  # noqa: E402

ROWS = dict(re.findall(r"^\| (\w+) \| (.*) \|$", TABLE.read_text(), re.M))
PROGRAMS = {p.name: p for p in lang.parse_file(LAWS)}
KNOWN = {rule.name: rule for rule in rules.load(rules.packs())}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def meet(program: Program, names: list[str], worker: Worker) -> bool:
    laws = [KNOWN[n] for n in names]
    found = worker.saturate(sides(program), laws, limits=Limits(rows=5000, seconds=10.0))
    return found.roots[0] == found.roots[1]


def test_the_table_has_every_law() -> None:
    del ROWS["law"]
    assert list(ROWS) == list(PROGRAMS)
    assert {n for n, row in ROWS.items() if row.startswith("not derived")} == set(BEYOND)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_published_law_is_derived_by_the_rules_named(name: str, worker: Worker) -> None:
    how, _, by = ROWS[name].partition(" | ")
    left, right = (output.term for output in sides(PROGRAMS[name]))
    assert (left is right) == (how == "by notation")
    if how in ("by notation", "not derived"):
        return
    names = by.split(", ")
    assert meet(PROGRAMS[name], names, worker)
    assert not meet(PROGRAMS[name], names[1:], worker)
