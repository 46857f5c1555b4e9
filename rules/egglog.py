"""Laws as egglog text. Only ids, numbers and names made here are printed, never a user's text.

```
T        ::= (Num f64) | (Int i64) | (Truth i64) | (Odd i64)      constants; -0.0 is Odd 0, NaN Odd
           | (Ix axis) | (Leaf i64)                               positions; loads and the like
           | (op_<operation> T ..) | (Round dtype T)
           | (r_<monoid> axis T) | (Running monoid axis T) | (Before monoid axis T)
           | (Online axis T T T)                          repair, body, offset
           | (RunningOnline axis T T T) | (BeforeOnline axis T T T)   of the online sum
analyses   (fv T) bitmask of free axes    (rd T) of axes reduced inside
           (ra T) of axes of running values    (loose T) of axes that leave a factor alone
           (ext axis) extent    (traits T) bits of what is known of a term (`TRAITS`): its carried
           type (bit k: it is TYPES[k] or narrower), signs, whether it is a finite number, tame,
           rough (inexact in proportion to its size), a term of the source, equal to a number
           (numbers are not rewritten), idle (summed, with a factor that leaves the sum: facts are
           about what stays)
           (up T) of the reductions whose body has this term as a factor
facts      (shift T T T) (scale T T T)       the running form of a subject, given the running value
           (power T T T) (bend T T T T)      of its carrier and a slope; all running forms are equal
           (drop T T T)                      the rest of a subject, given a term and a slope
           (made T i64)                      the rule with this id put its right-hand side here
```

A rewrite fires only where the names that stand for numbers are bound to floating-point terms, so
that integers, truth values and their overflow are never treated as real arithmetic. Axes with
different names are different axes. A law that rewrites both ways leaves running values alone: a
running form follows each form of the term that it comes from, so to rearrange it once more adds
rows and nothing else. Normal laws (a * 1 >> a, and those that say `instead`) delete the node that
they rewrite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from nautile.dtypes import DTYPES
from nautile.terms import MONOIDS

from .carriers import carriers_of, lowered, moment_of, named_slope
from .constants import Made, computed, computing, with_made
from .factors import parted
from .guards import bindings, compared, condition_text, sizes_in
from .law import (
    Call,
    Carrier,
    Compare,
    Condition,
    Fold,
    Kind,
    Moment,
    Name,
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

__all__ = [
    "STORAGE",
    "TRAITS",
    "TYPES",
    "Printed",
    "booleans",
    "number",
    "print_rule",
    "type_bits",
]

TYPES = ("bool", "i32", "i64", "f32", "f64")
STORAGE = tuple(DTYPES)
_KNOWN = (
    "pos", "neg", "nonneg", "nonpos", "nonzero", "finite", "tame", "rough", "source", "number",
    "idle",
)  # fmt: skip
TRAITS = {name: 1 << len(TYPES) + i for i, name in enumerate(_KNOWN)}
_SIGNS = {">": "pos", "<": "neg", ">=": "nonneg", "<=": "nonpos", "!=": "nonzero"}
_TYPED = ("float", "boolean", "integer", "size", *TYPES)
_WHOLE = ("integer", "size", "i32", "i64")
_INTEGRAL, _TRUTH = 1 << TYPES.index("i64"), 1 << TYPES.index("bool")
_KINDS = {  # the bits that are looked at, and those of them that are set
    "float": (_INTEGRAL, 0),
    "boolean": (_TRUTH, _TRUTH),
    "integer": (_INTEGRAL | _TRUTH, _INTEGRAL),
    "size": (_INTEGRAL | _TRUTH, _INTEGRAL),
    "finite": (TRAITS["finite"], TRAITS["finite"]),
    "tame": (TRAITS["tame"], TRAITS["tame"]),
    "rough": (TRAITS["rough"], TRAITS["rough"]),
    "unbounded": (TRAITS["source"] | TRAITS["nonpos"], TRAITS["source"]),
}
for _i, _type in enumerate(TYPES):  # this type, and none that is narrower
    _KINDS[_type] = (1 << _i) | (1 << _i - 1 if _i else 0), 1 << _i
_MINUS_ONE = "(Num -1.0)"


_SUBJECT = (_INTEGRAL | TRAITS["number"] | TRAITS["idle"], 0)  # what facts are about: floats


@dataclass(frozen=True, slots=True)
class Printed:
    """One egglog rule. `name` is also the ruleset of a rewrite; facts share one, and so do `normal`
    ones, which drop what they rewrite. The `probe` of a two-way rule has the same query and does
    nothing, so that matches can be counted before they are applied. More than `limit` matches (if
    it is not 0) are too many in one iteration."""

    law: str
    name: str
    text: str
    probe: str
    fact: bool
    two_way: bool
    normal: bool
    limit: int = 0


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


def type_bits(carried: str) -> int:
    """The bits of a carried type: one for each type that is as wide or wider."""
    return sum(1 << i for i in range(TYPES.index(carried), len(TYPES)))


def print_rule(rule: Rule, index: int) -> tuple[Printed, ...]:
    """The egglog rules of a law; `index` is its id in the `made` relation. None where the law is
    stated only (`Rule.is_applied`)."""
    if not rule.is_applied:
        return ()
    if rule.conclusion is not None:
        return tuple(_facts(rule, rule.conclusion, index))
    assert rule.left is not None
    assert rule.right is not None
    texts = list(_rewrites(rule, rule.left, rule.right))
    if rule.two_way and not _alike(rule.left, rule.right, rule):
        texts += _rewrites(rule, rule.right, rule.left)
    gone = [f"(delete {_text(rule.left, False)})"] if rule.is_normal else []
    return tuple(
        _printed(rule, f"s{index}_{i}", query, [f"(let new {new})", "(union e new)", *gone], index)
        for i, (query, new) in enumerate(texts)
    )


def _printed(rule: Rule, name: str, query: list[str], actions: list[str], index: int) -> Printed:
    ruleset = "facts" if rule.is_fact else "normal" if rule.is_normal else name
    matched = " ".join(query)
    made = " ".join([*actions, f"(made new {index})"])
    text = f'(rule ({matched}) ({made}) :ruleset {ruleset} :name "{name}")'
    waits = rule.two_way and not rule.directed
    count = f'(rule ({matched}) ((hit)) :ruleset probe :name "{name}")' if waits else ""
    return Printed(rule.name, name, text, count, rule.is_fact, waits, rule.is_normal, rule.limit)


def _rewrites(rule: Rule, left: Pattern, right: Pattern) -> Iterator[tuple[list[str], str]]:
    """Query and right-hand side of one direction, once for each form of a repair's slope."""
    integral = any(isinstance(c, Kind) and c.kind in _WHOLE for c in rule.conditions)
    made = computed(rule, right)
    query = [f"(= e {_text(left, integral)})"]
    query += [*_traits(rule, _guards(rule, left)), *_common(rule, [left, right], made)]
    if not rule.is_normal:  # these come before the traits of what they drop are known
        query += _has("e", "e", TRAITS["number"], 0)
    if rule.parted:
        query += parted(left, right)
    if rule.two_way:
        query.append("(= 0 (ra e))")
    for extra, unit in _forms(right):
        new = lowered(right, carriers_of(rule), unit=unit)
        yield [*query, *extra], _text(with_made(rule, new, made), integral)


