"""The extractors against brute force and against known optima of published e-graphs."""

from __future__ import annotations

import pytest

from nautile.extract.exact import Exact, _Model, relaxation, runners_up
from nautile.extract.greedy import GreedyDag, GreedyTree
from nautile.extract.selection import Column, Selection, in_order, prune

from .columns import brute_force, egraph, expected, random_columns


def valid(columns: list[Column], roots: list[int], found: Selection) -> bool:
    """Whether the columns can run in the given order and make the roots."""
    done: set[int] = set()
    for k in found.columns:
        if not columns[k].needs <= done:
            return False
        done |= columns[k].makes
    return set(roots) <= done


@pytest.mark.parametrize("block", range(8))
def test_exact_finds_what_brute_force_finds(block: int) -> None:
    for seed in range(60 * block, 60 * block + 60):
        columns, roots = random_columns(seed)
        best = brute_force(columns, roots)
        found = Exact()(columns, roots)
        assert (found.cost if found else None) == best, seed
        if found:
            assert valid(columns, roots, found), seed
            assert found.gap == 0.0, seed


@pytest.mark.parametrize("block", range(4))
def test_greedy_answers_are_valid_and_never_below_the_optimum(block: int) -> None:
    for seed in range(60 * block, 60 * block + 60):
        columns, roots = random_columns(seed)
        best = brute_force(columns, roots)
        for extractor in (GreedyTree(), GreedyDag()):
            found = extractor(columns, roots)
            if found:
                assert valid(columns, roots, found), (seed, extractor.name)
                assert best is not None
                assert found.cost >= best, (seed, extractor.name)


def _tree(seed: int) -> tuple[list[Column], list[int]]:
    """Candidates in which no item is needed twice: item i is needed by item (i - 1) // 2 alone."""
    import random

    pick = random.Random(seed)
    columns = []
    for item in range(7):
        kids = [k for k in (2 * item + 1, 2 * item + 2) if k < 7]
        for _ in range(pick.randint(1, 3)):
            needs = frozenset(k for k in kids if pick.random() < 0.7)
            columns.append(Column(frozenset({item}), needs, float(pick.randint(1, 9))))
    return columns, [0]


@pytest.mark.parametrize("seed", range(40))
def test_greedy_tree_is_optimal_for_trees(seed: int) -> None:
    columns, roots = _tree(seed)
    found = GreedyTree()(columns, roots)
    assert found is not None
    assert GreedyTree.optimal_for == "trees"
    exact = Exact()(columns, roots)
    assert exact is not None
    assert found.cost == exact.cost


@pytest.mark.parametrize("seed", range(40))
def test_greedy_dag_is_optimal_where_every_item_has_one_maker(seed: int) -> None:
    columns, roots = random_columns(seed)
    first: dict[int, Column] = {}
    for c in columns:
        if len(c.makes) == 1 and not c.makes & first.keys():
            first[min(c.makes)] = c
    single = list(first.values())
    found = GreedyDag()(single, roots)
    assert GreedyDag.optimal_for == "single makers"
    assert (found.cost if found else None) == brute_force(single, roots)


@pytest.mark.parametrize("entry", expected(), ids=lambda e: e["name"])
def test_known_optima_are_reproduced(entry: dict) -> None:  # type: ignore[type-arg]
    columns, roots = egraph(entry["file"])
    found = Exact(seconds=60)(columns, roots)
    assert found is not None
    assert found.cost == pytest.approx(entry["recomputed"]["optimum"], abs=1e-9)
    assert found.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("entry", expected(), ids=lambda e: e["name"])
def test_greedy_tree_reproduces_its_known_costs(entry: dict) -> None:  # type: ignore[type-arg]
    columns, roots = egraph(entry["file"])
    found = GreedyTree()(columns, roots)
    assert found is not None
    assert found.cost <= entry["recomputed"]["greedy_bottom_up"] + 1e-9
    assert found.cost >= entry["recomputed"]["optimum"] - 1e-9


def test_runners_up_differ_and_get_dearer() -> None:
    for seed in range(80):
        columns, roots = random_columns(seed)
        found = runners_up(columns, roots, 4)
        sets = [frozenset(s.columns) for s in found]
        assert len(set(sets)) == len(sets), seed
        costs = [s.cost for s in found]
        assert costs == sorted(costs), seed


def test_the_second_best_is_the_best_without_the_first() -> None:
    """A set of three ways: 3, 5 (shared intermediate) and 7."""
    columns = [
        Column(frozenset({0}), frozenset(), 3.0),
        Column(frozenset({0}), frozenset({1}), 1.0),
        Column(frozenset({1}), frozenset(), 4.0),
        Column(frozenset({0}), frozenset({2}), 2.0),
        Column(frozenset({2}), frozenset(), 5.0),
    ]
    assert [s.cost for s in runners_up(columns, [0], 5)] == [3.0, 5.0]
    assert [s.cost for s in runners_up([*columns[1:]], [0], 5)] == [5.0, 7.0]


def test_forced_and_forbidden_columns() -> None:
    columns = [
        Column(frozenset({0}), frozenset(), 3.0),
        Column(frozenset({0}), frozenset({1}), 1.0),
        Column(frozenset({1}), frozenset(), 4.0),
    ]
    without = Exact(forbid=frozenset({0}))(columns, [0])
    assert without is not None
    assert without.cost == 5.0
    forced = Exact(force=frozenset({2}))(columns, [0])
    assert forced is not None
    assert 2 in forced.columns
    assert Exact(forbid=frozenset({0, 1}))(columns, [0]) is None


def test_a_cycle_is_never_an_answer() -> None:
    columns = [
        Column(frozenset({0}), frozenset({1}), 1.0),
        Column(frozenset({1}), frozenset({0}), 1.0),
        Column(frozenset({1}), frozenset(), 50.0),
    ]
    found = Exact()(columns, [0])
    assert found is not None
    assert found.cost == 51.0


def test_a_knot_of_cheap_makers_is_cut_off_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that all can be made of one another for next to nothing, beside a root with dear ways.
    Without the knot's inequality many rings of idlers are answers first."""
    solved = []
    run = _Model.run
    monkeypatch.setattr(_Model, "run", lambda *a: solved.append(1) or run(*a))
    items = range(8)
    columns = [
        Column(frozenset({a}), frozenset({b}), 1 + (3 * a + b) / 1000)
        for a in items
        for b in items
        if a != b
    ]
    columns += [Column(frozenset({0}), frozenset(n), c) for n, c in (((), 1000.0), ((8,), 500.0))]
    columns.append(Column(frozenset({8}), frozenset(), 900.0))
    found = runners_up(columns, [0], 4)
    assert [s.cost for s in found] == [1000.0, 1400.0]
    assert len(solved) <= 4


def test_the_relaxation_is_a_lower_bound_and_pruning_keeps_an_optimum() -> None:
    for seed in range(120):
        columns, roots = random_columns(seed)
        best = brute_force(columns, roots)
        if best is None:
            continue
        live = prune(columns, roots, best)
        assert brute_force([columns[k] for k in live], roots) == best, seed
        relaxed = relaxation(columns, roots)
        assert relaxed is not None
        assert relaxed.value <= best + 1e-6, seed


def test_order_of_columns_that_wait_for_one_another() -> None:
    columns = [
        Column(frozenset({0}), frozenset({1}), 1.0),
        Column(frozenset({1}), frozenset(), 1.0),
    ]
    assert in_order(columns, [0, 1]) == (1, 0)
    assert in_order(columns, [0]) is None
