"""Why a rule did not match: where it came closest in a program's e-graph, and what failed there.

The rule's own egglog query is tried over the saturated e-graph's tables (`query`). The pattern must
match as a whole before conditions are looked at; of all matches the one with the fewest failing
conditions is told. Where no part of the e-graph has the pattern's form, the largest part of it,
from the outside in, is told, with what stands where the next part should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nautile.errors import InputError
from nautile.rules.egglog import print_rule
from nautile.rules.law import Rule
from nautile.terms import Program
from nautile.worker import Worker

from .answers import Answer, Attempt, Failure, Place
from .nearest import Search, ordered
from .places import Places, lines_of
from .query import Database, clauses
from .runs import LIMITS, saturated
from .wording import absent, failure

__all__ = ["Answer", "Attempt", "Failure", "Place", "attempt", "why"]


def why(
    rule: Rule, program: Program, rules: Sequence[Rule], *, worker: Worker | None = None
) -> Answer:
    """Where the rule came closest in the program's e-graph, saturated with `rules` (with or without
    the rule itself).

    Raises InputError for a law that is never applied, SaturationError for unsound rules.
    """
    forms = print_rule(rule, 0)
    if not forms:
        message = f"{rule.name} is a law to check: no pattern of the e-graph has its form"
        raise InputError(message, code="no-pattern")
    own = Worker() if worker is None else None
    try:
        active = worker or own
        assert active is not None
        runs = saturated(program, rules, active, limits=LIMITS, tables=True)
    finally:
        if own is not None:
            own.close()
    lines = lines_of(program, runs)
    number = next((i for i, r in enumerate(rules) if r.name == rule.name), -1)
    matches = sum(run.frozen.matches.get(number, 0) for run in runs)
    stops = {run.frozen.stop for run in runs} - {"saturated"}
    attempts = [
        attempt(printed.text, direction, rule, Database(run.frozen), Places(run, lines, rules))
        for run in runs
        for direction, printed in enumerate(forms)
    ]
    closest = min(attempts, key=_distance)
    stop = ", ".join(sorted(stops)) or "saturated"
    return Answer(program.name, rule.name, rule.text, stop, matches, closest)


def _distance(attempt: Attempt) -> tuple[bool, float, int]:
    """Patterns that match first, then those with few failures, or of which much was found."""
    if attempt.absent is None:
        return False, len(attempt.failures), attempt.direction
    return True, -attempt.found / attempt.parts, attempt.direction


def attempt(text: str, direction: int, rule: Rule, data: Database, places: Places) -> Attempt:
    """The closest that the egglog rule `text`, one direction of `rule`, comes in an e-graph."""
    pattern, *conditions = clauses(text)
    search = Search(data, ordered(conditions))
    search.patterns(pattern.goals)
    if search.best is not None:
        binding, failed = search.best
        failures = tuple(failure(c, binding, rule, places) for c in failed)
        place = _place(places, binding["e"])
        bound, alike = _bound(binding, places), len(search.alike)
        return Attempt(direction, place, bound, failures, alike=alike)
    binding, goal, found = search.furthest
    parts = len(pattern.goals)
    missing = absent(goal, binding, places)
    root = _place(places, binding["e"]) if "e" in binding else None
    return Attempt(direction, root, _bound(binding, places), (), missing, found, parts)


def _place(places: Places, c: int) -> Place:
    return Place(places.text(c), places.line(c), places.free(c), places.known(c), places.makers(c))


def _bound(binding: dict[str, Any], places: Places) -> dict[str, Place | str]:
    """What the law's names and axes stand for."""
    found: dict[str, Place | str] = {}
    for name, value in binding.items():
        if name.startswith("v_"):
            found[name[2:]] = _place(places, value)
        elif name.startswith("x_"):
            found[name[2:]] = places.axes[value].name
    return dict(sorted(found.items()))
