"""Saturation with the rules applied one by one, and a tally of what each did.

The schedule is that of `engine`: folding, normal laws, analyses and facts in rounds, then directed
rules, then two-way rules under back-off. Here every rule is a step of its own, so that its matches,
the e-nodes that it adds and its time are its own; analyses run between rounds as ever. What is
found is the same up to the order in which it is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from .engine import Run

__all__ = ["Alone"]

_NORMAL_ROUNDS = 16


class Alone(Run):
    """One saturation, rule by rule."""

    def conclude(self, facts: bool) -> tuple[bool, dict[str, int]]:
        changed, _ = self.step(self.fold)
        matches: dict[str, int] = {}
        changed |= self.drop(matches)
        if facts:
            changed |= self.each((r.name for r in self.job.rules if r.fact), matches)
        return changed, matches

    def settle(self) -> None:
        self.conclude(facts=False)

    def drop(self, matches: dict[str, int]) -> bool:
        """Normal laws until they find nothing, then analyses."""
        changed = False
        for _ in range(_NORMAL_ROUNDS):
            if not self.each((r.name for r in self.job.rules if r.normal), matches):
                break
            changed = True
        return changed | self.step("(saturate analysis)")[0]

    def apply(self, names: list[str]) -> tuple[bool, dict[str, int]]:
        matches: dict[str, int] = {}
        changed = self.each(names, matches)
        self.count(matches)
        if changed:
            self.guard()
        return changed, matches

    def each(self, names: Iterable[str], matches: dict[str, int]) -> bool:
        """Apply rules in turn; whether anything changed. Adds to `matches` and the tally."""
        changed, rows = False, self.engine.rows()
        for name in names:
            if self.laws[name] in self.job.skip:
                continue
            start = time.perf_counter()
            updated, found = self.step(name)
            seconds, changed = time.perf_counter() - start, changed | updated
            count, before, rows = found.get(name, 0), rows, self.engine.rows()
            if count or updated or seconds > 1e-3:
                iteration = len(self.growth) + 1
                self.tally.append((iteration, self.laws[name], count, rows - before, seconds))
            if count:
                matches[name] = matches.get(name, 0) + count
        return changed
