"""Side conditions of laws: what must hold where one is applied, or where it is of use.

The grammar is that of `nautile.rules.parser`; `nautile.rules.egglog` prints them as queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .law import Pattern

__all__ = [
    "Apart",
    "Bare",
    "Bound",
    "Carrier",
    "Chain",
    "Compare",
    "Condition",
    "Differs",
    "Free",
    "Kind",
    "NotFree",
    "Sign",
]


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

    `size(P)`, made by the reader, is an upper-case name that no fold declares: a positive integer
    constant. `type(a) == f64` is the kind "f64": the type that the term carries.

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


@dataclass(frozen=True, slots=True)
class Bound:
    """`name < 5` and its like, relation one of > >= < <= against a number other than 0: a constant
    of that range, or a term whose sign shows that it lies there."""

    name: str
    relation: str
    number: float


@dataclass(frozen=True, slots=True)
class Compare:
    """`size(j) > 1`, `J == P * Q`, `n % P == 0`: a relation between expressions of extents, numbers
    and constants. Relations are == != < <= > >=; `//` rounds down, `%` has the divisor's sign."""

    left: Pattern
    relation: str
    right: Pattern


Condition = (
    NotFree | Free | Apart | Bare | Chain | Carrier | Sign | Kind | Differs | Bound | Compare
)
