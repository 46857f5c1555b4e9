"""The cheapest valid selection, by integer programming with HiGHS.

```
x[k]    column k runs                        z[k,o]  k is the maker of o  (z = x for one output)
minimise sum cost[k] x[k]
(1) every root has a maker             sum_k z[k,r] = 1
(2) what makes o needs l made          sum_{k: makes o, needs l} z[k,o] <= sum_k z[k,l]  all o, l
(3) a maker runs                       z[k,o] <= x[k]
(4) one maker at most                  sum_k z[k,o] <= 1
(5) knots have outside help            sum_k z[k,o] <= sum_{k: makes some of S, needs none} x[k]
(6) items of a knot are in order       u_o - u_l >= (1 + 1/n) sum_{k: makes o, needs l} z[k,o] - 1
```

(2) summed over the alternatives for o is what makes the relaxation tight. (5) and (6) keep makers
from waiting for one another: of a knot, a set S of n items, the first that is made needs none (the
loop formulas of Lin, Zhao, "ASSAT", Artificial Intelligence 157, 2004), and items are made after
what they need (Miller, Tucker, Zemlin, Journal of the ACM 7, 1960). (5) is there from the start,
(6) is added for the knots that an answer ties.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
from highspy import _core

from nautile.extract.greedy import GreedyDag, GreedyTree
from nautile.extract.selection import Column, Selection, prune, selection

__all__ = ["Exact", "relaxation", "runners_up"]

RUNNER_NODES = 200  # branches of the search for one runner-up
MANY = 60  # columns from which on the linear relaxation is asked first


@dataclass(frozen=True, slots=True)
class Exact:
    """The integer program. `seconds` is a wall-clock limit: when it ends first, the best selection
    found so far comes back with its true bound. `force` and `forbid` name columns; `cuts` are sets
    of columns that may not all run; columns that only selections dearer than `most` use are left
    out. `nodes` limits the branches of the search, the same way on every machine."""

    seconds: float = 30.0
    relative_gap: float = 1e-9
    force: frozenset[int] = frozenset()
    forbid: frozenset[int] = frozenset()
    cuts: tuple[frozenset[int], ...] = ()
    most: float = float("inf")
    nodes: int = 100_000
    name: str = "exact"
    optimal_for: str = "all"

    def __call__(self, columns: Sequence[Column], roots: Sequence[int]) -> Selection | None:
        incumbent = self._incumbent(columns, roots)
        ceiling = self.most if incumbent is None else min(self.most, incumbent.cost)
        free = [k for k in range(len(columns)) if k not in self.forbid]
        kept = [free[k] for k in prune([columns[k] for k in free], roots, ceiling)]
        kept = sorted({*kept, *self.force})
        if len(kept) > MANY and not self.cuts:
            kept = sorted({*_within_reach(columns, roots, kept, ceiling), *self.force})
        return self._solve(columns, roots, kept, incumbent)

    def _incumbent(self, columns: Sequence[Column], roots: Sequence[int]) -> Selection | None:
        if self.force or self.forbid or self.cuts:
            return None
        answers = [a for e in (GreedyTree(), GreedyDag()) if (a := e(columns, roots)) is not None]
        return min(answers, key=lambda a: a.cost, default=None)

    def _solve(
        self,
        columns: Sequence[Column],
        roots: Sequence[int],
        kept: list[int],
        incumbent: Selection | None,
    ) -> Selection | None:
        deadline = time.monotonic() + self.seconds
        knots = _knots(columns, [(k, o) for k in kept for o in columns[k].makes])
        ordered: list[frozenset[int]] = []
        bound = 0.0
        while True:
            left = max(0.1, deadline - time.monotonic())
            model = _Model(columns, roots, kept, self.force, self.cuts, knots, ordered)
            answer = model.run(left, self.relative_gap, self.nodes)
            if answer is None:
                return _bounded(incumbent, bound)
            maker, lower = answer
            bound = max(bound, lower)
            tied = _knots(columns, [(k, o) for o, k in maker.items()])
            if not tied:
                return selection(columns, maker, bound=self._settled(columns, maker, bound))
            fresh = [k for k in knots if k not in ordered and any(k & t for t in tied)]
            if not fresh or time.monotonic() > deadline:
                return _bounded(incumbent, bound)
            ordered += fresh

    def _settled(self, columns: Sequence[Column], maker: Mapping[int, int], bound: float) -> float:
        cost = sum(columns[k].cost for k in set(maker.values()))
        return cost if cost - bound <= 1e-7 * max(cost, 1e-12) else bound


def _within_reach(
    columns: Sequence[Column], roots: Sequence[int], kept: list[int], ceiling: float
) -> list[int]:
    """The columns that a selection of cost `ceiling` may use: a column whose reduced cost in the
    linear relaxation passes what is left up to the ceiling is in none (it makes one item here)."""
    model = _Model(columns, roots, kept)
    answer = model.reduced_costs()
    if answer is None or not np.isfinite(ceiling):
        return kept
    value, costs = answer
    slack = ceiling * (1 + 1e-6) - value + 1e-12 * max(1.0, ceiling)
    return [k for k in kept if len(columns[k].makes) > 1 or costs[k] <= slack]


def _bounded(incumbent: Selection | None, bound: float) -> Selection | None:
    if incumbent is None:
        return None
    gap = (incumbent.cost - bound) / incumbent.cost if incumbent.cost else 0.0
    return Selection(incumbent.columns, incumbent.maker, incumbent.cost, bound, gap)


def runners_up(
    columns: Sequence[Column],
    roots: Sequence[int],
    count: int,
    *,
    best: Selection | None = None,
    seconds: float = 10.0,
) -> tuple[Selection, ...]:
    """The `count` cheapest selections, best first, that differ in the set of columns that run, of
    those that cost at most twice the best (which need not be found again where it is given).
    Columns that another beats in every way are left out."""
    found = [best] if best else []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        cuts = tuple(frozenset(s.columns) for s in found)
        left = max(0.1, deadline - time.monotonic())
        most = 2 * found[0].cost if found else float("inf")
        answer = Exact(seconds=left, cuts=cuts, most=most, nodes=RUNNER_NODES)(columns, roots)
        if answer is None or answer.cost > most:
            break
        found.append(answer)
    return tuple(found)


def _knots(columns: Sequence[Column], makers: Iterable[tuple[int, int]]) -> list[frozenset[int]]:
    """The sets of items whose makers, (column, item) pairs, wait for one another."""
    graph: Any = nx.DiGraph()
    graph.add_edges_from((n, o) for k, o in sorted(makers) for n in sorted(columns[k].needs))
    parts = (frozenset(part) for part in nx.strongly_connected_components(graph))
    knots = [part for part in parts if len(part) > 1 or graph.has_edge(*part, *part)]
    return sorted(knots, key=sorted)


@dataclass(slots=True)
class Relaxation:
    """The linear relaxation: its value, and the dual prices of making items and of loading."""

    value: float
    worth: Mapping[int, float]
    toll: Mapping[tuple[int, int], float]

    def reduced(self, column: Column) -> float:
        """The column's cost less what the relaxation would pay for what it makes."""
        gain = 0.0
        for o in column.makes:
            tolls = sum(self.toll.get((o, n), 0.0) for n in column.needs)
            gain += max(0.0, self.worth.get(o, 0.0) - tolls)
        return column.cost - gain


