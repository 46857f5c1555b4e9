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
           | Position(axis)                               the index variable as a number
           | Access(name, axes, patterns)                 x[p*Q + q]: a term at other positions
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

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .conditions import (
    Apart,
    Bare,
    Bound,
    Carrier,
    Chain,
    Compare,
    Condition,
    Differs,
    Free,
    Kind,
    NotFree,
    Sign,
)

__all__ = [
    "Access",
    "Apart",
    "Bare",
    "Bound",
    "Call",
    "Carrier",
    "Chain",
    "Compare",
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
    "Position",
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
    "direct",
    "names_of",
    "over",
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
class Position:
    """The position along an axis, as an integer."""

    axis: str


@dataclass(frozen=True, slots=True)
class Access:
    """The term `name` with its `axes` replaced by index expressions: x[j] at p*Q + q."""

    name: str
    axes: tuple[str, ...]
    indices: tuple[Pattern, ...]


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
    Name
    | Number
    | Size
    | Position
    | Access
    | Call
    | Round
    | Fold
    | Stream
    | Moment
    | Repair
    | Rescaled
    | Streamed
)


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
    extents: tuple[tuple[str, Pattern], ...] = ()
    directed: bool = False
    limit: int = 0
    deprecated: str = ""
    bound: float = 0.0

    @property
    def is_normal(self) -> bool:
        """True for a rewrite whose left side is dropped: one that asks for it (`instead`), or one
        that leaves a name alone, as a * 1 >> a does."""
        return not self.two_way and (self.instead or isinstance(self.right, Name))

    @property
    def is_fact(self) -> bool:
        """True for a law about dependence, which adds to a relation instead of rewriting."""
        return self.conclusion is not None

    @property
    def is_applied(self) -> bool:
        """False for a law about terms at other positions, or over an axis that it makes: it can be
        stated and checked, but an e-graph has no place for the axis."""
        return not self.extents and not any(
            isinstance(p, Access) for s in (self.left, self.right) if s for p in parts(s)
        )


def parts(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and everything inside it, outermost first."""
    yield pattern
    match pattern:
        case Access(name, _, arguments):
            yield Name(name)
            for argument in arguments:
                yield from parts(argument)
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


def over(pattern: Pattern, step: Callable[[Pattern], Pattern]) -> Pattern:
    """The pattern with `step` applied to its direct parts."""
    match pattern:
        case Access(name, axes, indices):
            return Access(name, axes, tuple(map(step, indices)))
        case Call(operation, arguments):
            return Call(operation, tuple(map(step, arguments)))
        case Round(dtype, argument):
            return Round(dtype, step(argument))
        case Fold(monoid, axis, body):
            return Fold(monoid, axis, step(body))
        case Stream(moment, monoid, axis, body):
            return Stream(moment, monoid, axis, step(body))
        case Moment(moment, of):
            return Moment(moment, step(of))
        case Repair(carrier, slope):
            return Repair(carrier, step(slope))
        case Rescaled(axis, carrier, slope, body):
            return Rescaled(axis, carrier, step(slope), step(body))
        case Streamed(axis, repair, offset, body):
            return Streamed(axis, step(repair), step(offset), step(body))
    return pattern


def direct(pattern: Pattern) -> tuple[Pattern, ...]:
    """The direct parts of a pattern, in order."""
    found: list[Pattern] = []

    def seen(part: Pattern) -> Pattern:
        found.append(part)
        return part

    over(pattern, seen)
    return tuple(found)


def relation_parts(relation: Relation) -> tuple[Pattern, ...]:
    """The places of a relation."""
    places = (relation.subject, relation.carrier, relation.slope, relation.running)
    return places if relation.centre is None else (*places, relation.centre)


_BINDERS = (Size, Position, Fold, Stream, Rescaled, Streamed)


def names_of(pattern: Pattern) -> dict[str, None]:
    """The names in a pattern, in order of appearance."""
    return {p.name: None for p in parts(pattern) if isinstance(p, Name)}


def axes_of(pattern: Pattern) -> dict[str, None]:
    """The axis names in a pattern, in order of appearance."""
    return {p.axis: None for p in parts(pattern) if isinstance(p, _BINDERS)}
