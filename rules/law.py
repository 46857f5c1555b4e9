"""Laws: rewrite rules and dependence facts as plain data.

```
Law      ::= Rule | Fact
Rule     ::= left (== | >>) right, conditions, premises
Fact     ::= conclusion, premises, conditions
Relation ::= shift(subject, carrier, slope, running)      subject is additive in the carrier
           | scale(subject, carrier, slope, running)      subject is exponential in the carrier
           | power(subject, carrier, slope, running)      subject is a power of the carrier
           | bend(subject, carrier, weight, lean, running)   subject is quadratic in the carrier
           | drop(subject, carrier, slope, rest)          subject is affine in a term of the source
Pattern  ::= Name | Number | Size(axis) | Call(operation, patterns) | Round(dtype, pattern)
           | Fold(monoid, axis, pattern)                  a reduction
           | Stream(moment, monoid, axis, pattern)        running(max[j](a)), before(max[j](a))
           | Moment(moment, pattern)                      running(m), before(m) of a carrier, or of
                                                          a streamed sum
           | Repair(carrier, slope)                       repair(m, k)
           | Rescaled(axis, carrier, slope, body)         online[j](m, k, r)
           | Streamed(axis, repair, offset, body)         streamed[j](repair, offset, body)
```

Names stand for arbitrary terms. A carrier is a reduction over a streamed axis, or an expression of
such: its running value mu is the expression of what they have come to at the stream's position
(`moment_of`). With m the carrier's final value, a relation says

    shift(e, m, k, r):    r = e + k (mu - m)
    scale(e, m, k, r):    r = e exp(k (mu - m))
    power(e, m, k, r):    r = e (mu / m)^k
    bend(e, m, w, q, r):  r = e - 2 q (mu - m) - w (mu - m)^2
    drop(e, m, k, r):     r = e + k m

at every position of the stream, wherever mu is finite (of `drop`, m is any term). All are equations
between terms, so they may be checked like any rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "Apart",
    "Bare",
    "Call",
    "Carrier",
    "Chain",
    "Condition",
    "Differs",
    "Fold",
    "Free",
    "Kind",
    "Moment",
    "Name",
    "NotFree",
    "Number",
    "Pattern",
    "Relation",
    "Repair",
    "Rescaled",
    "Round",
    "Rule",
    "Sign",
    "Size",
    "Stream",
    "Streamed",
    "axes_of",
    "names_of",
    "parts",
    "relation_parts",
]


@dataclass(frozen=True, slots=True)
class Name:
    """Any term; every use of the name in one law is the same term."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number or truth value."""

    value: bool | int | float


@dataclass(frozen=True, slots=True)
class Size:
    """The extent of an axis, as a number."""

    axis: str


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar operation (see `nautile.operations`)."""

    operation: str
    arguments: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """A cast to an element type."""

    dtype: str
    argument: Pattern


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction of `body` over an axis."""

    monoid: str
    axis: str
    body: Pattern


@dataclass(frozen=True, slots=True)
class Stream:
    """The value of a reduction up to and with ("running") or before ("before") the position."""

    moment: str
    monoid: str
    axis: str
    body: Pattern


@dataclass(frozen=True, slots=True)
class Rescaled:
    """An online sum of `body` over an axis, repaired whenever the carrier's running value moves."""

    axis: str
    carrier: str
    slope: Pattern
    body: Pattern


@dataclass(frozen=True, slots=True)
class Moment:
    """The running value of a carrier or of a streamed sum ("running"), or its value before the
    position ("before")."""

    moment: str
    of: Pattern


@dataclass(frozen=True, slots=True)
class Repair:
    """The factor exp(k (mu_new - mu_old)) by which a sum that is exponential in a carrier moves; 0
    before the carrier's first finite value."""

    carrier: str
    slope: Pattern


@dataclass(frozen=True, slots=True)
class Streamed:
    """A sum of `body` over an axis whose state is multiplied by `repair` and moved by `offset`
    whenever running values move (`nautile.terms.Online`)."""

    axis: str
    repair: Pattern
    offset: Pattern
    body: Pattern


Pattern = (
    Name | Number | Size | Call | Round | Fold | Stream | Moment | Repair | Rescaled | Streamed
)


@dataclass(frozen=True, slots=True)
class NotFree:
    """`axis not in name`: the term does not depend on the axis."""

    axis: str
    name: str


@dataclass(frozen=True, slots=True)
class Free:
    """`axis in name`: the term may depend on the axis. A law holds without it; it tells where the
    law is of use."""

    axis: str
    name: str


