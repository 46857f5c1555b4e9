"""Why a rule did not match: where it came closest in a program's e-graph, and what failed there.

```
Answer  ::= program, region's stop, matches of the rule, closest: Attempt | nothing
Attempt ::= place, bindings, failures, absent        one direction of the rule, one place
Place   ::= term, line, the rules that made it
Failure ::= the condition's text, why
```

The rule's own egglog query is tried over the saturated e-graph's tables (`query`). The pattern must
match as a whole before conditions are looked at; of all matches the one with the fewest failing
conditions is told. Where no part of the e-graph has the pattern's form, the largest part of it,
from the outside in, is told, with what stands where the next part should be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nautile.egraph.schema import LEAVES
from nautile.errors import InputError
from nautile.rules.egglog import TRAITS, TYPES, print_rule
from nautile.rules.law import Rule
from nautile.terms import Program
from nautile.worker import Worker

from .places import Places, lines_of
from .query import ANALYSES, RELATIONS, Clause, Database, Goal, clauses, variables
from .runs import LIMITS, saturated

__all__ = ["Answer", "Attempt", "Failure", "Place", "attempt", "why"]

_MATCHES = 2000  # matches of a pattern that are looked at
_WIDTH = 160  # characters of a term inside a sentence
_STEPS = 50_000  # steps of the search in one direction
_WORDS = {"pos": "> 0", "neg": "< 0", "nonneg": ">= 0", "nonpos": "<= 0", "nonzero": "!= 0"}


@dataclass(frozen=True, slots=True)
class Place:
    """A class: a term of it, its line in the source (None where rules made it), the axes that it
    depends on, what is known of it, and the rules that put something there."""

    term: str
    line: int | None
    free: tuple[str, ...]
    known: tuple[str, ...]
    makers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition that does not hold, as the law spells it, and the values that refute it."""

    condition: str
    reason: str
    tried: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """The closest that one direction of a rule came. `absent` tells the part of the pattern that
    was not found, where the pattern as a whole did not match (`found` of its `parts` did); `alike`
    is the number of places where it comes as close. A failure that was not `tried` speaks of names
    that an earlier one should have bound."""

    direction: int
    place: Place | None
    bindings: dict[str, Place | str]
    failures: tuple[Failure, ...]
    absent: str | None = None
    found: int = 0
    parts: int = 0
    alike: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a rule in one program. `matches` counts applications while saturating, of the
    rule as it was allowed; `closest` is the closest attempt at the end."""

    program: str
    rule: str
    law: str
    stop: str
    matches: int
    closest: Attempt

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `nautile rules why --json`."""
        from dataclasses import asdict

        return asdict(self)


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
    search = _Search(data, _ordered(conditions))
    search.patterns(pattern.goals)
    if search.best is not None:
        binding, failed = search.best
        failures = tuple(_failure(c, binding, rule, places) for c in failed)
        place = _place(places, binding["e"])
        bound, alike = _bound(binding, places), len(search.alike)
        return Attempt(direction, place, bound, failures, alike=alike)
    binding, goal, found = search.furthest
    parts = len(pattern.goals)
    absent = _absent(goal, binding, places)
    root = _place(places, binding["e"]) if "e" in binding else None
    return Attempt(direction, root, _bound(binding, places), (), absent, found, parts)


def _ordered(conditions: Sequence[Clause]) -> list[Clause]:
    """Premises bind slopes and running forms, carriers what they hold: these come first."""
    order = {"premise": 0, "condition": 1, "traits": 2}
    return sorted(conditions, key=lambda c: (not _sizes(c), order[c.kind], not _binds(c)))


def _sizes(clause: Clause) -> bool:
    """Whether a condition looks up an extent, which others compute with."""
    return any(g.table == "ext" for g in clause.goals)


def _binds(clause: Clause) -> bool:
    """Whether a condition looks into the e-graph's terms, as that on a carrier does."""
    return any(
        g.table is not None and g.table[:2] in ("op", "r_", "Ru", "Nu") for g in clause.goals
    )


class _Search:
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
    return not _unbound(clause, known)


def _unbound(clause: Clause, known: dict[str, Any]) -> set[str]:
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


def _failure(clause: Clause, known: dict[str, Any], rule: Rule, places: Places) -> Failure:
    if clause.kind == "traits":
        return _trait_failure(clause, known, places)
    unbound = _unbound(clause, known)
    if unbound:
        names = ", ".join(sorted(v[2:] for v in unbound))
        return Failure(_label(clause, rule), f"nothing binds {names}", tried=False)
    if clause.kind == "premise":
        return Failure(_label(clause, rule), _no_fact(clause, known, places))
    if _binds(clause):
        return Failure(_label(clause, rule), _no_term(clause, known, places))
    axes = {n: f"x_{n}" for n in sorted(clause.names) if f"x_{n}" in known}
    reasons = [f"{n} is {places.axes[known[v]].name}" for n, v in axes.items()]
    for name in sorted(n for n in clause.names if f"v_{n}" in known):
        c = known[f"v_{name}"]
        free = ", ".join(places.free(c)) or "nothing"
        reasons.append(f"{name} = {_short(places.text(c))} depends on {free}")
    return Failure(_label(clause, rule), "; ".join(reasons))


