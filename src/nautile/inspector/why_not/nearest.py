"""Which rule would make a missing part, and which of its premises fails first.

The right side of a rule is laid over the missing part: what stands in the place of its names is
known then, and the rule's own query is tried over the e-graph's tables under these bindings (as
`nautile rules why` tries it without any). Of all rules the one that lacks least is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nautile.egraph import encode, job_of
from nautile.egraph.schema import CONSTRUCTORS
from nautile.extract.body import below, inner_terms
from nautile.rules.egglog import STORAGE, print_rule
from nautile.rules.law import Rule
from nautile.terms import (
    MONOIDS,
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    children,
)
from nautile.workbench.nearest import Search, ordered
from nautile.workbench.places import Places
from nautile.workbench.query import Clause, Database, Goal, Tree, clauses, parsed, variables
from nautile.workbench.runs import Saturated
from nautile.workbench.wording import absent, failure

from .inquiry import Inquiry

__all__ = ["Near", "Tables", "nearest_rule"]

_WAYS = 12  # ways in which a right side lies over a part
_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Near:
    """The rule that comes closest to making a term, and what it lacks: conditions of its law with
    the values that refute them, or the part of its pattern that is not there."""

    rule: str
    law: str
    numerics: str
    failures: tuple[tuple[str, str], ...]
    absent: str | None
    score: tuple[Any, ...]

    @property
    def text(self) -> str:
        if self.absent is not None:
            return (
                f"{self.rule} ({self.law}) makes such terms, but its left side lacks {self.absent}"
            )
        if not self.failures:
            return f"{self.rule} ({self.law}) could make it, and was not applied within the budget"
        condition, why = self.failures[0]
        return (
            f"{self.rule} ({self.law}) makes such terms, but this premise fails: {condition}: {why}"
        )

    def as_dict(self) -> dict[str, Any]:
        failed = [{"condition": c, "reason": w} for c, w in self.failures]
        return {"rule": self.rule, "law": self.law, "failures": failed, "absent": self.absent}


class Tables:
    """One region's e-graph with all its tables, and where terms stand in it."""

    def __init__(self, inquiry: Inquiry, number: int) -> None:
        region = inquiry.regions[number]
        encoded = encode(region.outputs)
        job = job_of(encoded, inquiry.laws, inquiry.limits(), tables=True)
        self.run = Saturated(region, encoded, inquiry.worker.frozen(job, inquiry.laws))
        self.places = Places(self.run, {}, inquiry.laws)
        self.data = Database(self.run.frozen)
        self.leaves = {t: i for i, t in enumerate(encoded.leaves)}
        self.axes = {a: i for i, a in enumerate(encoded.axes)}
        self.index = {(n, tuple(args)): c for n, args, c in self.run.frozen.rows}

    def classes(self, root: Term) -> dict[Term, int]:
        """The class of every part of the term that is there."""
        found: dict[Term, int] = {}
        for term in inner_terms([root]):
            row = self.row(term, found)
            if row is not None and (row[0], tuple(row[1:])) in self.index:
                found[term] = self.index[row[0], tuple(row[1:])]
        return found

    def row(self, term: Term, known: Mapping[Term, int]) -> list[Any] | None:
        """The term's outermost row: constructor, then payload and classes; None where a part of it
        is missing."""
        if isinstance(term, Const):
            return _constant(term)
        if isinstance(term, Load):
            return ["Leaf", self.leaves[term]] if term in self.leaves else None
        if isinstance(term, (Running, Before)):
            inner: tuple[Term, ...] = children(term.reduction)
        else:
            inner = below(term)
        if any(t not in known for t in inner):
            return None
        return self._joined(term, [known[t] for t in inner])

    def _joined(self, term: Term, inner: list[int]) -> list[Any] | None:
        match term:
            case Index(axis):
                return ["Ix", self.axes[axis]] if axis in self.axes else None
            case Apply(operation, _):
                return [f"op_{operation}", *inner]
            case Cast(dtype, _):
                return ["Round", STORAGE.index(dtype), *inner]
            case Reduce(monoid, axis, _):
                return [f"r_{monoid}", self.axes[axis], *inner] if axis in self.axes else None
            case Online(axis):
                return self._online("Online", axis, inner)
            case Running(Reduce(monoid, axis, _)) | Before(Reduce(monoid, axis, _)):
                kind = type(term).__name__
                if axis not in self.axes:
                    return None
                return [kind, MONOIDS.index(monoid), self.axes[axis], *inner]
            case Running(Online(axis)) | Before(Online(axis)):
                return self._online(f"{type(term).__name__}Online", axis, inner)
        return None

    def _online(self, kind: str, axis: Axis, inner: list[int]) -> list[Any] | None:
        zero = self.index.get(("Num", (0.0,)))
        if axis not in self.axes or (len(inner) == 2 and zero is None):
            return None
        offset = [] if len(inner) == 3 else [zero]
        return [kind, self.axes[axis], *inner, *offset]