def _forms(built: Pattern) -> Iterator[tuple[list[str], bool]]:
    """A repair with slope -1 is written without it: what each form asks, and whether it is -1."""
    name = named_slope(built)
    if name is None:
        yield [], False
    else:
        yield [f"(!= v_{name} {_MINUS_ONE})"], False
        yield [f"(= v_{name} {_MINUS_ONE})"], True


def _facts(rule: Rule, conclusion: Relation, index: int) -> Iterator[Printed]:
    query = [f"(= e {_text(conclusion.subject, False)})", *_has("e", "e", *_SUBJECT)]
    query += _traits(rule, {})
    query += _common(rule, list(relation_parts(conclusion)))
    for i, (extra, unit) in enumerate(_forms(conclusion.running)):
        running = lowered(conclusion.running, carriers_of(rule), unit=unit)
        actions = [f"(let new {_text(running, False)})", f"(union {_known(conclusion, 'e')} new)"]
        yield _printed(rule, f"f{index}_{i}", [*query, *extra], actions, index)


def _known(relation: Relation, subject: str) -> str:
    """The place that holds a relation's running form."""
    carrier = _carrier_text(relation.carrier)
    if relation.relation == "drop":
        carrier = _text(relation.carrier, False)
    places = [relation.slope, *([] if relation.centre is None else [relation.centre])]
    inner = " ".join(_text(lowered(p, {}), False) for p in places)
    return f"({relation.relation} {subject} {carrier} {inner})"


def _common(rule: Rule, sides: list[Pattern], made: Iterable[Pattern] = ()) -> list[str]:
    """Premises, conditions, extents, and that axes of different names differ."""
    query = [_relation_text(p) for p in rule.premises]
    query += [t for i, c in enumerate(rule.conditions) if (t := _asked(c, i))]
    places = [p for r in rule.premises for p in relation_parts(r)]
    places += [c.reduction for c in rule.conditions if isinstance(c, Carrier)]
    axes = list(dict.fromkeys(a for p in [*sides, *places] for a in axes_of(p)))
    query += [f"(!= x_{a} x_{b})" for a, b in combinations(axes, 2)]
    asked = [p for c in rule.conditions if isinstance(c, Compare) for p in (c.left, c.right)]
    query += [f"(= n_{a} (ext x_{a}))" for a in sizes_in([*sides, *asked])]
    used = [n for p in [*made, *asked] for n in names_of(p)]
    used += [c.name for c in rule.conditions if c == Kind("size", getattr(c, "name", ""))]
    return query + [*bindings(rule, used), *compared(rule), *computing(rule, made)]


