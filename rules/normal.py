"""Proofs by normal form: both sides of a law as polynomials over atoms, for all shapes.

Names, functions and reductions of the law are atoms; the real numbers' laws are built in, each
valid wherever its left side is defined:

- rings: + - * / and whole powers; what is divided by is cleared in the end;
- exp(x + y) = exp(x) exp(y), log(exp(x)) = x, log(x y) = log(x) + log(y) with x > 0, and the
  definitions of sigmoid, tanh, exp2 and log2 by exp and log (the literals nearest to ln 2 and its
  inverse are meant as these); square roots of squares are absolute values; erf and sin are odd;
- sums are linear, commute, and leave what does not depend on their axis outside; a sum of products
  that share no axis is a product of sums;
- maxima commute with adding, with positive factors, with exp and log; min(x) = -max(-x);
  argmax follows what orders its terms;
- truth values t with t t = t: where(c, x, y) = c x + (1 - c) y;
- x % y = x - y (x // y), and whole multiples leave // by a size.

Carriers of powers are positive, as where their largest magnitude is not 0. A name may depend on
every axis that no condition bars; a bound axis is not the free one of the same name. What relations
say of running values is put in (`equation`). A proof asks besides that the right side divides by,
and takes roots and logarithms of, nothing that the left side does not; and that nothing undefined
is compared, as what is made of it may be defined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from .binders import closed
from .carriers import carriers_of, lowered, moment_of
from .conditions import Kind, NotFree, Sign
from .egglog import booleans
from .functions import COMPARISONS, LITERALS, PLAIN, unsigned
from .instance import patterns_of
from .law import (
    Call,
    Fold,
    Moment,
    Name,
    Number,
    Pattern,
    Position,
    Relation,
    Round,
    Rule,
    Size,
    Stream,
    axes_of,
)
from .polynomial import (
    ONE,
    ZERO,
    Atom,
    Large,
    Poly,
    atom,
    cleared,
    constant,
    difference,
    product,
    scaled,
    total,
)
from .reducing import Reductions

__all__ = ["equation", "proved_by_normal_form"]

_LARGEST = 1 << 40


def equation(relation: Relation) -> tuple[Pattern, Pattern]:
    """What a relation says: the subject with its carrier moved, and the running form."""
    subject, slope, m = relation.subject, relation.slope, relation.carrier
    if relation.relation == "drop":
        return Call("add", (subject, Call("mul", (slope, m)))), relation.running
    mu: Pattern = Moment("running", m) if isinstance(m, Name) else moment_of(m, "running")
    step = Call("sub", (mu, m))
    if relation.relation == "shift":
        moved: Pattern = Call("add", (subject, Call("mul", (slope, step))))
    elif relation.relation == "scale":
        moved = Call("mul", (subject, Call("exp", (Call("mul", (slope, step)),))))
    elif relation.relation == "power":
        moved = Call("mul", (subject, Call("pow", (Call("div", (mu, m)), slope))))
    else:
        assert relation.centre is not None
        first = Call("mul", (Call("mul", (Number(2.0), relation.centre)), step))
        second = Call("mul", (slope, Call("mul", (step, step))))
        moved = Call("sub", (Call("sub", (subject, first)), second))
    return moved, relation.running


def proved_by_normal_form(rule: Rule) -> bool:
    """Whether the law's sides have one normal form, and the right is defined where the left is."""
    try:
        return _proved(rule)
    except (Large, RecursionError, OverflowError):
        return False


def _proved(rule: Rule) -> bool:
    if rule.conclusion is not None:
        sides = equation(rule.conclusion)
    else:
        assert rule.left is not None
        assert rule.right is not None
        sides = rule.left, rule.right
    forms = _Forms(rule=rule)
    # Running values choose what stands before the first position on both sides of a fact.
    left = forms.side(sides[0], every=rule.is_fact)
    needed, forms.needs = forms.needs, set()
    right = forms.side(sides[1], every=True)
    if cleared(difference(left, right)):
        return False
    return rule.numerics == "fast" or not (forms.needs - _implied(needed))


def _implied(needs: set[Atom]) -> set[Atom]:
    """What holds where these do: what is positive is neither zero nor negative; what holds at all
    positions of an axis holds at one."""
    found = set(needs)
    found |= {(kind, of, True) for kind, of, all_ in needs for _ in [all_]}
    found |= {(kind, of, False) for kind, of, _ in needs}
    for _, of, everywhere in [n for n in needs if n[0] == "positive"]:
        found |= {(kind, of, e) for kind in ("nonzero", "nonneg") for e in (everywhere, False)}
    return found


