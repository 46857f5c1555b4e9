"""Column sets for tests: random ones, e-graph files, and the exhaustive answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from nautile.extract.selection import Column, in_order

__all__ = ["brute_force", "egraph", "expected", "random_columns"]

DATA = Path(__file__).parents[1] / "data" / "egraphs"


def expected() -> list[dict[str, Any]]:
    """The small e-graphs with their known costs."""
    entries: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())["small"]
    return entries


def egraph(file: str) -> tuple[list[Column], list[int]]:
    """A serialized e-graph as one column an e-node, and its root classes."""
    data = json.loads((DATA / file).read_text())
    ids: dict[str, int] = {}

    def number(name: str) -> int:
        return ids.setdefault(name, len(ids))

    nodes = data["nodes"]
    columns = [
        Column(
            frozenset({number(n["eclass"])}),
            frozenset(number(nodes[c]["eclass"]) for c in n["children"]),
            float(n["cost"]),
        )
        for n in nodes.values()
    ]
    return columns, [number(r) for r in data["root_eclasses"]]


def random_columns(seed: int) -> tuple[list[Column], list[int]]:
    """A small random set, cycles and several-item columns included."""
    pick = random.Random(seed)
    items = list(range(pick.randint(3, 7)))
    columns = []
    for _ in range(pick.randint(4, 12)):
        makes = frozenset(pick.sample(items, pick.choice([1, 1, 1, 2])))
        others = [i for i in items if i not in makes]
        needs = frozenset(pick.sample(others, min(len(others), pick.choice([0, 0, 1, 1, 2]))))
        columns.append(Column(makes, needs, float(pick.randint(1, 20))))
    return columns, sorted(pick.sample(items, pick.choice([1, 1, 2])))


def brute_force(columns: list[Column], roots: list[int]) -> float | None:
    """The cost of the cheapest set of columns that can be put in order and makes the roots."""
    best: float | None = None
    for bits in range(1 << len(columns)):
        chosen = [k for k in range(len(columns)) if bits >> k & 1]
        cost = sum(columns[k].cost for k in chosen)
        if best is not None and cost >= best:
            continue
        made = frozenset[int]().union(*(columns[k].makes for k in chosen))
        if set(roots) <= made and in_order(columns, chosen) is not None:
            best = cost
    return best