def relaxation(columns: Sequence[Column], roots: Sequence[int]) -> Relaxation | None:
    """Solve the linear relaxation over all columns."""
    return _Model(columns, roots, list(range(len(columns))), idlers=True).relax()


@dataclass(slots=True)
class _Model:
    """Variables and rows of one integer program over the columns `kept`. `idlers` allows makers of
    what nobody needs (forced columns may be such)."""

    columns: Sequence[Column]
    roots: Sequence[int]
    kept: list[int]
    force: frozenset[int] = frozenset()
    cuts: Sequence[frozenset[int]] = ()
    knots: Sequence[frozenset[int]] = ()
    ordered: Sequence[frozenset[int]] = ()
    idlers: bool = False
    runs: dict[int, int] = field(default_factory=dict)
    makes: dict[tuple[int, int], int] = field(default_factory=dict)
    rows: list[tuple[float, float, dict[int, float]]] = field(default_factory=list)
    tags: list[int | tuple[int, int] | None] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    variables: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        self._variables()
        self._rows()

    def _variables(self) -> None:
        for k in self.kept:
            self.runs[k] = self.variables
            self.variables += 1
        for k in self.kept:
            items = sorted(self.columns[k].makes)
            for item in items:
                if len(items) == 1:
                    self.makes[k, item] = self.runs[k]
                else:
                    self.makes[k, item] = self.variables
                    self.variables += 1
        dearest = max((self.columns[k].cost for k in self.kept), default=1.0)
        self.scale = 100.0 / dearest if dearest > 0 else 1.0

    def _rows(self) -> None:
        made: dict[int, list[int]] = {}
        pairs: dict[tuple[int, int], list[int]] = {}
        for (k, item), variable in self.makes.items():
            made.setdefault(item, []).append(variable)
            for need in sorted(self.columns[k].needs):
                pairs.setdefault((item, need), []).append(variable)
        wanted = dict.fromkeys(self.roots)
        for root in wanted:
            self._add(1, 1, dict.fromkeys(made.get(root, ()), 1.0), root)
        for (item, need), users in pairs.items():
            row = dict.fromkeys(made.get(need, ()), 1.0)
            for variable in users:
                row[variable] = row.get(variable, 0.0) - 1.0
            self._add(0, np.inf, row, (item, need))
        for item, variables in made.items():
            if item not in wanted and len(variables) > 1:
                self._add(-np.inf, 1, dict.fromkeys(variables, 1.0), None)
        for (k, _), variable in self.makes.items():
            if variable != self.runs[k]:
                self._add(0, np.inf, {self.runs[k]: 1.0, variable: -1.0}, None)
        for knot in self.knots:
            self._untied(knot, made)
        for knot in self.ordered:
            self._in_order(knot, pairs)
        for cut in self.cuts:
            self._cut(cut)
        if self.cuts or not (self.idlers or self.force):
            self._no_idlers(made, pairs)

    def _untied(self, knot: frozenset[int], made: Mapping[int, list[int]]) -> None:
        """What is made of a knot needs a column that makes some of it and needs none of it."""
        columns = ((self.columns[k], variable) for k, variable in self.runs.items())
        outside = [v for c, v in columns if c.makes & knot and not c.needs & knot]
        for item in sorted(knot):
            row = dict.fromkeys(outside, 1.0)
            for variable in made.get(item, ()):
                row[variable] = row.get(variable, 0.0) - 1.0
            self._add(0, np.inf, row, None)

    def _in_order(self, knot: frozenset[int], pairs: Mapping[tuple[int, int], list[int]]) -> None:
        """A place from 0 to 1 for each item of the knot, after the places of what it needs."""
        place = {item: self.variables + n for n, item in enumerate(sorted(knot))}
        self.places += place.values()
        self.variables += len(place)
        for (item, need), variables in pairs.items():
            if item in knot and need in knot:
                row = dict.fromkeys(variables, -1 - 1 / len(knot))
                self._add(-1, np.inf, {**row, place[item]: 1.0, place[need]: -1.0}, None)

    def _no_idlers(
        self, made: Mapping[int, list[int]], pairs: Mapping[tuple[int, int], list[int]]
    ) -> None:
        """Only what is needed is made, and among several answers (where some are cut off) every
        column is the maker of all that it makes: else a forbidden one comes back with an idler."""
        wanted = set(self.roots)
        users: dict[int, list[int]] = {}
        for (_, need), variables in pairs.items():
            users.setdefault(need, []).extend(variables)
        for item, variables in made.items():
            if item not in wanted:
                row = dict.fromkeys(variables, -1.0)
                for variable in users.get(item, ()):
                    row[variable] = row.get(variable, 0.0) + 1.0
                self._add(0, np.inf, row, None)
        for (k, _), variable in self.makes.items():
            if self.cuts and variable != self.runs[k]:
                self._add(0, np.inf, {variable: 1.0, self.runs[k]: -1.0}, None)

    def _cut(self, cut: frozenset[int]) -> None:
        """Not all of these columns run."""
        if all(k in self.runs for k in cut):
            row = dict.fromkeys((self.runs[k] for k in sorted(cut)), 1.0)
            self._add(-np.inf, len(row) - 1, row, None)

    def _add(
        self, low: float, high: float, row: dict[int, float], tag: int | tuple[int, int] | None
    ) -> None:
        self.rows.append((low, high, row))
        self.tags.append(tag)

    def _build(self, *, integral: bool) -> Any:
        h: Any = _core._Highs()  # the wrapper class prints a banner on standard output
        h.setOptionValue("output_flag", False)
        h.setOptionValue("threads", 1)
        h.setOptionValue("random_seed", 0)
        low, high = np.zeros(self.variables), np.ones(self.variables)
        for k in self.force:
            low[self.runs[k]] = 1.0
        h.addVars(self.variables, low, high)
        ids = np.arange(self.variables, dtype=np.int32)
        cost = np.zeros(self.variables)
        for k, variable in self.runs.items():
            cost[variable] = self.columns[k].cost * self.scale
        h.changeColsCost(self.variables, ids, cost)
        if integral:
            kinds = np.ones(self.variables, dtype=np.uint8)
            kinds[self.places] = 0
            h.changeColsIntegrality(self.variables, ids, kinds)
        starts = np.cumsum([0] + [len(row) for _, _, row in self.rows[:-1]]).astype(np.int32)
        index = np.array([v for _, _, row in self.rows for v in row], dtype=np.int32)
        value = np.array([c for _, _, row in self.rows for c in row.values()], dtype=float)
        lows = np.array([a for a, _, _ in self.rows], dtype=float)
        highs = np.array([b for _, b, _ in self.rows], dtype=float)
        h.addRows(len(self.rows), lows, highs, len(index), starts, index, value)
        return h

    def run(self, seconds: float, gap: float, nodes: int) -> tuple[dict[int, int], float] | None:
        """Makers of the needed items and a lower bound on the cost, or None without an answer."""
        if any(not row for low, _, row in self.rows if low > 0):
            return None
        h = self._build(integral=True)
        h.setOptionValue("time_limit", float(seconds))
        h.setOptionValue("mip_rel_gap", gap)
        h.setOptionValue("mip_abs_gap", 0.0)
        h.setOptionValue("mip_max_nodes", nodes)
        h.run()
        info = h.getInfo()
        if info.primal_solution_status != 2:
            return None
        values = h.getSolution().col_value
        bound = max(0.0, float(info.mip_dual_bound)) / self.scale
        return self._needed({p: v for p, v in self.makes.items() if values[v] > 0.5}), bound

    def _needed(self, chosen: Mapping[tuple[int, int], int]) -> dict[int, int]:
        """The makers that the roots need, without idle ones."""
        by_item = {item: k for k, item in chosen}
        maker: dict[int, int] = {}
        todo = [*self.roots, *(i for k, i in chosen if k in self.force)]
        while todo:
            item = todo.pop()
            if item not in maker:
                maker[item] = by_item[item]
                todo += self.columns[by_item[item]].needs
        return dict(sorted(maker.items()))

    def reduced_costs(self) -> tuple[float, dict[int, float]] | None:
        """The value of the linear relaxation and the reduced cost of every column's variable."""
        h = self._build(integral=False)
        h.run()
        info = h.getInfo()
        if info.primal_solution_status != 2:
            return None
        duals = h.getSolution().col_dual
        costs = {k: duals[v] / self.scale for k, v in self.runs.items()}
        return float(info.objective_function_value) / self.scale, costs

    def relax(self) -> Relaxation | None:
        """The linear relaxation with its duals."""
        h = self._build(integral=False)
        h.run()
        info = h.getInfo()
        if info.primal_solution_status != 2:
            return None
        worth: dict[int, float] = {}
        toll: dict[tuple[int, int], float] = {}
        for tag, dual in zip(self.tags, h.getSolution().row_dual, strict=True):
            if isinstance(tag, tuple):
                toll[tag] = dual / self.scale
                worth[tag[1]] = worth.get(tag[1], 0.0) + dual / self.scale
            elif tag is not None:
                worth[tag] = worth.get(tag, 0.0) + dual / self.scale
        return Relaxation(float(info.objective_function_value) / self.scale, worth, toll)