@dataclass
class _Forms(Reductions):
    """Patterns of a law to normal forms. `env` maps axes to the binders that are around."""

    rule: Rule = field(kw_only=True)
    barred: set[tuple[str, str]] = field(init=False)
    truths: set[str] = field(init=False)
    carriers: Mapping[str, Pattern] = field(init=False)
    given: dict[str, Pattern] = field(init=False)

    def __post_init__(self) -> None:
        conditions = self.rule.conditions
        patterns = patterns_of(self.rule)
        self.barred = {(c.axis, c.name) for c in conditions if isinstance(c, NotFree)}
        axes = {a for p in patterns for a in axes_of(p)}
        constants = {c.name for c in conditions if isinstance(c, Kind) and c.kind == "finite"}
        self.barred |= {(a, n) for a in axes for n in constants}
        self.signs = {}
        for c in conditions:
            if isinstance(c, Sign):
                self.signs.setdefault(c.name, set()).add(c.relation)
        kinds = {c.name: c.kind for c in conditions if isinstance(c, Kind)}
        self.truths = {n for p in patterns for n in booleans(p)}
        self.truths |= {n for n, k in kinds.items() if k in ("boolean", "bool")}
        self.whole = {n for n, k in kinds.items() if k in ("integer", "size", "i32", "i64")}
        self.carriers = carriers_of(self.rule)
        relations = [*self.rule.premises, *filter(None, [self.rule.conclusion])]
        named = [r.carrier for r in relations if r.relation == "power"]
        self.powers = {m.name for m in named if isinstance(m, Name)}
        self.given = {}
        for premise in self.rule.premises:
            if not isinstance(premise.running, Name):
                raise Large
            self.given[premise.running.name] = equation(premise)[0]

    def side(self, pattern: Pattern, *, every: bool = False) -> Poly:
        self.every, self.inside = every, 0
        return self.form(lowered(pattern, self.carriers), {})

    # --- patterns

    def form(self, pattern: Pattern, env: dict[str, str]) -> Poly:
        match pattern:
            case Number(value):
                if isinstance(value, bool):
                    return ONE if value else ZERO
                if value != value or abs(value) > _LARGEST:
                    raise Large
                return LITERALS.get(value) or constant(Fraction(value))
            case Size(axis):
                return atom(("size", axis))
            case Position(axis):
                return atom(("ix", env.get(axis, axis)))
            case Name(name):
                return self.name(name, env)
            case Round(dtype, argument):
                return self.rounded(dtype, self.form(argument, env))
            case Fold(monoid, axis, body):
                return self.fold(monoid, axis, body, env)
            case Stream(moment, monoid, axis, body):
                inner = self.binder(axis)
                whole = closed((inner,), self.form(body, {**env, axis: inner}))
                return atom(("stream", moment, monoid, env.get(axis, axis), whole))
            case Moment("running", Name(name)):
                return atom(("mu", name, self.places(name, env)))
            case Call(operation, arguments):
                return self.call(operation, arguments, env)
        raise Large

    def name(self, name: str, env: dict[str, str]) -> Poly:
        if name in self.given:
            return self.form(lowered(self.given[name], self.carriers), env)
        if name in self.carriers:
            return self.form(lowered(self.carriers[name], self.carriers), env)
        kind = "is" if name in self.truths else "name"
        return atom((kind, name, self.places(name, env)))

    def places(self, name: str, env: Mapping[str, str]) -> tuple[str, ...]:
        """The bound axes that a name may depend on."""
        return tuple(b for a, b in sorted(env.items()) if (a, name) not in self.barred)

    def call(self, operation: str, arguments: tuple[Pattern, ...], env: dict[str, str]) -> Poly:
        if operation == "where":
            truth = self.form(arguments[0], env)
            self.inside += 1
            arms = [self.form(a, env) for a in arguments[1:]]
            self.inside -= 1
            return total([product(truth, difference(*arms)), arms[1]])
        self.compared += operation in COMPARISONS
        forms = [self.form(a, env) for a in arguments]
        self.compared -= operation in COMPARISONS
        known: Callable[..., Poly] | None = PLAIN.get(operation)
        if known is not None:
            return known(*forms)
        named = getattr(self, f"_{operation}", None)
        if named is not None:
            result: Poly = named(*forms, env)
            return result
        if operation in ("erf", "sin") and forms[0] and forms[0][0][1] < 0:
            return scaled(atom(("fun", operation, (scaled(forms[0], -1),))), -1)
        if operation == "cos" and forms[0]:
            forms = [unsigned(forms[0])]
        return atom(("fun", operation, tuple(forms)))

    def fold(self, monoid: str, axis: str, body: Pattern, env: dict[str, str]) -> Poly:
        bound = self.binder(axis)
        self.compared += monoid in ("argmax", "argmin")
        inner = self.form(body, {**env, axis: bound})
        self.compared -= monoid in ("argmax", "argmin")
        return self.folded(monoid, bound, inner, env)
