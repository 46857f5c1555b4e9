"""tanh where all arguments of a warp are small: a polynomial, without the special-function unit.

A term's tanh qualifies where it needs an absolute accuracy alone (accuracy.py) and nothing else in
the term is read from registers that the value replaces: `4 u` takes its place first. Every element
below 2 in size means |u| < 0.5, which one bit of all of them tells: that of the exponent which 2
and whatever is larger have, infinities and NaN among them.
"""

from __future__ import annotations

from nautile.codegen.tile import Ref
from nautile.codegen.types import dtype_of
from nautile.terms import Apply, Axis, Const, Term, apply, transform, walk

__all__ = ["capped", "fourfold", "in_place"]


def capped(term: Term, axes: frozenset[Axis]) -> Apply | None:
    """The only tanh of elements of a term, where the rest reads no element of another value."""
    found = {t for t in walk(term) if isinstance(t, Apply) and t.operation == "tanh"}
    if len(found) != 1:
        return None
    (curve,) = found
    own = axes <= curve.free and dtype_of(curve) == "f32"
    rest = in_place(term, curve, Const(0.0))
    elements = any(isinstance(t, Ref) and axes <= t.free for t in walk(rest))
    return curve if own and not elements else None


def in_place(term: Term, curve: Term, other: Term) -> Term:
    """The term with another one for its tanh."""
    return transform(term, lambda t: other if t == curve else t)


def fourfold(curve: Apply) -> Term:
    """Four times the argument, constant factors folded."""
    (x,) = curve.arguments
    factor = 4.0
    while True:
        match x:
            case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)):
                x, factor = a, factor * float(c)
            case Apply("div", (a, Const(c))) if c:
                x, factor = a, factor / float(c)
            case _:
                return apply("mul", x, Const(factor))
