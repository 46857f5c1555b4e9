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

PRODUCT = """def f(a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], g: f32[N], *,
      N=1048576) -> f32[N]:
    y[n] = a[n] * b[n] * c[n] * d[n] * e[n] * g[n]
    return y
"""


# Every order of the factors, which the built-in laws look for under reductions alone.
ORDERS = """
with real:
    any_order = (a * b) * c == a * (b * c)
"""


SINGLE = """def f(x: f32[N,M], *, N=1024, M=256) -> f32[N,1]:
    v[n, k: 1] = sum[m](x[n, m])
    u[n, k: 1] = logsumexp[j](v[n, j])
    y[n, k: 1] = logsumexp[j](u[n, j])
    return y
"""


@pytest.fixture(scope="module")
def exploded() -> Snapshot:
    (region,) = cut(lang.parse(PRODUCT)[0])
    known = rules.load(None, classes=("exact", "real", "fast"))
    laws = (*known, *rules.parse(ORDERS, pack="orders"))
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


@pytest.mark.parametrize("limit", [30, 40])
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
    program = lang.parse(PRODUCT)[0]
    monkeypatch.setattr("nautile.extract.pool.trim", partial(trim, limit=40))
    plan = choose([(cut(program)[0], exploded)], program, device("h200"), numerics="fast")
    assert [k.prediction.reads_bytes for k in plan.kernels] == [6 * 4 << 20]
    assert plan.pruned["trimmed"] > 0


def test_what_is_left_speaks_of_its_own_classes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = lang.parse(SINGLE)[0]
    (region,) = cut(program)
    laws = rules.load(None, classes=("exact", "real"))
    whole = saturate(region.outputs, laws, limits=Limits(rows=1500), in_process=True)
    left = trim(whole, 12)
    assert len(left.classes) <= 12 < len(whole.classes)
    assert all(k in left.classes for n in left.source.values() for k in n.children)
    fields = (left.source, left.free, left.dtype, left.made)
    assert all(set(field) <= set(left.classes) for field in fields)
    monkeypatch.setattr("nautile.extract.pool.trim", partial(trim, limit=12))
    plan = choose([(region, whole)], program, device("h200"))
    assert plan.pruned["trimmed"] > 0
    assert [o.buffer.name for o in plan.kernels[-1].outputs] == ["y"]
