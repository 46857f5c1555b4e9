"""What a bundle expects of a GPU: any order of adding passes, and a wrong program does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nautile.certificate import expected
from nautile.judge import from_json, judge
from nautile.oracle import run
from nautile.oracle.order import adding
from nautile.samples import decode, encode, values
from nautile.terms import Apply, Const, Program, Term, transform

from .plans import fused, program_of

ROUTER = program_of("""
def router(x: bf16[R,C], W: bf16[E,C], *, R=48, C=4096, E=24) -> f32[R,E]:
    l[r, e] = sum[c](x[r, c] * W[e, c])
    m[r: R, e: E] = where(e < r, 1.01 * l[r, e], -inf)
    p[r: R, e: E] = exp(m[r, e] - max(max[e](m[r, e]), 0.0)) / (1.0 + sum[e](exp(m[r, e])))
    return p
""")
Entry = dict[str, Any]


def inputs(program: Program, case: Entry) -> dict[str, np.ndarray]:
    found = {}
    for b in program.inputs:
        drawn = values(case["kinds"][b.name], 0, b.name, np.arange(b.size))
        found[b.name] = decode(encode(drawn, b.dtype), b.dtype).reshape(b.shape)
    return found


def verdicts(program: Program, order: str, asked: Entry) -> list[bool]:
    """Whether each output passes that the program gives with sums in an order."""
    found = []
    for case in asked["cases"]:
        with adding(order):
            outputs = run(program, inputs(program, case), precision="mma")
        for entry in case["outputs"]:
            shape = [len(p) for p in entry["positions"]]
            reference, naive = (from_json(entry[k], shape) for k in ("reference", "naive"))
            actual = outputs[entry["buffer"]][np.ix_(*entry["positions"])]
            floor = entry["floor"]
            found.append(judge(actual, reference, naive, entry["dtype"], floor=floor).passed)
    return found


@pytest.fixture(scope="module")
def asked() -> Entry:
    return expected(ROUTER, fused(ROUTER))


@pytest.mark.parametrize("order", ["pairwise", "serial", "reversed"])
def test_every_order_of_adding_passes(order: str, asked: Entry) -> None:
    assert all(verdicts(ROUTER, order, asked))


def mutated(change: Callable[[Term], Term]) -> Program:

    new = tuple(replace(d, body=transform(d.body, change)) for d in ROUTER.definitions)
    return replace(ROUTER, definitions=new)


def one_percent(term: Term) -> Term:
    return Const(1.0) if term is Const(1.01) else term


def off_by_one(term: Term) -> Term:
    match term:
        case Apply("lt", arguments):
            return Apply("le", arguments)
    return term


@pytest.mark.parametrize("change", [one_percent, off_by_one])
@pytest.mark.parametrize("order", ["pairwise", "serial"])
def test_a_wrong_program_does_not_pass(
    change: Callable[[Term], Term], order: str, asked: Entry
) -> None:
    wrong = mutated(change)
    assert wrong != ROUTER
    assert not all(verdicts(wrong, order, asked))


def test_outputs_that_ask_for_too_many_weights_are_left_out() -> None:
    """Few products, but every one with a weight of its own: 2**30 of them would have to be drawn,
    which takes minutes."""
    program = program_of("""
def experts(x: f32[C], G: f32[E,F,C], D: f32[E,F], *, C=4096, E=8, F=32768) -> f32[2]:
    y[i: 2] = i + sum[e](sum[f](D[e,f] * exp(sum[c](x[c] * G[e,f,c]))))
    return y
""")
    asked = expected(program, fused(program))
    assert [case["outputs"] for case in asked["cases"]] == [[], []]