def _constant(term: Const) -> list[Any] | None:
    if isinstance(term.value, bool):
        return ["Truth", int(term.value)]
    return ["Int" if isinstance(term.value, int) else "Num", term.value]


def nearest_rule(
    tables: Tables, term: Term, laws: Sequence[Rule], target: int | None = None
) -> Near | None:
    """The rule that comes closest to making the term's outermost row, all parts of which are there;
    in the class `target`, where that is known. None where no rule makes such a row."""
    known = tables.classes(term)
    row = tables.row(term, known)
    if row is None:
        return None
    found = [
        near
        for rule in laws
        if rule.conclusion is None and rule.is_applied
        for printed in print_rule(rule, 0)
        for near in _attempts(tables, rule, printed.text, row, target)
    ]
    found = [near for near in found if near.score[2] < 0 or near.absent is None]
    return min(found, key=lambda near: near.score, default=None)


def _attempts(
    tables: Tables, rule: Rule, text: str, row: list[Any], target: int | None
) -> Iterator[Near]:
    made = _made(text)
    if not isinstance(made, list) or made[0] != row[0] or len(made) != len(row):
        return
    pattern, *conditions = clauses(text)
    bindings = _laid(tables.data, made, row)
    for known in bindings:
        if target is not None:
            known = {**known, "e": target}
        yield _tried(tables, rule, pattern, conditions, known)


def _made(text: str) -> Tree | None:
    """What an egglog rule puts into its place: the right side of its law."""
    actions = parsed(text)[2]
    lets = {a[1]: a[2] for a in actions if a[0] == "let"}
    for action in actions:
        if action[0] == "union" and action[1] == "e":
            made: Tree = lets.get(str(action[2]), action[2])
            return made
    return None


def _laid(data: Database, made: list[Any], row: list[Any]) -> list[dict[str, Any]]:
    """What the names of a right side stand for where its root is `row`."""
    known: dict[str, Any] = {}
    goals: list[Goal] = []
    for n, (part, value) in enumerate(zip(made[1:], row[1:], strict=True)):
        if isinstance(part, list):
            if part[0] not in CONSTRUCTORS:
                return []
            known[f"r{n}"] = value
            goals += _goals(part, f"r{n}", f"r{n}")
        elif not variables(part):
            if float(part) != value:
                return []
        elif known.setdefault(part, value) != value:
            return []
    found: list[dict[str, Any]] = []
    for binding in _solved(data, goals, known):
        found.append({k: v for k, v in binding.items() if k[:2] in ("v_", "x_")})
        if len(found) >= _WAYS:
            break
    return found


def _goals(tree: list[Any], name: str, prefix: str) -> list[Goal]:
    """A right side's inner part as lookups, from the outside in."""
    columns: list[Tree] = []
    inner: list[Goal] = []
    for n, part in enumerate(tree[1:]):
        if isinstance(part, list) and part[0] in CONSTRUCTORS:
            own = f"{prefix}_{n}"
            columns.append(own)
            inner += _goals(part, own, own)
        else:
            columns.append(f"{prefix}_{n}" if isinstance(part, list) else part)
    return [Goal(str(tree[0]), (*columns, name)), *inner]


def _solved(
    data: Database, goals: Sequence[Goal], known: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if not goals:
        yield known
        return
    for found in data.solve(goals[0], known):
        yield from _solved(data, goals[1:], found)


def _tried(
    tables: Tables,
    rule: Rule,
    pattern: Clause,
    conditions: Sequence[Clause],
    known: dict[str, Any],
) -> Near:
    search = Search(tables.data, ordered(conditions))
    for binding in search.all(pattern.goals, known, 0):
        search.here = None
        search.judge(binding, 0, ())
        search.compare()
        if search.steps > 20_000:
            break
    if search.best is not None:
        binding, failed = search.best
        told = [failure(c, binding, rule, tables.places) for c in failed]
        failures = tuple((f.condition, f.reason) for f in told if f.tried)[:_FAILURES]
        score = (0, len(failed), 0.0, rule.name)
        return Near(rule.name, rule.text, rule.numerics, failures, None, score)
    binding, goal, found = search.furthest
    missing = absent(goal, binding, tables.places)
    share = found / max(1, len(pattern.goals))
    return Near(rule.name, rule.text, rule.numerics, (), missing, (1, 0, -share, rule.name))
