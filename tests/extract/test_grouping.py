"""Grouped rows: the same results through states that are stored over groups and rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nautile.extract.body import analyse
from nautile.extract.split import Outputs, Split, launches
from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    apply,
    buffers,
)

Array = npt.NDArray[Any]
BATCH, KEYS, WIDTH, LENGTH = 2, 10, 4, 4


def load(name: str, shape: tuple[int, ...], *at: Term) -> Load:
    return Load(Buffer(name, shape, "bf16"), at)


def quotient(axis: Axis, by: int) -> Term:
    return Index(axis) if by == 1 else apply("floordiv", Index(axis), Const(by))


def attention(heads: int, keys: int, values: int, queries: int, *, causal: bool = False) -> Outputs:
    """Online attention; `keys` and `values` query heads share a head of K and of V. With 0 queries
    no axis names the query."""
    b, h, t = Axis("b", 0, BATCH), Axis("h", 0, heads), Axis("t", 0, max(queries, 1))
    s, d, e = Axis("s", 0, KEYS), Axis("d", 0, WIDTH), Axis("e", 0, 3)
    rows = (b, h, t) if queries else (b, h)
    q = load("q", (*(a.extent for a in rows), WIDTH), *map(Index, (*rows, d)))
    k = load(
        "k", (BATCH, heads // keys, KEYS, WIDTH), Index(b), quotient(h, keys), Index(s), Index(d)
    )
    v = load(
        "v", (BATCH, heads // values, KEYS, 3), Index(b), quotient(h, values), Index(s), Index(e)
    )
    x: Term = Reduce("sum", d, apply("mul", q, k))
    if causal:
        kept = apply("le", Index(s), apply("add", Index(t), Const(KEYS - queries)))
        x = apply("where", kept, x, Const(float("-inf")))
    m = Reduce("max", s, x)
    weight = apply("exp", apply("sub", x, Running(m)))
    repair = apply("exp", apply("sub", Before(m), Running(m)))
    top, low = Online(s, repair, apply("mul", weight, v)), Online(s, repair, weight)
    axes = (*rows, e)
    buffer = Buffer("o", tuple(a.extent for a in axes), "f32")
    return (Output(buffer, axes, apply("div", top, low)),)


def results(launched: tuple[Outputs, ...], arrays: dict[str, Array]) -> Array:
    """The last output, launch by launch."""
    for o in itertools.chain(*launched):
        positions = {a: np.arange(a.extent) for a in o.axes}
        found = evaluate(o.term, arrays_fetch(arrays), positions)
        arrays[o.buffer.name] = np.broadcast_to(np.asarray(found, float), o.buffer.shape)
    return arrays[launched[-1][0].buffer.name]


def split(outputs: Outputs) -> tuple[Outputs, ...]:
    axis = next(a for a in analyse(outputs).reduced if a.family == "s")
    count = itertools.count()
    return launches(outputs, Split(axis, LENGTH), lambda: f"state{next(count)}")


CASES: dict[str, tuple[Outputs, tuple[int, int] | None]] = {
    "one query": (attention(8, 4, 4, 1), (2, 4)),
    "no query axis": (attention(8, 4, 4, 0), (2, 4)),
    "few queries join the rows": (attention(8, 4, 4, 3, causal=True), (2, 12)),
    "all heads share one": (attention(4, 4, 4, 1), (1, 4)),
    "values shared by fewer": (attention(8, 4, 2, 1), (4, 2)),
    "a head of keys each": (attention(4, 1, 1, 1), None),
    "many queries": (attention(8, 4, 4, 40), None),
}


@pytest.mark.parametrize("name", CASES)
def test_grouped_states_give_the_same_results(name: str) -> None:
    outputs, shape = CASES[name]
    launched = split(outputs)
    found = {a.family: a.extent for o in launched[0] for a in o.axes if a.family.startswith("h_")}
    wanted = {} if shape is None else {"h_group": shape[0], "h_row": shape[1]}
    assert found == wanted
    rng = np.random.default_rng(5)
    arrays = {b.name: rng.standard_normal(b.shape) for b in buffers(*(o.term for o in outputs))}
    want = results((outputs,), dict(arrays))
    np.testing.assert_allclose(results(launched, dict(arrays)), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n, (_, shape) in CASES.items() if shape])
def test_grouped_rows_are_rows_of_every_contraction(name: str) -> None:
    """No load of the states' launch has a quotient of the row left in it but a short axis' own."""
    stored = split(CASES[name][0])[0]
    body = analyse(stored)
    row = next(a for o in stored for a in o.axes if a.family == "h_row")
    assert len(body.contractions) == 2
    for c in body.contractions.values():
        assert c.operand == "bf16"
        assert row in c.rows | c.columns
