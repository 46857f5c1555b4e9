"""Laws as egglog text. Only ids, numbers and names made here are printed, never a user's text.

```
T        ::= (Num f64) | (Int i64) | (Truth i64) | (Odd i64)      constants; -0.0 is Odd 0, NaN Odd
           | (Ix axis) | (Leaf i64)                               positions; loads and the like
           | (op_<operation> T ..) | (Round dtype T)
           | (r_<monoid> axis T) | (Running monoid axis T) | (Before monoid axis T)
           | (Online axis T T T)                          repair, body, offset
analyses   (fv T) bitmask of free axes    (ty T) code of the carried type    (ext axis) extent
           (is_pos T) (is_neg T) (is_nonneg T) (is_nonpos T) (is_nonzero T) (is_finite T)
           (bounded T) 0 for terms of the source, 1 if never positive    (is_tame T)
facts      (shift T T T) (scale T T T)       the running form of a subject, given the running value
                                             of its carrier and a slope; all running forms are equal
           (made T i64)                      the rule with this id put its right-hand side here
```

A rewrite fires only where the names that stand for numbers are bound to floating-point terms, so
that integers, truth values and their overflow are never treated as real arithmetic. Axes with
different names are different axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from nautile.dtypes import DTYPES
from nautile.terms import MONOIDS

from .law import (
    Call,
    Carrier,
    Condition,
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
    parts,
    relation_parts,
)

__all__ = ["FLOATS", "STORAGE", "TYPES", "Printed", "booleans", "number", "print_rule"]

TYPES = ("bool", "i32", "i64", "f32", "f64")
STORAGE = tuple(DTYPES)
FLOATS = TYPES.index("f32")
_SIGNS = {">": "is_pos", "<": "is_neg", ">=": "is_nonneg", "<=": "is_nonpos", "!=": "is_nonzero"}
_TYPED = ("float", "boolean", "integer")
_MINUS_ONE = "(Num -1.0)"


@dataclass(frozen=True, slots=True)
class Printed:
    """One egglog rule. `name` is also the ruleset of a rewrite; facts share one. The `probe` has
    the same query and does nothing, so that matches can be counted before they are applied."""

    law: str
    name: str
    text: str
    probe: str
    fact: bool
    two_way: bool


def number(value: bool | int | float) -> str:
    """A constant as an egglog term; integers stay integers."""
    if isinstance(value, bool):
        return f"(Truth {int(value)})"
    if isinstance(value, int):
        return f"(Int {value})"
    if math.isnan(value):
        return "(Odd 1)"
    if value == 0 and math.copysign(1, value) < 0:
        return "(Odd 0)"
    return f"(Num {value!r})"


def print_rule(rule: Rule, index: int) -> tuple[Printed, ...]:
    """The egglog rules of a law; `index` is its id in the `made` relation."""
    if rule.conclusion is not None:
        return (_fact(rule, rule.conclusion, index),)
    assert rule.left is not None
    assert rule.right is not None
    texts = list(_rewrites(rule, rule.left, rule.right))
    if rule.two_way and not _alike(rule.left, rule.right, rule):
        texts += _rewrites(rule, rule.right, rule.left)
    return tuple(
        _printed(rule, f"s{index}_{i}", query, [f"(let new {new})", "(union e new)"], index)
        for i, (query, new) in enumerate(texts)
    )


def _printed(rule: Rule, name: str, query: list[str], actions: list[str], index: int) -> Printed:
    ruleset, probe = ("facts", "probe_facts") if rule.is_fact else (name, "probe")
    matched = " ".join(query)
    made = " ".join([*actions, f"(made new {index})"])
    text = f'(rule ({matched}) ({made}) :ruleset {ruleset} :name "{name}")'
    count = f'(rule ({matched}) ((hit)) :ruleset {probe} :name "{name}")'
    return Printed(rule.name, name, text, count, rule.is_fact, rule.two_way)


def _rewrites(rule: Rule, left: Pattern, right: Pattern) -> Iterator[tuple[list[str], str]]:
    """Query and right-hand side of one direction, once for each form of an online sum's slope."""
    integral = any(isinstance(c, Kind) and c.kind == "integer" for c in rule.conditions)
    query = [f"(= e {_text(left, integral)})", *_guards(rule, left), *_common(rule, [left, right])]
    online = next((p for p in parts(right) if isinstance(p, Rescaled)), None)
    forms: list[tuple[list[str], str]] = [([], _text(right, integral, _carriers(rule)))]
    if online is not None and isinstance(online.slope, Name):
        slope = f"v_{online.slope.name}"
        unit = _text(right, integral, _carriers(rule), unit=True)
        forms = [([f"(!= {slope} {_MINUS_ONE})"], forms[0][1])]
        forms.append(([f"(= {slope} {_MINUS_ONE})"], unit))
    for extra, built in forms:
        yield [*query, *extra], built


