"""Every candidate's reason, against all sets of candidates tried one by one."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nautile import lang
from nautile.extract.candidates import KEPT
from nautile.extract.device import device
from nautile.extract.roofline import price
from nautile.extract.selection import Column, in_order
from nautile.inspector import explain
from nautile.inspector.candidates import forced
from nautile.stages import Optimization, Options

from .explained import PROGRAMS, chosen, explained, parts_of, told

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


TURNED = """
def turned(A: bf16[M,K], x: bf16[K,N], y: bf16[N,P], *, M=4096, K=4096, N=64, P=4096) -> bf16[M,P]:
    h[n,m] = sum[k](A[m,k] * x[k,n])
    c[m,p] = sum[n](h[n,m] * y[n,p])
    return c
"""


def tensors(rows: Sequence[str]) -> set[str]:
    """Their names."""
    return {re.sub(r"\W.*", "", row, flags=re.DOTALL) for row in rows}


def lefts(rows: Sequence[str]) -> set[str]:
    """The tensors that definitions define: `S[b, t]`."""
    return {re.sub(r"\s*=.*", "", row, flags=re.DOTALL) for row in rows}


@pytest.mark.parametrize("name", [*PROGRAMS])
def test_every_class_has_one_name_and_every_row_a_term(name: str) -> None:
    _, pool, _ = parts_of(name)
    subject = explained(name).subject
    for number, names in enumerate(subject.class_names):
        assert len(set(names.values())) == len(names)
        outputs = {o.buffer.name for o in pool.classes[number].outputs}
        roots = set(pool.classes[number].roots)
        assert {n for c, n in names.items() if c in roots} <= outputs
    for row in told(name)["candidates"]:
        assert not any(text.endswith("= ...") for text in row["makes"])
        assert not any("class" in text for text in [*row["makes"], *row["needs"]])


@pytest.mark.parametrize("name", [*PROGRAMS])
def test_rows_tell_all_that_a_candidate_makes_and_needs(name: str) -> None:
    _, pool, _ = parts_of(name)
    rows = {r["id"]: r for r in told(name)["candidates"]}
    names = explained(name).subject.class_names
    every = {f"c{k}": c for k, c in enumerate(pool.candidates)}
    every |= {f"d{k}": c for k, c in enumerate(pool.dropped)}
    for key, (number, candidate) in every.items():
        made, needed = tensors(rows[key]["makes"]), tensors(rows[key]["needs"])
        assert {names[number][c] for c in candidate.makes} <= made
        assert {names[number][c] for c in candidate.needs} == needed
        assert len(candidate.makes) <= len(rows[key]["makes"])


def test_values_of_definitions_have_their_names() -> None:
    """The scores and the masked scores of attention are stored by candidates that nobody takes."""
    made = lefts([t for r in told("attention")["candidates"] for t in r["makes"]])
    assert {"w[b, h, t, s]", "p[b, h, t, s]", "Z[b, h, t, e]"} <= made
    others = {t for t in made if t.startswith("Z_part")}
    assert made == others | {"w[b, h, t, s]", "p[b, h, t, s]", "Z[b, h, t, e]"}


@pytest.mark.parametrize("name", ["attention", "norms", "two"])
def test_runners_up_call_what_they_store_as_the_table_does(name: str) -> None:
    rows = {r["id"]: r for r in told(name)["candidates"]}
    assert told(name)["runners_up"]
    for runner in told(name)["runners_up"]:
        made = lefts([t for k in runner["columns"] for t in rows[k]["makes"]])
        (program,) = re.findall(r":\n(.*)\n    return", runner["text"], flags=re.DOTALL)
        stored = lefts([line.strip() for line in program.splitlines()])
        chunks = {s for s in stored if "_chunks" in s}
        assert stored - chunks <= made


def test_a_definition_over_other_axes_is_another_tensor() -> None:
    """`h` lies with n first; what candidates store lies with m first and is not called h."""
    (program,) = lang.parse(TURNED)
    result = Optimization(program, Options())
    found = explain(result, derivation=False, margin=False)
    orders = {
        name: own.classes.axes[c]
        for own, names in zip(found.subject.places, found.subject.class_names, strict=True)
        for c, name in names.items()
    }
    (h,) = (d for d in program.definitions if d.name == "h")
    assert orders.get("h", h.axes) == h.axes
