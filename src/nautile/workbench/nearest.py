"""The match of a pattern over an e-graph's tables that fails the fewest conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nautile.egraph.schema import LEAVES

from .query import ANALYSES, Clause, Database, Goal, variables

__all__ = ["Search", "binds", "ordered", "unbound"]

_MATCHES = 2000  # matches of a pattern that are looked at
_STEPS = 50_000  # steps of the search in one direction


class Search:
    """Backtracking over the tables; keeps the match with the fewest failures."""

    def __init__(self, data: Database, conditions: list[Clause]) -> None:
        self.data, self.conditions = data, conditions
        self.best: tuple[dict[str, Any], tuple[Clause, ...]] | None = None
        self.here: tuple[dict[str, Any], tuple[Clause, ...]] | None = None
        self.alike: set[int] = set()
        self.furthest: tuple[dict[str, Any], Goal | None, int] = ({}, None, -1)
        self.steps = 0

    def patterns(self, goals: Sequence[Goal]) -> None:
        """Try every match of the pattern."""
        for number, binding in enumerate(self.all(goals, {}, 0)):
            self.here = None
            self.judge(binding, 0, ())
            self.compare()
            if number > _MATCHES or self.steps > _STEPS:
                return

    def compare(self) -> None:
        """Keep the match at hand, if it is the best, and count those that are as good."""
        assert self.here is not None
        failed = len(self.here[1])
        if self.best is None or failed < len(self.best[1]):
            self.best, self.alike = self.here, set()
        if failed == len(self.best[1]):
            self.alike.add(self.here[0]["e"])

    def all(
        self, goals: Sequence[Goal], known: dict[str, Any], done: int
    ) -> Iterator[dict[str, Any]]:
        """All bindings that meet the goals; the furthest that it came is kept."""
        if done > self.furthest[2] and done < len(goals):
            self.furthest = known, goals[done], done
        if done == len(goals):
            yield known
            return
        for found in self.data.solve(goals[done], known):
            self.steps += 1
            yield from self.all(goals, found, done + 1)

    def judge(self, known: dict[str, Any], done: int, failed: tuple[Clause, ...]) -> None:
        """Try the conditions from `done` on, those that cannot hold left out."""
        self.steps += 1
        if self.here is not None and len(failed) >= len(self.here[1]):
            return
        if done == len(self.conditions) or self.steps > _STEPS:
            self.here = known, (*failed, *self.conditions[done:])
            return
        clause, met = self.conditions[done], False
        if _ready(clause, known):
            for found in _solutions(self.data, clause.goals, known):
                met = True
                self.judge({k: v for k, v in found.items() if k[:1] != "t"}, done + 1, failed)
        if not met:
            self.judge(known, done + 1, (*failed, clause))


def _ready(clause: Clause, known: dict[str, Any]) -> bool:
    """Whether the names that a test, or the lookup of an analysis, speaks of are bound."""
    return not unbound(clause, known)


def unbound(clause: Clause, known: dict[str, Any]) -> set[str]:
    """The names that a condition speaks of, and nothing has bound."""
    given = (None, *ANALYSES, *LEAVES)
    found = [g for g in clause.goals if g.table not in given]
    made = {v for g in found for c in g.columns for v in variables(c)}
    asked: set[str] = set()
    for goal in (g for g in clause.goals if g not in found):
        columns = goal.columns[:-1] if goal.table in ANALYSES else goal.columns
        own = {v for c in columns for v in variables(c)}
        asked |= {v for v in own if v == "e" or v[:2] in ("v_", "x_")}
    return asked - made - set(known)


def _solutions(
    data: Database, goals: Sequence[Goal], known: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if not goals:
        yield known
        return
    for found in data.solve(goals[0], known):
        yield from _solutions(data, goals[1:], found)


def ordered(conditions: Sequence[Clause]) -> list[Clause]:
    """Premises bind slopes and running forms, carriers what they hold: these come first."""
    order = {"premise": 0, "condition": 1, "traits": 2}
    return sorted(conditions, key=lambda c: (not _sizes(c), order[c.kind], not binds(c)))


def _sizes(clause: Clause) -> bool:
    """Whether a condition looks up an extent, which others compute with."""
    return any(g.table == "ext" for g in clause.goals)


def binds(clause: Clause) -> bool:
    """Whether a condition looks into the e-graph's terms, as that on a carrier does."""
    return any(
        g.table is not None and g.table[:2] in ("op", "r_", "Ru", "Nu") for g in clause.goals
    )