@dataclass(frozen=True, slots=True)
class Apart:
    """`apart(a, m)`: the term holds no reduction along the carrier's stream. A law holds without
    it; it keeps facts to the places where they are of use."""

    name: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Bare:
    """`bare[j](a)`: no factor of the term, nor its sign, is free of the axis: such a factor leaves
    a sum first. A law holds without it; it keeps laws to the places where they are of use."""

    axis: str
    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """`chain[j](a, b, c)`: of the axes that a and b share, c lacks j alone, as in a product of
    matrices. A law holds without it; it keeps from orders whose intermediates have more axes."""

    axis: str
    name: str
    other: str
    third: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """`name == max[j](b)`: the carrier is this reduction, or this expression of reductions over one
    axis, as in `m == max(max[j](b), c)` or `m == sum[j](b) / sum[j](w)`."""

    name: str
    reduction: Pattern


@dataclass(frozen=True, slots=True)
class Sign:
    """`name > 0` and its like: relation is one of > >= < <= != against zero."""

    name: str
    relation: str


@dataclass(frozen=True, slots=True)
class Kind:
    """`integer(n)`, `float(a)`, `boolean(c)`, `finite(a)`: what a name may stand for.

    `unbounded(a)`: a stands in the source, and nothing shows that it has an upper bound.
    `tame(r)`: r is of ordinary size wherever the source is, as it holds no exponential of something
    that may be positive. `still(k)`: k holds no running values. `rough(a)`: a carries a
    rounding error in proportion to its size, as values of exp and log do and what is multiplied by
    them: to take a difference with it later loses no more than it has already."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Differs:
    """`name != 1` and its like: a constant, and not this number."""

    name: str
    number: float


Condition = NotFree | Free | Apart | Bare | Chain | Carrier | Sign | Kind | Differs


@dataclass(frozen=True, slots=True)
class Relation:
    """How a subject depends on a carrier: a slope (exponent, weight) and the running form; of
    `bend` the weighted distance to mu too. See the module's docstring."""

    relation: str
    subject: Pattern
    carrier: Pattern
    slope: Pattern
    running: Pattern
    centre: Pattern | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One named law of a pack. A fact has a `conclusion` and no sides; a rewrite has both sides.
    `instead` says that its left side need not be kept, `parted` that the product which it makes is
    of use only where one of its factors could leave a reduction around it."""

    name: str
    pack: str
    numerics: str  # exact real fast approx facts
    left: Pattern | None
    right: Pattern | None
    two_way: bool
    conditions: tuple[Condition, ...]
    premises: tuple[Relation, ...]
    conclusion: Relation | None
    text: str
    doc: str = ""
    filename: str = "<text>"
    line: int = 0
    instead: bool = False
    parted: bool = False

    @property
    def is_normal(self) -> bool:
        """True for a rewrite whose left side is dropped: one that asks for it (`instead`), or one
        that leaves a name alone, as a * 1 >> a does."""
        return not self.two_way and (self.instead or isinstance(self.right, Name))

    @property
    def is_fact(self) -> bool:
        """True for a law about dependence, which adds to a relation instead of rewriting."""
        return self.conclusion is not None


def parts(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and everything inside it, outermost first."""
    yield pattern
    match pattern:
        case Call(_, arguments):
            for argument in arguments:
                yield from parts(argument)
        case Round(_, inner) | Fold(_, _, inner) | Stream(_, _, _, inner) | Moment(_, inner):
            yield from parts(inner)
        case Repair(carrier, slope):
            yield Name(carrier)
            yield from parts(slope)
        case Rescaled(_, carrier, slope, body):
            yield Name(carrier)
            yield from parts(slope)
            yield from parts(body)
        case Streamed(_, repair, offset, body):
            yield from parts(repair)
            yield from parts(offset)
            yield from parts(body)


def relation_parts(relation: Relation) -> tuple[Pattern, ...]:
    """The places of a relation."""
    places = (relation.subject, relation.carrier, relation.slope, relation.running)
    return places if relation.centre is None else (*places, relation.centre)


_BINDERS = (Size, Fold, Stream, Rescaled, Streamed)


def names_of(pattern: Pattern) -> dict[str, None]:
    """The names in a pattern, in order of appearance."""
    return {p.name: None for p in parts(pattern) if isinstance(p, Name)}


def axes_of(pattern: Pattern) -> dict[str, None]:
    """The axis names in a pattern, in order of appearance."""
    return {p.axis: None for p in parts(pattern) if isinstance(p, _BINDERS)}
