"""Reductions of normal forms: sums, maxima, their places, and what holds everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import Any

from .binders import bound_in, closed, components, renamed
from .functions import Functions
from .polynomial import (
    ONE,
    Atom,
    Monomial,
    Poly,
    atom,
    difference,
    product,
    scaled,
    single,
    total,
)

__all__ = ["Reductions"]


@dataclass
class Reductions(Functions):
    """Reductions over an axis, whose binder is `bound`."""

    fresh: Iterator[int] = field(default_factory=lambda: count(1))

    def binder(self, axis: str) -> str:
        """A new name for a bound axis."""
        return f"#{next(self.fresh)}:{axis}"

    def folded(self, monoid: str, bound: str, inner: Poly, env: dict[str, str]) -> Poly:
        """The reduction of a body."""
        match monoid:
            case "sum":
                return total(self.summed(bound, m, c) for m, c in inner)
            case "max":
                return self.maximum(bound, inner, env)
            case "min":
                return scaled(self.maximum(bound, scaled(inner, -1), env), -1)
            case "argmax":
                return self.place(bound, inner)
            case "argmin":
                return self.place(bound, scaled(inner, -1))
            case "any":
                return difference(ONE, self.all_(bound, difference(ONE, inner)))
            case "all":
                return self.all_(bound, inner)
        return atom(("fold", monoid, closed((bound,), inner)))

    def all_(self, bound: str, inner: Poly) -> Poly:
        """Whether something holds everywhere; what does not vary stays outside."""
        if bound not in bound_in(inner):
            return inner
        return atom(("is", "all", closed((bound,), inner)))

    def summed(self, bound: str, monomial: Monomial, coefficient: Fraction) -> Poly:
        """The sum of a term over an axis."""
        outside = tuple((of, e) for of, e in monomial if bound not in bound_in(of))
        inside = [(of, e) for of, e in monomial if bound in bound_in(of)]
        out: Poly = ((outside, coefficient),)
        if not inside:
            return product(out, atom(("size", bound.partition(":")[2])))
        binders, atoms = [bound], []
        for of, e in inside:
            if of[0] == "sum" and e == 1:
                more, parts = self.opened(of[1])
                binders += more
                atoms += parts
            else:
                atoms.append((of, e))
        for group, part in components(binders, atoms):
            whole = closed(group, ((tuple(sorted(part, key=repr)), Fraction(1)),))
            out = product(out, atom(("sum", whole)))
        return out

    def opened(self, reduction: Any) -> tuple[list[str], list[tuple[Atom, Fraction]]]:
        """A reduction's binders under fresh names, and its body's atoms."""
        names, poly = reduction
        fresh = {n: f"#{next(self.fresh)}:{n.partition(':')[2]}" for n in names}
        one = single(renamed(poly, fresh))
        assert one is not None
        return list(fresh.values()), list(one[0])

    def maximum(self, bound: str, inner: Poly, env: dict[str, str]) -> Poly:
        """The maximum over an axis."""
        outside = tuple(t for t in inner if bound not in bound_in(t))
        varies = tuple(t for t in inner if bound in bound_in(t))
        if not varies:
            return outside
        if outside:
            return total([outside, self.maximum(bound, varies, env)])
        one = single(varies)
        if one is not None:
            return self.maximum_of_term(bound, *one, env)
        return atom(("max", closed((bound,), varies)))

    def maximum_of_term(
        self, bound: str, monomial: Monomial, coefficient: Fraction, env: dict[str, str]
    ) -> Poly:
        out = [(of, e) for of, e in monomial if bound not in bound_in(of)]
        rest = tuple((of, e) for of, e in monomial if bound in bound_in(of))
        free = all(self.positive(of) or (self.is_nonneg(of) and e > 0) for of, e in out)
        sign = Fraction(1 if coefficient > 0 else -1)
        if not free:
            return atom(("max", closed((bound,), ((monomial, coefficient),))))
        factor: Poly = ((tuple(out), abs(coefficient)),)
        if all(of[0] == "exp" for of, _ in rest):
            whole = total(scaled(((of[1], Fraction(1)),), sign * e) for of, e in rest)
            most = scaled(self.maximum(bound, whole, env), sign)
            return scaled(product(factor, self._exp(most, env)), sign)
        of, e = rest[0]
        if sign > 0 and len(rest) == 1 and e == 1 and of[0] == "log":
            return product(factor, self._log(self.maximum(bound, of[1], env), env))
        if sign > 0 and len(rest) == 1 and e == 1 and of[0] == "largest":
            return product(factor, self.largest([self.maximum(bound, p, env) for p in of[1]]))
        body: Poly = ((rest, sign),)
        if sign > 0 and len(rest) == 1 and e == 1 and of[0] == "max":
            names, inner = of[1]
            fresh = {n: f"#{next(self.fresh)}:{n.partition(':')[2]}" for n in names}
            more = closed((bound, *fresh.values()), renamed(inner, fresh))
            return product(factor, atom(("max", more)))
        return product(factor, atom(("max", closed((bound,), body))))

    def place(self, bound: str, inner: Poly) -> Poly:
        """The place of the maximum: of what orders its terms."""
        varies = tuple(t for t in inner if bound in bound_in(t))
        one = single(varies)
        if one is None:
            return atom(("argmax", closed((bound,), varies)))
        monomial, coefficient = one
        out = [(of, e) for of, e in monomial if bound not in bound_in(of)]
        rest = tuple((of, e) for of, e in monomial if bound in bound_in(of))
        if not all(self.positive(of) for of, _ in out):
            return atom(("argmax", closed((bound,), varies)))
        sign = Fraction(1 if coefficient > 0 else -1)
        of, e = rest[0]
        if all(o[0] == "exp" for o, _ in rest):
            whole = total(scaled(((o[1], Fraction(1)),), x) for o, x in rest)
            return self.place(bound, scaled(whole, sign))
        if len(rest) == 1 and e == 1 and of[0] in ("log", "root"):
            return self.place(bound, scaled(of[1], sign))
        if len(rest) == 1 and e == Fraction(1, 2):
            return self.place(bound, scaled(atom(of), sign))
        return atom(("argmax", closed((bound,), ((rest, sign),))))
