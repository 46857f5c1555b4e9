"""Set covering with makers: columns, selections, and what every extractor promises.

```
Column    ::= makes (items), needs (items), cost
Selection ::= columns that run, the maker of each item, cost, bound, gap
```

A selection is valid when every root has a maker, every need of a maker has one, and the makers can
be put in an order in which nothing is read before it is made. An e-graph is the special case of one
column an e-node (it makes its class, it needs its children); candidate kernels make several items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Column", "Extractor", "Selection", "in_order", "prune", "reachable"]


@dataclass(frozen=True, slots=True)
class Column:
    """One candidate: the items it makes, the items it needs first, and its cost (0 or more)."""

    makes: frozenset[int]
    needs: frozenset[int]
    cost: float


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen columns in an order that can run; `maker` of each item that the roots need. No
    selection costs less than `bound`; `gap` = (cost - bound) / cost."""

    columns: tuple[int, ...]
    maker: Mapping[int, int]
    cost: float
    bound: float
    gap: float


class Extractor(Protocol):
    """A way to choose. `optimal_for` states when the answer is a cheapest one: "trees" (no item is
    shared), "single makers" (every item has one candidate) or "all"."""

    name: str
    optimal_for: str

    def __call__(self, columns: Sequence[Column], roots: Sequence[int]) -> Selection | None:
        """The selection, or None when the roots cannot be made."""
        ...


def in_order(columns: Sequence[Column], chosen: Iterable[int]) -> tuple[int, ...] | None:
    """The chosen columns in an order that can run, or None when some wait for one another."""
    done: set[int] = set()
    left, order = sorted(chosen), list[int]()
    while left:
        ready = [k for k in left if columns[k].needs <= done]
        if not ready:
            return None
        order += ready
        for k in ready:
            done |= columns[k].makes
        taken = set(ready)
        left = [k for k in left if k not in taken]
    return tuple(order)


def selection(
    columns: Sequence[Column],
    maker: Mapping[int, int],
    *,
    bound: float | None = None,
) -> Selection | None:
    """The selection in which `maker` makes each item, or None when it has a cycle."""
    order = in_order(columns, set(maker.values()))
    if order is None:
        return None
    cost = sum(columns[k].cost for k in order)
    least = cost if bound is None else min(bound, cost)
    return Selection(order, dict(maker), cost, least, (cost - least) / cost if cost else 0.0)


def reachable(columns: Sequence[Column], roots: Iterable[int]) -> set[int]:
    """The columns that some way of making the roots may use: all their needs can be made, and
    one of their items may be needed."""
    made: set[int] = set()
    waiting = dict(enumerate(columns))
    while True:
        ready = [k for k, c in waiting.items() if c.needs <= made]
        if not ready:
            break
        for k in ready:
            made |= waiting.pop(k).makes
    makers: dict[int, list[int]] = {}
    for k, column in enumerate(columns):
        if k not in waiting:
            for item in column.makes:
                makers.setdefault(item, []).append(k)
    used: set[int] = set()
    todo, seen = list(roots), set(roots)
    while todo:
        for k in makers.get(todo.pop(), ()):
            used.add(k)
            fresh = columns[k].needs - seen
            seen |= fresh
            todo += fresh
    return used


def prune(columns: Sequence[Column], roots: Iterable[int], ceiling: float) -> list[int]:
    """The columns that some selection of cost `ceiling` or less may need: reachable ones, none
    dominated (another makes at least as much from at most as little for no more), and none whose
    own cost plus a lower bound on its needs passes the ceiling. All three keep an optimum."""
    live = sorted(reachable(columns, roots))
    live = _undominated(columns, live)
    least = _lower_bounds(columns, live)
    slack = ceiling * (1 + 1e-9) + 1e-30
    return [k for k in live if _least_with(columns[k], least) <= slack]


def _undominated(columns: Sequence[Column], live: list[int]) -> list[int]:
    by_item: dict[int, list[int]] = {}
    kept = []
    for k in sorted(live, key=lambda k: (columns[k].cost, len(columns[k].needs), k)):
        c = columns[k]
        rivals = by_item.get(min(c.makes), [])
        if any(columns[r].makes >= c.makes and columns[r].needs <= c.needs for r in rivals):
            continue
        if c.makes <= c.needs:
            continue
        kept.append(k)
        for item in c.makes:
            by_item.setdefault(item, []).append(k)
    return sorted(kept)


def _lower_bounds(columns: Sequence[Column], live: Iterable[int]) -> dict[int, float]:
    """For each item a lower bound on all that making it takes (the dearest chain)."""
    least: dict[int, float] = {}
    chosen = list(live)
    changed = True
    while changed:
        changed = False
        for k in chosen:
            value = _least_with(columns[k], least)
            for item in columns[k].makes:
                if value < least.get(item, float("inf")):
                    least[item], changed = value, True
    return least


def _least_with(column: Column, least: Mapping[int, float]) -> float:
    unknown = float("inf")
    return column.cost + max((least.get(n, unknown) for n in column.needs), default=0.0)
