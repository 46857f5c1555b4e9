"""Greedy extractors: baselines, incumbents, and the answer when the exact one runs out of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautile.extract.selection import Column, Selection, selection

__all__ = ["GreedyDag", "GreedyTree"]


class GreedyTree:
    """Bottom-up cheapest tree for every item; shared items are counted once only in the end.

    A column that makes several items is charged in full for each of them. Optimal where the
    cheapest answer shares nothing. Source: egg's Extractor (Willsey et al., POPL 2021).
    """

    name = "greedy-tree"
    optimal_for = "trees"

    def __call__(self, columns: Sequence[Column], roots: Sequence[int]) -> Selection | None:
        best: dict[int, tuple[float, int]] = {}
        changed = True
        while changed:
            changed = False
            for k, c in enumerate(columns):
                if all(n in best for n in c.needs):
                    total = c.cost + sum(best[n][0] for n in c.needs)
                    for item in c.makes - c.needs:
                        if item not in best or total < best[item][0] - 1e-15 * abs(total):
                            best[item], changed = (total, k), True
        return _collect(columns, roots, {item: k for item, (_, k) in best.items()})


class GreedyDag:
    """Bottom-up cheapest set of columns for every item: shared work is counted once on the way.

    Optimal where every item has one candidate; elsewhere a locally cheap choice may miss sharing
    that pays higher up. Source: extraction-gym's faster-greedy-dag.
    """

    name = "greedy-dag"
    optimal_for = "single makers"

    def __call__(self, columns: Sequence[Column], roots: Sequence[int]) -> Selection | None:
        plans: dict[int, dict[int, int]] = {}  # item -> item -> its maker
        costs: dict[int, float] = {}
        changed = True
        while changed:
            changed = False
            for k, c in enumerate(columns):
                if all(n in plans for n in c.needs):
                    changed |= self._improve(columns, k, plans, costs)
        return _collect_plans(columns, roots, plans)

    @staticmethod
    def _improve(
        columns: Sequence[Column], k: int, plans: dict[int, dict[int, int]], costs: dict[int, float]
    ) -> bool:
        merged: dict[int, int] = {}
        for need in sorted(columns[k].needs):
            for item, maker in plans[need].items():
                merged.setdefault(item, maker)
        changed = False
        for item in columns[k].makes:
            if item in merged:
                continue
            plan = {**merged, item: k}
            cost = sum(columns[m].cost for m in set(plan.values()))
            if item not in costs or cost < costs[item] - 1e-15 * abs(cost):
                plans[item], costs[item], changed = plan, cost, True
        return changed


def _collect(
    columns: Sequence[Column], roots: Sequence[int], makers: Mapping[int, int]
) -> Selection | None:
    """The part of `makers` that the roots need."""
    chosen: dict[int, int] = {}
    todo = list(roots)
    while todo:
        item = todo.pop()
        if item not in makers:
            return None
        if item not in chosen:
            chosen[item] = makers[item]
            todo += sorted(columns[makers[item]].needs)
    return selection(columns, chosen, bound=0.0)


def _collect_plans(
    columns: Sequence[Column], roots: Sequence[int], plans: Mapping[int, Mapping[int, int]]
) -> Selection | None:
    """The roots' plans together, the first plan's maker of each shared item winning."""
    merged: dict[int, int] = {}
    for root in roots:
        if root not in plans:
            return None
        for item, maker in plans[root].items():
            merged.setdefault(item, maker)
    found = _collect(columns, roots, merged)
    if found is not None:
        return found
    best = {item: plan[item] for item, plan in plans.items()}
    return _collect(columns, roots, best)