def _fact(rule: Rule, conclusion: Relation, index: int) -> Printed:
    query = [f"(= e {_text(conclusion.subject, False)})", f"(= ty_e (ty e)) (>= ty_e {FLOATS})"]
    query += _common(rule, list(relation_parts(conclusion)))
    carrier, slope, running = (
        _carrier_text(conclusion.carrier),
        _text(conclusion.slope, False),
        _text(conclusion.running, False),
    )
    known = f"({conclusion.relation} e {carrier} {slope})"
    actions = [f"(let new {running})", f"(union {known} new)"]
    return _printed(rule, f"f{index}", query, actions, index)


def _common(rule: Rule, sides: list[Pattern]) -> list[str]:
    """Premises, conditions, extents, and that axes of different names differ."""
    query = [_relation_text(p) for p in rule.premises]
    query += [_condition_text(c, i) for i, c in enumerate(rule.conditions)]
    places = [p for r in rule.premises for p in relation_parts(r)]
    places += [c.reduction for c in rule.conditions if isinstance(c, Carrier)]
    axes = list(dict.fromkeys(a for p in [*sides, *places] for a in axes_of(p)))
    query += [f"(!= x_{a} x_{b})" for a, b in combinations(axes, 2)]
    sizes = dict.fromkeys(p.axis for s in sides for p in parts(s) if isinstance(p, Size))
    return query + [f"(= n_{a} (ext x_{a}))" for a in sizes]


def _guards(rule: Rule, left: Pattern) -> list[str]:
    """What the names of the matched side may stand for."""
    kinds = dict.fromkeys(names_of(left), "float")
    kinds |= dict.fromkeys(booleans(left), "boolean")
    kinds |= {
        c.name: c.kind
        for c in rule.conditions
        if isinstance(c, Kind) and c.kind in _TYPED and c.name in kinds
    }
    return [_kind_text(name, kind) for name, kind in kinds.items()]


def _kind_text(name: str, kind: str) -> str:
    integers = TYPES.index("i32")
    test = {
        "float": f"(>= ty_{name} {FLOATS})",
        "boolean": f"(< ty_{name} {integers})",
        "integer": f"(>= ty_{name} {integers}) (< ty_{name} {FLOATS})",
    }[kind]
    return f"(= ty_{name} (ty v_{name})) {test}"


def booleans(pattern: Pattern) -> Iterator[str]:
    """Names in places that only a truth value can fill."""
    for part in parts(pattern):
        places: tuple[Pattern, ...] = ()
        if isinstance(part, Call) and part.operation in ("and", "or", "not"):
            places = part.arguments
        elif isinstance(part, Call) and part.operation == "where":
            places = part.arguments[:1]
        elif isinstance(part, Fold) and part.monoid in ("any", "all"):
            places = (part.body,)
        yield from (p.name for p in places if isinstance(p, Name))