def _no_fact(clause: Clause, known: dict[str, Any], places: Places) -> str:
    """Which subject no fact is about, or none with this carrier."""
    goal = next(g for g in clause.goals if g.table in RELATIONS)
    subject = known.get(str(goal.columns[0]))
    if subject is None:
        return f"no {goal.table} is known of such a term"
    rows = [r for r in places.run.frozen.tables[str(goal.table)] if r[0] == subject]
    text = _short(places.text(subject))
    if not rows:
        return f"no {goal.table} is known of {text}"
    carriers = ", ".join(dict.fromkeys(_short(places.text(r[1])) for r in rows))
    return f"{goal.table} of {text} is known in {carriers} alone"


def _no_term(clause: Clause, known: dict[str, Any], places: Places) -> str:
    """Which term has not the form that a condition asks for."""
    c = known.get(str(clause.goals[0].columns[-1]))
    return "no such term is there" if c is None else f"{_short(places.text(c))} is no such term"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]} ..."


def _trait_failure(clause: Clause, known: dict[str, Any], places: Places) -> Failure:
    """Which of the traits that a term must have it lacks, in words."""
    (variable,) = {v for g in clause.goals for c in g.columns for v in variables(c)
                   if v == "e" or v.startswith("v_")}  # fmt: skip
    name = "the left side" if variable == "e" else variable[2:]
    c = known.get(variable)
    if c is None:
        return Failure(f"what {name} is", f"nothing binds {name}", tried=False)
    mask, value = _wanted(clause)
    bits = places.traits.get(c, 0)
    words = list(_lacks(name, (bits ^ value) & mask, value))
    known_words = ", ".join(places.known(c))
    return Failure(" and ".join(words), f"of {_short(places.text(c))} is known: {known_words}")


def _wanted(clause: Clause) -> tuple[int, int]:
    """Mask and value of `(= value (& mask traits))`."""
    for goal in clause.goals:
        if goal.table is None:
            value, masked = goal.columns
            return int(masked[1]), int(str(value))
    return 0, 0


def _lacks(name: str, wrong: int, value: int) -> Iterator[str]:
    for i, kind in enumerate(TYPES):
        if wrong >> i & 1:
            integral = "is no float" if kind == "i64" else f"is {kind} or narrower"
            yield f"{name} is {kind} or narrower" if value >> i & 1 else f"not: {name} {integral}"
    for trait, bit in TRAITS.items():
        if wrong & bit:
            word = f"{name} {_WORDS[trait]}" if trait in _WORDS else f"{trait}({name})"
            yield word if value & bit else f"not {word}"


def _label(clause: Clause, rule: Rule) -> str:
    """The condition of the law's text that speaks of the same names, else the egglog text."""
    best, score = clause.text, 0.0
    for text, names in _conditions(rule.text):
        same = len(names & clause.names) / max(1, len(names | clause.names))
        if same > score:
            best, score = text, same
    if score < 1 and len(clause.goals) == 1 and clause.goals[0].compare == "!=":
        return f"{' and '.join(sorted(clause.names))} are different axes"
    return best if score >= 0.5 else clause.text


def _conditions(law: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The conditions of a law's text, with the names in them."""
    tree = ast.parse(law, mode="eval").body
    for node in tree.elts[1:] if isinstance(tree, ast.Tuple) else ():
        parts = node.values if isinstance(node, ast.BoolOp) else [node]
        for part in parts:
            called = {id(n.func) for n in ast.walk(part) if isinstance(n, ast.Call)}
            called |= {id(n.value) for n in ast.walk(part) if isinstance(n, ast.Subscript)}
            names = {
                n.id for n in ast.walk(part) if isinstance(n, ast.Name) and id(n) not in called
            }
            yield ast.unparse(part), frozenset(names)


def _absent(goal: Goal | None, binding: dict[str, Any], places: Places) -> str:
    """The part of the pattern that was looked for in vain, and what stands in its place."""
    if goal is None or goal.table is None:
        return "nothing of the pattern"
    name = _shown(goal)
    where = goal.columns[-1]
    if isinstance(where, str) and where in binding:
        there = ", ".join(places.heads(binding[where]))
        return f"{name} in place of {places.text(binding[where])}, which is {there}"
    return f"{name} anywhere"


def _shown(goal: Goal) -> str:
    """A row of a table as the law would spell it."""
    assert goal.table is not None
    inner = ["..." if not isinstance(c, str) or c[:2] not in ("v_", "x_") else c[2:]
             for c in goal.columns[:-1]]  # fmt: skip
    if goal.table.startswith("r_"):
        return f"{goal.table[2:]}[{inner[0]}]({inner[1]})"
    if goal.table in ("Num", "Int", "Truth"):
        return f"the number {goal.columns[0]}"
    return f"{goal.table.removeprefix('op_').lower()}({', '.join(inner)})"
