"""A law made concrete: its names bound to small tensors, both of its sides as terms.

Every name becomes a load over some of the axes that it may depend on, so that a missing
`j not in a` shows; carriers become maxima over a stream; the running form that a premise speaks of
becomes the term that the premise's equation defines. Two sides that differ anywhere refute the law.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    apply,
)

from .egglog import booleans
from .law import (
    Call,
    Carrier,
    Fold,
    Kind,
    Name,
    NotFree,
    Number,
    Pattern,
    Relation,
    Rescaled,
    Round,
    Rule,
    Sign,
    Size,
    Stream,
    axes_of,
    names_of,
    relation_parts,
)

__all__ = ["Instance", "Unsupported", "instantiate", "patterns_of"]

OUTER = ("outer_p", "outer_q")
_STREAM = "stream"


class Unsupported(Exception):
    """The law has a form that no instance is known for."""


@dataclass(slots=True)
class Instance:
    """Left and right side as terms, the axes to compare over, and what each name may hold."""

    left: Term
    right: Term
    axes: tuple[Axis, ...]
    loads: dict[str, Load]
    kinds: dict[str, str]  # float boolean integer
    signs: dict[str, list[str]] = field(default_factory=dict)
    finite: frozenset[str] = frozenset()


def patterns_of(rule: Rule) -> list[Pattern]:
    """Every pattern that a law mentions."""
    sides = [p for p in (rule.left, rule.right) if p is not None]
    relations = [*rule.premises, *([rule.conclusion] if rule.conclusion else [])]
    sides += [p for r in relations for p in relation_parts(r)]
    return sides + [c.reduction for c in rule.conditions if isinstance(c, Carrier)]


def instantiate(rule: Rule, rng: np.random.Generator) -> Instance:
    """A random instance of the law: extents 1 to 4, names over random subsets of the axes."""
    return _Builder(rule, rng).build()


class _Builder:
    def __init__(self, rule: Rule, rng: np.random.Generator) -> None:
        self.rule, self.rng = rule, rng
        self.patterns = patterns_of(rule)
        names = [*dict.fromkeys(a for p in self.patterns for a in axes_of(p)), *OUTER, _STREAM]
        self.extent = {n: Axis(n, 0, int(rng.integers(1, 5))) for n in names}
        self.barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
        self.kinds = self._kinds()
        self.loads: dict[str, Load] = {}
        self.bound: dict[str, Term] = {}
        self.carriers: dict[str, Reduce] = {}
        self.aliased = rng.random() < 0.15

    def build(self) -> Instance:
        for premise in self.rule.premises:
            self._premise(premise)
        if self.rule.conclusion is not None:
            left, right = self._equation(self.rule.conclusion)
        else:
            assert self.rule.left is not None
            assert self.rule.right is not None
            left, right = self.term(self.rule.left), self.term(self.rule.right)
        axes = tuple(sorted(left.free | right.free))
        conditions = self.rule.conditions
        signs: dict[str, list[str]] = {}
        for c in conditions:
            if isinstance(c, Sign):
                signs.setdefault(c.name, []).append(c.relation)
        finite = frozenset(c.name for c in conditions if isinstance(c, Kind) and c.kind == "finite")
        return Instance(left, right, axes, self.loads, self.kinds, signs, finite)

    def _kinds(self) -> dict[str, str]:
        kinds = dict.fromkeys((n for p in self.patterns for n in names_of(p)), "float")
        kinds |= dict.fromkeys((n for p in self.patterns for n in booleans(p)), "boolean")
        for c in self.rule.conditions:
            if isinstance(c, Kind) and c.kind in ("integer", "boolean"):
                kinds[c.name] = c.kind
        return kinds

    def _premise(self, premise: Relation) -> None:
        """Bind the running form to what the premise's equation says it is."""
        subject, running = premise.subject, premise.running
        if not isinstance(subject, Name) or not isinstance(running, Name):
            raise Unsupported("a premise must speak of names")
        tame = Kind("tame", running.name) in self.rule.conditions
        known, other = (running, subject) if tame else (subject, running)
        self.bound[other.name] = self._moved(premise, self.term(known), back=tame)

    def _equation(self, relation: Relation) -> tuple[Term, Term]:
        return self._moved(relation, self.term(relation.subject)), self.term(relation.running)

    def _moved(self, relation: Relation, subject: Term, back: bool = False) -> Term:
        """The subject with its carrier's final value replaced by the running one; or (`back`) the
        other way, which keeps a tame running form of ordinary size."""
        carrier = self._carrier(relation.carrier)
        ends = (carrier, Running(carrier)) if back else (Running(carrier), carrier)
        step = apply("sub", *ends)
        by = apply("mul", self.term(relation.slope), step)
        if relation.relation == "shift":
            return apply("add", subject, by)
        return apply("mul", subject, apply("exp", by))

    def _carrier(self, pattern: Pattern) -> Reduce:
        if isinstance(pattern, Fold):
            term = self.term(pattern)
            assert isinstance(term, Reduce)
            return term
        if not isinstance(pattern, Name):
            raise Unsupported("a carrier is a name or a reduction")
        if pattern.name not in self.carriers:
            self.carriers[pattern.name] = self._new_carrier(pattern.name)
        return self.carriers[pattern.name]

    def _new_carrier(self, name: str) -> Reduce:
        for condition in self.rule.conditions:
            if isinstance(condition, Carrier) and condition.name == name:
                return self._carrier(condition.reduction)
        free = [a for a in self.extent if (a, name) not in self.barred]
        stream = str(self.rng.choice(free))
        body = self._load(f"{name}_body", {stream}, {a for a in self.extent if a not in free})
        monoid = str(self.rng.choice(["max", "min"]))
        return Reduce(monoid, self.extent[stream], body)

    def _load(self, name: str, always: Iterable[str] = (), never: Iterable[str] = ()) -> Load:
        """A tensor for a name, over a random subset of the axes that it may depend on."""
        always, never = set(always), set(never) | {_STREAM} - set(always)
        axes = [
            axis
            for n, axis in self.extent.items()
            if n in always or (n not in never and self.rng.random() < (0.4 if n in OUTER else 0.75))
        ]
        kind = self.kinds.get(name, "float")
        dtype = {"boolean": "bool", "integer": "i64"}.get(kind, "f32")
        buffer = Buffer(name, tuple(a.extent for a in axes), dtype)
        return self.loads.setdefault(name, Load(buffer, tuple(Index(a) for a in axes)))

    def _name(self, name: str) -> Term:
        if name in self.bound:
            return self.bound[name]
        if any(isinstance(c, Carrier) and c.name == name for c in self.rule.conditions):
            return self._carrier(Name(name))
        barred = {a for a, n in self.barred if n == name}
        twin = next((t for n, t in self.loads.items() if self._may_alias(n, name)), None)
        if self.aliased and twin is not None:
            self.bound[name] = twin
            return twin
        self.bound[name] = self._load(name, never=barred)
        return self.bound[name]

    def _may_alias(self, other: str, name: str) -> bool:
        same = self.kinds.get(other) == self.kinds[name]
        free = {a.family for a in self.loads[other].free}
        guarded = {c.name for c in self.rule.conditions if isinstance(c, (Sign, Kind))}
        return same and name not in guarded and not any((a, name) in self.barred for a in free)

    def term(self, pattern: Pattern) -> Term:
        """The term of a pattern; binders keep their axes, as the law means them."""
        match pattern:
            case Name(name):
                return self._name(name)
            case Number(value):
                return Const(value)
            case Size(axis):
                return Const(self.extent[axis].extent)
            case Call(operation, arguments):
                return apply(operation, *map(self.term, arguments))
            case Round(dtype, argument):
                return Cast(dtype, self.term(argument))
            case Fold(monoid, axis, body):
                return Reduce(monoid, self.extent[axis], self.term(body))
            case Stream(moment, monoid, axis, body):
                whole = Reduce(monoid, self.extent[axis], self.term(body))
                return Running(whole) if moment == "running" else Before(whole)
            case Rescaled(axis, carrier, slope, body):
                repair = _repair(self._carrier(Name(carrier)), self.term(slope))
                return Online(self.extent[axis], repair, self.term(body))
        raise Unsupported(f"no term for {pattern}")


def _repair(carrier: Reduce, slope: Term) -> Term:
    old, new = Before(carrier), Running(carrier)
    step = apply("where", apply("eq", old, new), Const(0.0), apply("sub", old, new))
    return apply("exp", apply("mul", apply("neg", slope), step))
