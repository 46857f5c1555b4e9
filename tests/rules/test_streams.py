"""Laws of streamed sums: what a law without one of its guards, or with a sign or a moment the wrong
way round, is worth."""

from __future__ import annotations

import numpy as np
import pytest

from nautile import rules
from nautile.rules.blocks import Blocks
from nautile.rules.check import check
from nautile.terms import Axis, Before, Buffer, Const, Index, Load, Online, Reduce, Running, apply

LAWS = {rule.name: rule.text for rule in rules.load()}
STEP = "where(before(m) > -inf, running(m) - before(m), 0)"
# What is changed in which law, and into what.
WRONG = [
    ("go_affine", "(running(m) - before(m))", "(before(m) - running(m))"),
    ("go_affine", "before(sum[j](k))", "running(sum[j](k))"),
    ("go_affine", "before(sum[j](k)) * ", ""),
    ("go_affine", ", r), shift", ", a), shift"),
    ("go_affine_max", "running(m) - before(m)", "before(m) - running(m)"),
    ("go_affine_max", STEP, "(running(m) - before(m))"),
    ("again", "repair(m, k)", "repair(m, -k)"),
    ("again", "p * repair(m, k)", "repair(m, k)"),
    ("again", ", j not in k", ""),
    ("again", "k < 0", "k > 0"),
    ("again_moved", "(m, k), q, r)", "(m, k), o, r)"),
    ("again_moved", "(m, k), q, r)", "(m, k), 0, r)"),
    ("again_moved", ", j not in k", ""),
    ("again_affine", "o + before", "o - before"),
    ("again_affine", "o + before", "before"),
    ("again_affine", "before(sum[j](k))", "before(sum[j](1))"),
    ("go_power", "running(m) / before(m)", "before(m) / running(m)"),
    ("go_power", "before(m) > 0", "before(m) < 0"),
    ("go_power", ", j not in k", ""),
    ("go_bend", "- 2 * ", "+ 2 * "),
    ("go_bend", "- 2 * (running(m) - before(m)) * ", "- 2 * "),
    ("go_bend", "before(streamed", "running(streamed"),
    ("go_bend", "(before(m) - running(m)), q", "(running(m) - before(m)), q"),
    ("go_bend", "before(sum[j](w)) * ((run", "((run"),
    ("drop_up", ", j not in m", ""),
    ("drop_up", "- m *", "+ m *"),
    ("drop_up", "sum[j](k)", "k"),
    ("go_online", ", tame(r)", ""),
    ("go_power", ", tame(r)", ""),
    ("go_affine", ", tame(r)", ""),
    ("go_bend", ", tame(r)", ""),
    ("again", ", tame(r)", ""),
    ("again_moved", ", tame(r)", ""),
    ("again_moved", ", tame(q)", ""),
    ("where_quotient", ">> where(any[j](c), sum[j](where(c, a, 0)) / b, 0)",
     ">> sum[j](where(c, a, 0)) / b"),
    ("where_quotient", ", j not in b", ""),
]  # fmt: skip


def _verdict(law: str) -> str:
    (rule,) = rules.parse(f"with real:\n    r = {law}\n")
    return check(rule, trials=60, strongest=False, repair=False).verdict


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG)
def test_a_flipped_law_is_refuted(name: str, right: str, wrong: str) -> None:
    assert right in LAWS[name]
    assert _verdict(LAWS[name].replace(right, wrong)) == "unsound"


def test_a_law_that_holds_one_by_one_alone_is_refuted() -> None:
    """A body of running values gives its term at each position, and not that of a block."""
    law = "sum[j](a) >> streamed[j](1, 0, running(sum[j](a)) - before(sum[j](a)))"
    (rule,) = rules.parse(f"with real:\n    r = {law}\n")
    verdict = check(rule, trials=60, strongest=False, repair=False)
    assert (verdict.verdict, verdict.method) == ("unsound", "blocks")


J = Axis("j", 0, 6)
X = Load(Buffer("x", (6,), "f64"), (Index(J),))
ENDS = [[6], [1, 2, 3, 4, 5, 6], [2, 6], [3, 4, 6]]


@pytest.mark.parametrize("ends", ENDS)
def test_blocks_of_a_variance(ends: list[int]) -> None:
    """Chan's update by hand, as `nautile.terms` shows it, against NumPy."""
    total, count = Reduce("sum", J, X), Reduce("sum", J, Const(1.0))
    new = apply("div", Running(total), Running(count))
    seen = apply("gt", Before(count), Const(0.0))
    old = apply("where", seen, apply("div", Before(total), Before(count)), Const(0.0))
    step, away = apply("sub", old, new), apply("sub", X, new)
    offset = apply("mul", Before(count), apply("mul", step, step))
    term = Online(J, Const(1.0), apply("mul", away, away), offset)
    x = np.array([3.0, -1.0, 4.0, 1.5, -9.0, 2.5])
    found = Blocks({"x": x}, {J: ends})(term, ())
    assert found == pytest.approx(np.sum((x - x.mean()) ** 2), rel=1e-12)
