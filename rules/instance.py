"""A law made concrete: its names bound to small tensors, both of its sides as terms.

Every name becomes a load over some of the axes that it may depend on, so that a missing
`j not in a` shows; carriers that no condition defines become a maximum, a minimum or a mean over a
stream; the running form that a premise speaks of becomes the term that the premise's equation
defines. Two sides that differ anywhere refute the law.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

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
from .guards import constants
from .law import (
    Access,
    Bound,
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
    Position,
    Relation,
    Round,
    Rule,
    Sign,
    Size,
    Stream,
    Streamed,
    axes_of,
    names_of,
    parts,
    relation_parts,
)
from .setting import Setting, Source, Unsupported, extents_of, made_extents

__all__ = [
    "Instance",
    "Unsupported",
    "axis_names",
    "instance_of",
    "instantiate",
    "patterns_of",
]

OUTER = ("outer_p", "outer_q")
STREAM = "stream"
_TYPED = {
    "integer": "integer", "i32": "integer", "i64": "integer", "boolean": "boolean",
    "bool": "boolean", "f64": "double",
}  # fmt: skip
_INEXACT = 0.7  # hardly any product with it is exact


@dataclass(slots=True)
class Instance:
    """Left and right side as terms, the axes to compare over, and what each name may hold."""

    rule: Rule
    setting: Setting
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


def instantiate(
    rule: Rule, source: Source, turn: int | None = None, *, forward: bool = False
) -> Instance:
    """An instance of the law by choices of `source`: extents 1 to 4 and larger ones, names over
    subsets of the axes. With `forward`, running forms are always made of their subjects, so that
    they follow the running value wherever that is taken; else a tame one is a tensor, and of
    ordinary size.

    Raises Unsupported where no instance is known for the law's form."""
    extents = extents_of(rule, axis_names(rule), source, turn)
    setting = Setting(source, extents, aliased=source.chance(0.15))
    return _Builder(rule, setting, forward).build()


def instance_of(rule: Rule, setting: Setting, *, forward: bool = False) -> Instance:
    """The instance that was made by these choices."""
    made = made_extents(rule, setting.extents) if rule.extents else {}
    whole = replace(setting, extents=setting.extents | made)
    return _Builder(rule, whole, forward).build()


def axis_names(rule: Rule) -> list[str]:
    """The law's axes, two more that its names may depend on, and one for streams."""
    own = dict.fromkeys(a for p in patterns_of(rule) for a in axes_of(p))
    formal = [
        a for p in patterns_of(rule) for q in parts(p) if isinstance(q, Access) for a in q.axes
    ]
    return [*dict.fromkeys([*own, *formal]), *OUTER, STREAM]