def _condition_text(condition: Condition, position: int) -> str:
    match condition:
        case NotFree(axis, name):
            mask = f"fv{position}"
            return f"(= {mask} (fv v_{name})) (= 0 (& (<< 1 x_{axis}) {mask}))"
        case Carrier(name, fold):
            return f"(= v_{name} {_carrier_text(fold)})"
        case Sign(name, relation):
            return f"({_SIGNS[relation]} v_{name})"
        case Kind("finite" | "tame" as kind, name):
            return f"(is_{kind} v_{name})"
        case Kind("unbounded", name):
            return f"(= 0 (bounded v_{name}))"
        case Kind(kind, name):
            return _kind_text(name, kind)
    raise TypeError(condition)


def _relation_text(relation: Relation) -> str:
    carrier = _carrier_text(relation.carrier)
    subject, slope = _text(relation.subject, False), _text(relation.slope, False)
    return f"(= {_text(relation.running, False)} ({relation.relation} {subject} {carrier} {slope}))"


def _carrier_text(pattern: Pattern) -> str:
    """A carrier is known by its running value: equal totals may run differently."""
    if isinstance(pattern, Fold):
        return _stream("Running", pattern)
    return _text(pattern, False)


def _stream(constructor: str, fold: Fold) -> str:
    monoid = MONOIDS.index(fold.monoid)
    return f"({constructor} {monoid} x_{fold.axis} {_text(fold.body, False)})"


def _carriers(rule: Rule) -> dict[str, Fold]:
    return {c.name: c.reduction for c in rule.conditions if isinstance(c, Carrier)}


def _text(
    pattern: Pattern, integral: bool, carriers: dict[str, Fold] | None = None, unit: bool = False
) -> str:
    def inner(child: Pattern) -> str:
        return _text(child, integral, carriers, unit)

    match pattern:
        case Name(name):
            return f"v_{name}"
        case Number(value):
            keep = integral or isinstance(value, bool)
            return number(value if keep else float(value))
        case Size(axis):
            return f"(Num n_{axis})"
        case Call(operation, arguments):
            return f"(op_{operation} {' '.join(map(inner, arguments))})"
        case Round(dtype, argument):
            return f"(Round {STORAGE.index(dtype)} {inner(argument)})"
        case Fold(monoid, axis, body):
            return f"(r_{monoid} x_{axis} {inner(body)})"
        case Stream(moment, monoid, axis, body):
            return _stream(moment.capitalize(), Fold(monoid, axis, body))
        case Rescaled(axis, carrier, slope, body):
            repair = _repair((carriers or {})[carrier], None if unit else inner(slope))
            return f"(Online x_{axis} {repair} {inner(body)} (Num 0.0))"
    raise TypeError(pattern)


def _repair(carrier: Fold, slope: str | None) -> str:
    """exp(k * (mu_new - mu_old)), written so that equal infinities leave the sum as it is, and a
    first finite value discards it: exp(-k * where(old == new, 0, old - new))."""
    old, new = _stream("Before", carrier), _stream("Running", carrier)
    step = f"(op_where (op_eq {old} {new}) (Num 0.0) (op_sub {old} {new}))"
    return f"(op_exp {step})" if slope is None else f"(op_exp (op_mul (op_neg {slope}) {step}))"


def _alike(left: Pattern, right: Pattern, rule: Rule) -> bool:
    """True when both directions are the same rule up to names, as for commutativity."""
    if rule.conditions or rule.premises:
        return False
    return _shape(left, right) == _shape(right, left)


def _shape(left: Pattern, right: Pattern) -> str:
    names = {n: f"n{i}" for i, n in enumerate(names_of(left))}
    axes = {a: f"a{i}" for i, a in enumerate(axes_of(left))}
    return f"{_renamed(left, names, axes)}>>{_renamed(right, names, axes)}"


def _renamed(pattern: Pattern, names: dict[str, str], axes: dict[str, str]) -> str:
    text = _text(pattern, False)
    for old, new in [*((f"v_{n}", m) for n, m in names.items()),
                     *((f"x_{a}", b) for a, b in axes.items())]:  # fmt: skip
        text = text.replace(f"{old} ", f"{new} ").replace(f"{old})", f"{new})")
    return text