def _asked(condition: Condition, position: int) -> str:
    if isinstance(condition, Carrier):
        return f"(= v_{condition.name} {_carrier_text(condition.reduction)})"
    return condition_text(condition, position)


def _guards(rule: Rule, left: Pattern) -> dict[str, str]:
    """What the names of the matched side may stand for."""
    kinds = dict.fromkeys(names_of(left), "float")
    kinds |= dict.fromkeys(booleans(left), "boolean")
    kinds |= {
        c.name: c.kind
        for c in rule.conditions
        if isinstance(c, Kind) and c.kind in _TYPED and c.name in kinds
    }
    return kinds


def _traits(rule: Rule, kinds: dict[str, str]) -> list[str]:
    """All that a law asks of the traits of its names, given their kinds: one look at each."""
    asked = [(name, *_KINDS[kind]) for name, kind in kinds.items()]
    for c in rule.conditions:
        if isinstance(c, Sign):
            bit = TRAITS[_SIGNS[c.relation]]
            asked.append((c.name, bit, bit))
        elif isinstance(c, Kind) and c.kind in _KINDS and kinds.get(c.name) != c.kind:
            asked.append((c.name, *_KINDS[c.kind]))
    wanted: dict[str, tuple[int, int]] = {}
    for name, mask, value in asked:
        known = wanted.get(name, (0, 0))
        wanted[name] = known[0] | mask, known[1] | value
    return [t for n, (mask, value) in wanted.items() for t in _has(f"v_{n}", n, mask, value)]


def _has(term: str, name: str, mask: int, value: int) -> list[str]:
    return [f"(= traits_{name} (traits {term}))", f"(= {value} (& {mask} traits_{name}))"]


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


def _relation_text(relation: Relation) -> str:
    return (
        f"(= {_text(relation.running, False)} {_known(relation, _text(relation.subject, False))})"
    )


def _carrier_text(pattern: Pattern) -> str:
    """A carrier is known by its running value: equal totals may run differently. So a carrier's
    name stands for that value."""
    running = pattern if isinstance(pattern, Name) else moment_of(lowered(pattern, {}), "running")
    return _text(running, False)


def _stream(constructor: str, monoid: str, axis: str, body: str) -> str:
    return f"({constructor} {MONOIDS.index(monoid)} x_{axis} {body})"


def _online(constructor: str, streamed: Streamed, integral: bool) -> str:
    parts_ = (streamed.repair, streamed.body, streamed.offset)
    inner = " ".join(_text(p, integral) for p in parts_)
    return f"({constructor} x_{streamed.axis} {inner})"


def _text(pattern: Pattern | Made, integral: bool) -> str:
    """The egglog term of a lowered pattern."""

    def inner(child: Pattern) -> str:
        return _text(child, integral)

    match pattern:
        case Made(place, kind):
            return f"({kind} made{place})"
        case Name(name):
            return f"v_{name}"
        case Number(value):
            keep = integral or isinstance(value, bool)
            return number(value if keep else float(value))
        case Size(axis):
            return f"(Int (to-i64 n_{axis}))" if integral else f"(Num n_{axis})"
        case Position(axis):
            return f"(Ix x_{axis})"
        case Call("mul" | "div", _) if _sized(pattern):
            return f"(Num {_sized(pattern)})"
        case Call(operation, arguments):
            return f"(op_{operation} {' '.join(map(inner, arguments))})"
        case Round(dtype, argument):
            return f"(Round {STORAGE.index(dtype)} {inner(argument)})"
        case Fold(monoid, axis, body):
            return f"(r_{monoid} x_{axis} {inner(body)})"
        case Stream(moment, monoid, axis, body):
            return _stream(moment.capitalize(), monoid, axis, inner(body))
        case Moment("running", Name(name)):
            return f"v_{name}"
        case Moment(moment, Streamed() as streamed):
            return _online(f"{moment.capitalize()}Online", streamed, integral)
        case Streamed():
            return _online("Online", pattern, integral)
    raise TypeError(pattern)


def _sized(pattern: Pattern) -> str | None:
    """The number that extents alone make, as it stands in the e-graph once it is folded."""
    match pattern:
        case Number(value):
            return repr(float(value))
        case Size(axis):
            return f"n_{axis}"
        case Call("mul" | "div" as operation, (left, right)):
            inner = _sized(left), _sized(right)
            sign = "*" if operation == "mul" else "/"
            return f"({sign} {inner[0]} {inner[1]})" if None not in inner else None
    return None


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
    text = _text(lowered(pattern, {}), False)
    for old, new in [*((f"v_{n}", m) for n, m in names.items()),
                     *((f"x_{a}", b) for a, b in axes.items())]:  # fmt: skip
        text = text.replace(f"{old} ", f"{new} ").replace(f"{old})", f"{new})")
    return text
