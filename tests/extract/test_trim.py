"""Large snapshots are cut down before candidates are generated; small ones are left alone."""

from __future__ import annotations

import math
from functools import partial

import pytest

from nautile import lang, rules
from nautile.egraph import Limits, saturate
from nautile.extract import choose, cut, device
from nautile.extract.trim import trim
from nautile.snapshot import Snapshot

QUOTIENT = """def f(x: f32[N], g: f32[N], *, N=1048576) -> f32[N]:
    y[n] = x[n] * (g[n] / g[n])
    return y
"""


@pytest.fixture(scope="module")
def exploded() -> Snapshot:
    (region,) = cut(lang.parse(QUOTIENT)[0])
    laws = rules.load(None, classes=("exact", "real", "fast"))
    return saturate(region.outputs, laws, limits=Limits(rows=3000), in_process=True)


def tree_cost(snapshot: Snapshot, root: int) -> float:
    """Least number of operations of a tree, by Bellman's recursion to a fixed point."""
    cost = dict.fromkeys(snapshot.classes, math.inf)
    for _ in range(len(cost)):
        for c, nodes in snapshot.classes.items():
            cost[c] = min(bool(n.children) + sum(cost[k] for k in n.children) for n in nodes)
    return cost[root]


def test_a_small_snapshot_is_the_same_object(exploded: Snapshot) -> None:
    assert trim(exploded, len(exploded.classes)) is exploded


@pytest.mark.parametrize("limit", [15, 40])
def test_what_is_left_is_closed_small_and_no_dearer(exploded: Snapshot, limit: int) -> None:
    left = trim(exploded, limit)
    assert len(left.classes) <= limit < len(exploded.classes)
    assert all(k in left.classes for ns in left.classes.values() for n in ns for k in n.children)
    (root,) = left.roots
    assert left.source[root] in left.classes[root]
    assert tree_cost(left, root) == tree_cost(exploded, root)


def test_the_choice_on_a_trimmed_graph_reads_the_least(
    exploded: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lang.parse(QUOTIENT)[0]
    monkeypatch.setattr("nautile.extract.plan.trim", partial(trim, limit=40))
    plan = choose([(cut(program)[0], exploded)], program, device("h200"), numerics="fast")
    assert [k.prediction.reads_bytes for k in plan.kernels] == [4 << 20]
    assert plan.pruned["trimmed"] > 0
