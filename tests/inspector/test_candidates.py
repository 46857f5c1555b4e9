"""Every candidate's reason, against all sets of candidates tried one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nautile.extract.candidates import KEPT
from nautile.extract.device import device
from nautile.extract.roofline import price
from nautile.extract.selection import Column, in_order
from nautile.inspector.candidates import forced

from .explained import chosen, explained, parts_of, told

SMALL = ("attention", "chain", "two")
CODES = {
    "taken", "noise", "dearer", "unused", "dominated", "beyond", "unpriced", "infeasible",
}  # fmt: skip


def without_idlers(columns: Sequence[Column], roots: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All sets of up to four columns that make the roots of which none could be left out."""
    for size in range(1, 5):
        for some in itertools.combinations(range(len(columns)), size):
            if makes(columns, roots, some) and not any(
                makes(columns, roots, [k for k in some if k != one]) for one in some
            ):
                yield some


def makes(columns: Sequence[Column], roots: Sequence[int], some: Sequence[int]) -> bool:
    made = frozenset[int]().union(*(columns[k].makes for k in some))
    return made.issuperset(roots) and in_order(columns, some) is not None


@pytest.mark.parametrize("name", SMALL)
def test_forcing_a_candidate_gives_the_cheapest_set_that_uses_it(name: str) -> None:
    _, pool, taken = parts_of(name)
    assert len(pool.columns) <= 30
    every = [
        (sum(pool.columns[k].cost for k in some), some)
        for some in without_idlers(pool.columns, pool.roots)
    ]
    for k in range(len(pool.columns)):
        least = min((cost for cost, some in every if k in some), default=None)
        answer = forced(pool, sorted(taken), k)
        if answer is None:
            assert least is None
        elif least is not None:
            assert answer.cost <= least * (1 + 1e-9)
            assert k in answer.columns
            assert makes(pool.columns, pool.roots, answer.columns)
            assert answer.cost == pytest.approx(sum(pool.columns[j].cost for j in answer.columns))


@pytest.mark.parametrize("name", SMALL)
def test_the_table_tells_what_forcing_costs(name: str) -> None:
    _, pool, taken = parts_of(name)
    cost = sum(pool.columns[k].cost for k in taken)
    rows = [r for r in told(name)["candidates"] if r["id"].startswith("c")]
    assert [r["id"] for r in rows] == [f"c{k}" for k in range(len(pool.columns))]
    for k, row in enumerate(rows):
        assert row["taken"] == (k in taken)
        assert row["seconds"] == pool.columns[k].cost
        if row["reason"]["code"] == "dearer":
            assert row["forced"]["seconds"] >= cost * (1 - 1e-9)
            ratio = row["forced"]["seconds"] / cost - 1
            assert row["forced"]["slower_by"] == pytest.approx(ratio, abs=1e-9)


@pytest.mark.parametrize("name", [*SMALL, "norms", "pointwise"])
def test_every_row_has_a_known_reason_and_readable_terms(name: str) -> None:
    for row in told(name)["candidates"]:
        assert row["reason"]["code"] in CODES
        assert row["reason"]["text"]
        assert row["makes"]
        for text in [*row["makes"], *row["needs"]]:
            assert "~" not in text


@pytest.mark.parametrize("name", ["attention", "two", "norms"])
def test_the_named_rival_dominates(name: str) -> None:
    _, pool, _ = parts_of(name)
    seen = 0
    for row in told(name)["candidates"]:
        if row["reason"]["code"] != "dominated":
            continue
        number, own = pool.dropped[int(row["id"][1:])]
        home, rival = pool.candidates[int(row["reason"]["by"][1:])]
        assert number == home
        assert own.makes <= rival.makes
        assert rival.needs <= own.needs
        assert rival.seconds <= own.seconds
        seen += 1
    assert seen


@pytest.mark.parametrize("name", SMALL)
def test_left_out_as_beyond_is_twice_as_dear(name: str) -> None:
    for row in told(name)["candidates"]:
        if row["reason"]["code"] == "beyond":
            assert row["id"].startswith("d")
            assert row["forced"]["slower_by"] >= KEPT - 1


def unfit() -> dict[str, Any]:
    """A row that fits no tiles: a softmax over products whose rows no block can hold."""
    rows = [
        r
        for name in ("attention", "chain", "norms", "two")
        for r in told(name)["candidates"]
        if r["reason"]["code"] == "infeasible"
    ]
    return rows[0]


def test_what_fits_no_tiles_tells_limit_and_figure() -> None:
    row = unfit()
    assert row["id"].startswith("u")
    assert row["seconds"] is None
    assert row["forced"] is None
    reason = row["reason"]
    if "limit" in reason:
        assert reason["needed"] > reason["most"]
        assert str(reason["needed"]) in reason["text"]


@pytest.mark.parametrize("name", ["attention", "chain", "norms", "two"])
def test_bodies_told_as_unfit_have_no_schedule(name: str) -> None:
    places = explained(name).subject.places
    _, pool, _ = parts_of(name)
    for number, body in pool.unfit:
        own = places[number].classes
        outputs = tuple(o for c, t in body.groups[0] for o in own.output(c, t))
        assert math.isinf(price(outputs, device("h200")).best())


def test_names_are_those_of_the_chosen_program() -> None:
    plan, _, _ = parts_of("chain")
    stored = {b.name for b in plan.intermediates}
    shown = " ".join(
        t for r in told("chain")["candidates"] if r["taken"] for t in r["makes"] + r["needs"]
    )
    assert stored
    assert all(name in shown for name in stored)
    assert chosen("chain").program.outputs[0].buffer.name in shown
