"""A law made concrete: its names bound to small tensors, both of its sides as terms.

Every name becomes a load over some of the axes that it may depend on, so that a missing
`j not in a` shows; carriers that no condition defines become a maximum, a minimum or a mean over a
stream; the running form that a premise speaks of becomes the term that the premise's equation
defines. Two sides that differ anywhere refute the law.
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

from .carriers import carriers_of, lowered, moment_of
from .egglog import booleans
from .law import (
    Call,
    Carrier,
    Fold,
    Free,
    Kind,
    Moment,
    Name,
    NotFree,
    Number,
    Pattern,
    Relation,
    Round,
    Rule,
    Sign,
    Size,
    Stream,
    Streamed,
    axes_of,
    names_of,
    relation_parts,
)

__all__ = ["Instance", "Unsupported", "instantiate", "patterns_of"]

OUTER = ("outer_p", "outer_q")
_STREAM = "stream"
_INEXACT = 0.7  # hardly any product with it is exact


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


def instantiate(rule: Rule, rng: np.random.Generator, *, forward: bool = False) -> Instance:
    """A random instance of the law: extents 1 to 4, names over random subsets of the axes. With
    `forward`, running forms are always made of their subjects, so that they follow the running
    value wherever that is taken; else a tame one is a tensor, and of ordinary size."""
    return _Builder(rule, rng, forward).build()


class _Builder:
    def __init__(self, rule: Rule, rng: np.random.Generator, forward: bool) -> None:
        self.rule, self.rng, self.forward = rule, rng, forward
        self.patterns = patterns_of(rule)
        names = [*dict.fromkeys(a for p in self.patterns for a in axes_of(p)), *OUTER, _STREAM]
        self.extent = {n: Axis(n, 0, int(rng.integers(1, 5))) for n in names}
        self.defined = carriers_of(rule)
        self.known = {(c.axis, c.name) for c in rule.conditions if isinstance(c, Free)}
        self.barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
        self.kinds = self._kinds()
        self.loads: dict[str, Load] = {}
        self.bound: dict[str, Term] = {}
        self.drawn: dict[str, Pattern] = {}
        self.positive: set[str] = set()
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
        signs = {name: [">"] for name in self.positive}
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
        if premise.relation == "drop":
            self._dropped(premise, subject.name, running.name)
            return
        tame = not self.forward and Kind("tame", running.name) in self.rule.conditions
        known, other = (running, subject) if tame else (subject, running)
        term = self.term(known)
        if not tame:
            # The subject has no value where its carrier has none (or is 0, of powers).
            powers = premise.relation == "power"
            if (
                powers
                and isinstance(premise.carrier, Name)
                and premise.carrier.name in self.defined
            ):
                # A running form is tame: it may ask for a largest magnitude that is not 0.
                self.positive |= set(names_of(self.defined[premise.carrier.name]))
            final, _ = self._carrier(premise.carrier, powers)
            own = apply("div" if powers else "sub", final, final)
            term = self.bound[known.name] = apply("mul" if powers else "add", term, own)
        self.bound[other.name] = self._moved(premise, term, back=tame)

    def _dropped(self, premise: Relation, subject: str, rest: str) -> None:
        """A subject k (x - m), whose rest without m is k x, as facts make them: the difference may
        be small beside its parts."""
        slope, part = self.term(premise.slope), self.term(premise.carrier)
        other: Term = self._load(f"{rest}_part", never={a for a, n in self.barred if n == rest})
        other = apply("sub", other, Const(300.0))  # 1000 * 0.7 and 1000 - 300 are near
        self.bound[subject] = apply("mul", slope, apply("sub", other, part))
        self.bound[rest] = apply("mul", slope, other)

    def _equation(self, relation: Relation) -> tuple[Term, Term]:
        return self._moved(relation, self.term(relation.subject)), self.term(relation.running)

    def _moved(self, relation: Relation, subject: Term, back: bool = False) -> Term:
        """The subject with its carrier's final value replaced by the running one; or (`back`) the
        other way, which keeps a tame running form of ordinary size."""
        slope = self.term(relation.slope)
        if relation.relation == "drop":
            part = apply("mul", slope, self.term(relation.carrier))
            return apply("sub" if back else "add", subject, part)
        final, running = self._carrier(relation.carrier, relation.relation == "power")
        ends = (final, running) if back else (running, final)
        if relation.relation == "power":
            return apply("mul", subject, apply("pow", apply("div", *ends), slope))
        step = apply("sub", *ends)
        if relation.relation == "bend":
            return self._bent(relation, subject, step, back)
        by = apply("mul", slope, step)
        if relation.relation == "shift":
            return apply("add", subject, by)
        return apply("mul", subject, apply("exp", by))

    def _bent(self, relation: Relation, subject: Term, step: Term, back: bool) -> Term:
        """e - 2 q (mu - m) - w (mu - m)^2, or the other way where the step goes back."""
        assert relation.centre is not None
        weight, lean = self.term(relation.slope), self.term(relation.centre)
        first = apply("mul", apply("mul", Const(2.0), lean), step)
        second = apply("mul", weight, apply("mul", step, step))
        if back:
            return apply("add", apply("sub", subject, first), second)
        return apply("sub", apply("sub", subject, first), second)

    def _carrier(self, pattern: Pattern, positive: bool = False) -> tuple[Term, Term]:
        """A carrier's final and running value."""
        if isinstance(pattern, Name):
            pattern = self.defined.get(pattern.name) or self._drawn(pattern.name, positive)
        pattern = lowered(pattern, self.defined)
        return self.term(pattern), self.term(moment_of(pattern, "running"))

    def _drawn(self, name: str, positive: bool) -> Pattern:
        """Some carrier for a name that no condition defines."""
        if name not in self.drawn:
            free = [a for a in self.extent if (a, name) not in self.barred]
            stream, body = str(self.rng.choice(free)), f"{name}_body"
            barred = {a for a in self.extent if a not in free}
            self.bound[body] = self._load(body, {stream}, barred)
            if positive:
                self.positive.add(body)
            folds = {m: Fold(m, stream, Name(body)) for m in ("max", "min", "sum")}
            mean = Call("div", (folds["sum"], Size(stream)))
            kinds: list[Pattern] = [folds["max"], folds["min"], mean]
            self.drawn[name] = kinds[self.rng.integers(len(kinds))]
        return self.drawn[name]

    def _load(self, name: str, always: Iterable[str] = (), never: Iterable[str] = ()) -> Load:
        """A tensor for a name, over a random subset of the axes that it may depend on."""
        always = {*always, *(a for a, n in self.known if n == name)}
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
        if name in self.defined or name in self.drawn:
            return self._carrier(Name(name))[0]
        barred = {a for a, n in self.barred if n == name}
        if Kind("finite", name) in self.rule.conditions:  # a constant
            barred = set(self.extent)
        twin = next((t for n, t in self.loads.items() if self._may_alias(n, name)), None)
        if self.aliased and twin is not None:
            self.bound[name] = twin
            return twin
        self.bound[name] = self._load(name, never=barred)
        if Kind("rough", name) in self.rule.conditions:
            self.bound[name] = apply("mul", self.bound[name], Const(_INEXACT))
        return self.bound[name]

    def _may_alias(self, other: str, name: str) -> bool:
        same = self.kinds.get(other) == self.kinds[name]
        free = {a.family for a in self.loads[other].free}
        guarded = {c.name for c in self.rule.conditions if isinstance(c, (Sign, Kind))}
        return same and name not in guarded and not any((a, name) in self.barred for a in free)

    def term(self, pattern: Pattern) -> Term:
        """The term of a pattern; binders keep their axes, as the law means them."""
        return self._term(lowered(pattern, self.defined))

    def _term(self, pattern: Pattern) -> Term:
        match pattern:
            case Name(name):
                return self._name(name)
            case Number(value):
                return Const(value)
            case Size(axis):
                return Const(self.extent[axis].extent)
            case Call(operation, arguments):
                return apply(operation, *map(self._term, arguments))
            case Round(dtype, argument):
                return Cast(dtype, self._term(argument))
            case Fold(monoid, axis, body):
                return Reduce(monoid, self.extent[axis], self._term(body))
            case Stream(moment, monoid, axis, body):
                return _at(moment, Reduce(monoid, self.extent[axis], self._term(body)))
            case Moment(moment, Name(name)) if moment == "running":
                return self._carrier(Name(name))[1]
            case Moment(moment, of):
                return _at(moment, self._term(of))
            case Streamed(axis, repair, offset, body):
                parts = (self._term(p) for p in (repair, body, offset))
                return Online(self.extent[axis], *parts)
        raise Unsupported(f"no term for {pattern}")


def _at(moment: str, reduction: Term) -> Term:
    return Running(reduction) if moment == "running" else Before(reduction)