class _Builder:
    def __init__(self, rule: Rule, setting: Setting, forward: bool) -> None:
        self.rule, self.setting, self.forward = rule, setting, forward
        self.patterns = patterns_of(rule)
        more = (n for n in setting.extents if not n[0].isupper())
        names = dict.fromkeys([*axis_names(rule), *more])
        self.extent = {n: Axis(n, 0, setting.extents[n]) for n in names}
        self.defined = carriers_of(rule)
        self.known = {(c.axis, c.name) for c in rule.conditions if isinstance(c, Free)}
        self.barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
        self.kinds = self._kinds()
        self.constants = constants(rule)
        accesses = [p for s in self.patterns for p in parts(s) if isinstance(p, Access)]
        self.accessed = {p.name for p in accesses}
        self.loads: dict[str, Load] = {}
        self.bound: dict[str, Term] = {}
        self.drawn: dict[str, Pattern] = {}
        self.positive: set[str] = set()

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
        return Instance(
            self.rule, self.setting, left, right, axes, self.loads, self.kinds, signs, finite
        )

    def _kinds(self) -> dict[str, str]:
        kinds = dict.fromkeys((n for p in self.patterns for n in names_of(p)), "float")
        kinds |= dict.fromkeys((n for p in self.patterns for n in booleans(p)), "boolean")
        for c in self.rule.conditions:
            if isinstance(c, Kind) and c.kind in _TYPED:
                kinds[c.name] = _TYPED[c.kind]
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
        if not tame and self.forward:
            # Blocks go by the source: the subject has no value where its carrier has none (or is
            # 0, of powers). One by one, a running form that nothing keeps tame may have no value
            # where the subject does.
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
        if isinstance(premise.carrier, Name) and (
            Kind("rough", premise.carrier.name) in self.rule.conditions
        ):
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

    def _is_carrier(self, name: str) -> bool:
        """Whether a name is a carrier by a condition, or one drawn for a name that has none."""
        return name in self.defined or name in self.drawn or name not in self.bound

    def _carrier(
        self, pattern: Pattern, positive: bool = False, moment: str = "running"
    ) -> tuple[Term, Term]:
        """A carrier's final value, and what it is at a moment."""
        if isinstance(pattern, Name):
            pattern = self.defined.get(pattern.name) or self._drawn(pattern.name, positive)
        pattern = lowered(pattern, self.defined)
        return self.term(pattern), self.term(moment_of(pattern, moment))

    def _drawn(self, name: str, positive: bool) -> Pattern:
        """Some carrier for a name that no condition defines."""
        if name not in self.drawn:
            free = [a for a in self.extent if (a, name) not in self.barred]
            kind, stream = self.setting.carrier(name, free)
            body = f"{name}_body"
            barred = {a for a in self.extent if a not in free}
            self.bound[body] = self._load(body, {stream}, barred)
            if positive:
                self.positive.add(body)
            folds = {m: Fold(m, stream, Name(body)) for m in ("max", "min", "sum")}
            mean = Call("div", (folds["sum"], Size(stream)))
            self.drawn[name] = mean if kind == "mean" else folds[kind]
        return self.drawn[name]

    def _load(self, name: str, always: Iterable[str] = (), never: Iterable[str] = ()) -> Load:
        """A tensor for a name, over a random subset of the axes that it may depend on."""
        always = {*always, *(a for a, n in self.known if n == name)}
        always, never = set(always), set(never) | {STREAM} - set(always)
        likely = {
            n: 1.0 if n in always else 0.4 if n in OUTER else 0.75
            for n in self.extent
            if n in always or n not in never
        }
        chosen = self.setting.depends(name, likely)
        axes = [axis for n, axis in self.extent.items() if n in chosen]
        kind = self.kinds.get(name, "float")
        dtype = {"boolean": "bool", "integer": "i64", "double": "f64"}.get(kind, "f32")
        buffer = Buffer(name, tuple(a.extent for a in axes), dtype)
        return self.loads.setdefault(name, Load(buffer, tuple(Index(a) for a in axes)))

    def _name(self, name: str) -> Term:
        if name in self.bound:
            return self.bound[name]
        if name[0].isupper():
            return Const(self.setting.extents[name])
        if name in self.defined or name in self.drawn:
            return self._carrier(Name(name))[0]
        barred = {a for a, n in self.barred if n == name}
        if name in self.constants and self.kinds.get(name) != "integer":
            barred = set(self.extent)
        twin = self._twin(name)
        if twin is not None:
            self.bound[name] = self.loads[twin]
            return self.bound[name]
        self.bound[name] = self._load(name, never=barred)
        if Kind("rough", name) in self.rule.conditions:
            self.bound[name] = apply("mul", self.bound[name], Const(_INEXACT))
        return self.bound[name]

    def _twin(self, name: str) -> str | None:
        """The name whose term this one shares, where the setting says that terms are shared."""
        if self.setting.aliased and name not in self.setting.axes:
            twin = next((n for n in self.loads if self._may_alias(n, name)), None)
            if twin is not None:
                self.setting.twins.setdefault(name, twin)
        return self.setting.twins.get(name)

    def _may_alias(self, other: str, name: str) -> bool:
        same = self.kinds.get(other) == self.kinds[name]
        free = {a.family for a in self.loads[other].free}
        guarded = {c.name for c in self.rule.conditions if isinstance(c, (Sign, Kind, Bound))}
        guarded |= {*self.constants, *self.accessed}
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
            case Position(axis):
                return Index(self.extent[axis])
            case Access(name, axes, indices):
                return self._moved_to(name, axes, tuple(map(self._term, indices)))
            case Call(operation, arguments):
                return apply(operation, *map(self._term, arguments))
            case Round(dtype, argument):
                return Cast(dtype, self._term(argument))
            case Fold(monoid, axis, body):
                return Reduce(monoid, self.extent[axis], self._term(body))
            case Stream(moment, monoid, axis, body):
                return _at(moment, Reduce(monoid, self.extent[axis], self._term(body)))
            case Moment(moment, Name(name)) if moment == "running" or self._is_carrier(name):
                return self._carrier(Name(name), moment=moment)[1]
            case Moment(moment, of):
                return _at(moment, self._term(of))
            case Streamed(axis, repair, offset, body):
                parts = (self._term(p) for p in (repair, body, offset))
                return Online(self.extent[axis], *parts)
        raise Unsupported(f"no term for {pattern}")

    def _moved_to(self, name: str, axes: tuple[str, ...], indices: tuple[Term, ...]) -> Term:
        """The tensor of a name at other positions."""
        load = self.loads.get(name) or self._name(name)
        if not isinstance(load, Load):
            raise Unsupported(f"{name} stands at positions and is no tensor")
        places = {self.extent[a]: i for a, i in zip(axes, indices, strict=True)}
        own = (c.axis for c in load.coordinates if isinstance(c, Index))
        return Load(load.buffer, tuple(places.get(a, Index(a)) for a in own))


def _at(moment: str, reduction: Term) -> Term:
    return Running(reduction) if moment == "running" else Before(reduction)
