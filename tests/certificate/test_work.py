"""What certificates of long programs take: elements drawn and moved, counted and never timed.

A count above its bound fails at once, so a certificate that would take minutes is not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from nautile import extract, lang, rules
from nautile.certificate import certify
from nautile.certificate.drawing import Drawn
from nautile.codegen.lower import lower
from nautile.egraph import saturate
from nautile.extract.kernel import Plan
from nautile.oracle.grid import Question
from nautile.terms import Program

# On the path that every card has, where both programs are split.
PORTABLE = replace(extract.device("h200"), path="mma.sync")
# One chunk of the vocabulary has 57 million weights; one row of the merge reads all 917 million.
CAPPED = """
def f(x: bf16[N,C], W: bf16[V,C], t: i32[N], *, N=4096, C=3584, V=256000) -> f32:
    z[n,v] = sum[c](x[n,c] * W[v,c])
    capped[n,v] = tanh(z[n,v] / 30) * 30
    row[n] = cross_entropy[v](capped[n,v], t[n])
    loss = mean[n](row[n])
    return loss
"""
# One head has 16 million elements in its keys, and as many in its values.
DECODE = """
def f(Q: bf16[H,D], K: bf16[Hk,S,D], V: bf16[Hk,S,E], *, H=32, Hk=8, S=131072, D=128, E=128
      ) -> bf16[H,E]:
    x[h,s] = sum[d](Q[h,d] * K[h//(H//Hk),s,d]) * D**-0.5
    p[h,s] = softmax[s](x[h,s])
    y[h,e] = sum[s](p[h,s] * V[h//(H//Hk),s,e])
    return y
"""


@dataclass
class Count:
    """Elements drawn, and elements that a gather moved one by one."""

    most: int
    drawn: int = 0
    gathered: int = 0

    def add(self, *, drawn: int = 0, gathered: int = 0) -> None:
        self.drawn += drawn
        self.gathered += gathered
        assert self.drawn <= self.most, "drawn"
        assert self.gathered <= self.most // 16, "gathered one by one"


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Count:
    found = Count(request.param)
    draw, answer = Drawn._draw, Question.answer

    def counted(self: Drawn, buffer: Any, flat: Any) -> Any:
        found.add(drawn=flat.size)
        return draw(self, buffer, flat)

    def moved(self: Question, grid: Any) -> Any:
        result = answer(self, grid)
        found.add(gathered=result.size if self._walked() is None else 0)
        return result

    monkeypatch.setattr(Drawn, "_draw", counted)
    monkeypatch.setattr(Question, "answer", moved)
    return found


def chosen(text: str) -> tuple[Program, Plan]:
    """The plan of a program for the H200."""
    (program,) = lang.parse(text)
    found = rules.load(None, classes=("exact", "real", "facts"))
    pairs = [(region, saturate(region.outputs, found)) for region in extract.cut(program)]
    return program, extract.choose(pairs, program, PORTABLE)


@pytest.mark.parametrize(
    ("text", "count"),
    [(CAPPED, 1 << 27), pytest.param(DECODE, 1 << 28, marks=pytest.mark.slow)],
    ids=["capped", "decode"],
    indirect=["count"],
)
def test_a_certificate_draws_a_bounded_number_of_elements(text: str, count: Count) -> None:
    program, plan = chosen(text)
    assert any(k.split for k in plan.kernels)
    tiles = {k.name: tuple(lower(k, p) for p in k.parts) for k in plan.kernels}
    assert certify(program, plan, tiles).verdict == "pass"
