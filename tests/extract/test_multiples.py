"""A class of which laws make many multiples is computed, not only read from one of these."""

from __future__ import annotations

import pytest

from nautile import extract, lang, rules
from nautile.egraph import Limits, saturate
from nautile.terms import buffers

RATIO = """
def f(x: f32[R,C], *, R=4096, C=65536) -> f32[R]:
    mu[r] = mean[c](x[r,c])
    y[r] = mu[r] ** 2 / mean[c]((x[r,c] - mu[r]) ** 2)
    return y
"""
# With it a mean, times and over what it divides by, has as many multiples as there is room for.
ENDLESS = """
with real:
    ratio = (a * b) / c >> a * (b / c), finite(b), finite(c)
"""


@pytest.mark.slow
def test_a_ratio_of_means_is_planned_whatever_multiples_there_are() -> None:
    (program,) = lang.parse(RATIO)
    laws = (*rules.load(None, classes=("exact", "real")), *rules.parse(ENDLESS, pack="endless"))
    (region,) = extract.cut(program)
    snapshot = saturate(region.outputs, laws, limits=Limits(rows=2500))
    assert snapshot.report.stop != "saturated"
    plan = extract.choose([(region, snapshot)], program, extract.device("h200"), runners=0)
    assert [b.name for b in buffers(*(o.term for k in plan.kernels for o in k.outputs))] == ["x"]
