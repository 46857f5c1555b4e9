"""Divisions whose divisors change from element to element, by one reciprocal for four of them.

`1 / a` is `b c d (1 / (a b c d))`: one operation of the special-function unit in place of four, for
nine products, where the divisors are known to be at least `LEAST` and so large that their product
neither vanishes nor overflows. sigmoid(x) is 1 / (1 + exp(-x)). A divisor beyond 2^31 is taken as
2^31, so a quotient has a relative error of some 3e-7 and an absolute one of 5e-10 times its
dividend: for values that need an absolute accuracy alone (accuracy.py).

That is how quotients are evaluated, as the compiler's own division is by a reciprocal; what is
divided by what is left as the e-graph chose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nautile.codegen.tile import Ref, Tile
from nautile.codegen.types import dtype_of
from nautile.terms import Apply, Axis, Cast, Const, Term, apply, children, transform, walk

__all__ = ["Divided", "divided"]

LEAST = 2.0**-20
_NEVER_NEGATIVE = ("exp", "exp2", "sigmoid", "abs", "sqrt")


@dataclass(frozen=True, slots=True)
class Divided:
    """A term in which `tiles` stand for the reciprocals of `divisors`; `kept` tells of each whether
    a NaN of the divisor must be one of the reciprocal: where a dividend would not be NaN, too."""

    term: Term
    tiles: tuple[Tile, ...]
    divisors: tuple[Term, ...]
    kept: tuple[bool, ...]


def divided(term: Term, axes: frozenset[Axis], names: Sequence[str]) -> Divided | None:
    """The term over reciprocals of its divisors that vary along all of `axes`, named in order;
    None where there are none. A divisor that holds another one, or has no name left, stays."""
    spread = transform(term, _spread)
    found = list(dict.fromkeys(d for t in walk(spread) if (d := _divisor(t, axes)) is not None))
    inner = [d for d in found if not any(_divisor(t, axes) is not None for t in walk(d))]
    inner = inner[: len(names)]
    if not inner:
        return None
    tiles = tuple(Tile(names[n], tuple(sorted(axes)), "f32") for n in range(len(inner)))
    refs = {d: Ref(t) for d, t in zip(inner, tiles, strict=True)}

    def step(t: Term) -> Term:
        match t:
            case Apply("div", (a, b)) if b in refs and _divisor(t, axes) is not None:
                return refs[b] if a == Const(1.0) else apply("mul", a, refs[b])
        return t

    over: dict[Term, list[Term]] = {d: [] for d in inner}
    for t in walk(spread):
        divisor = _divisor(t, axes)
        if divisor in over:
            over[divisor].append(children(t)[0])
    kept = tuple(not all(_values(d) <= _spoiled(a) for a in over[d]) for d in inner)
    return Divided(transform(spread, step), tiles, tuple(inner), kept)


def _values(t: Term) -> set[Term]:
    """The values of which a divisor is made."""
    return {x for x in walk(t) if isinstance(x, Ref)}


def _spoiled(dividend: Term) -> set[Term]:
    """Values any of which makes the dividend NaN, if it is."""
    found: set[Term] = set()
    pending = [dividend]
    while pending:
        match pending.pop():
            case Apply("mul" | "add" | "sub" | "neg", arguments):
                pending += arguments
            case Cast("f32", a):
                pending.append(a)
            case leaf:
                found.add(leaf)
    return found


def _spread(t: Term) -> Term:
    """sigmoid as the quotient that it is; a product with 1 / b as a quotient."""
    match t:
        case Apply("sigmoid", (x,)) if dtype_of(t) == "f32":
            return apply("div", Const(1.0), apply("add", Const(1.0), apply("exp", _negative(x))))
        case Apply("mul", (a, Apply("div", (Const(1.0), b)))) if not isinstance(a, Const):
            return apply("div", a, b)
        case Apply("mul", (Apply("div", (Const(1.0), b)), a)) if not isinstance(a, Const):
            return apply("div", a, b)
    return t


def _negative(x: Term) -> Term:
    match x:
        case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)):
            return apply("mul", a, Const(-float(c)))
    return apply("mul", x, Const(-1.0))


def _divisor(t: Term, axes: frozenset[Axis]) -> Term | None:
    """What a quotient of floats divides by, where that is an element's and bounded below."""
    match t:
        case Apply("div", (_, b)) if b.free >= axes and dtype_of(t) == "f32" == dtype_of(b):
            return b if (_least(b) or 0.0) >= LEAST else None
    return None


def _least(root: Term) -> float | None:
    """A bound below, or None where none is known."""
    known: dict[Term, float | None] = {}
    for t in walk(root):
        known[t] = _low(t, known)
    return known[root]


def _low(t: Term, known: Mapping[Term, float | None]) -> float | None:
    match t:
        case Const(value):
            return float(value)
        case Apply("add", (a, b)):
            low = (known[a], known[b])
            return None if low[0] is None or low[1] is None else low[0] + low[1]
        case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)):
            low_a = known[a]
            if low_a is not None and float(c) >= 0:
                return low_a * float(c)
            return 0.0 if _never_negative(t, known) else None
        case Apply("mul", _):
            return 0.0 if _never_negative(t, known) else None
        case Apply("max", (a, b)):
            return max((x for x in (known[a], known[b]) if x is not None), default=None)
        case Apply("pow", (_, Const(c))) if float(c) % 2 == 0 and float(c) >= 0:
            return 0.0
        case Apply(operation, _) if operation in _NEVER_NEGATIVE:
            return 0.0
        case Cast("f32", a):
            return known[a]
    return None


def _never_negative(product: Term, known: Mapping[Term, float | None]) -> bool:
    """Whether a product's factors are squares and others that are never negative."""
    odd: set[Term] = set()
    pending = [product]
    while pending:
        match pending.pop():
            case Apply("mul", (a, b)):
                pending += [a, b]
            case factor:
                odd ^= {factor}
    least = [known[f] for f in odd]
    return all(low is not None and low >= 0 for low in least)
