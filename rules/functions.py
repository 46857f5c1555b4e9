"""Functions of normal forms: what is built in about operations of scalars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .binders import bound_in, unbound
from .polynomial import (
    ONE,
    ZERO,
    Atom,
    Large,
    Monomial,
    Poly,
    atom,
    constant,
    difference,
    inverse,
    power,
    product,
    scaled,
    single,
    total,
)

__all__ = ["COMPARISONS", "LITERALS", "PLAIN", "Functions", "unsigned"]


@dataclass
class Functions:
    """What is known of names while a side is read, and the operations on normal forms. `needs` is
    what the side is defined by: what it divides by, and takes roots and logarithms of."""

    needs: set[Atom] = field(default_factory=set)
    inside: int = 0  # how many choices are around, where not all arms are taken
    compared: int = 0  # how many comparisons are around
    every: bool = False
    signs: dict[str, set[str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    powers: set[str] = field(default_factory=set)

    def need(self, kind: str, of: Any, env: Mapping[str, str]) -> None:
        """Note that the side is defined only where `of` is nonzero, nonneg or positive."""
        if self.compared:
            raise Large
        if self.inside and not self.every:
            return
        self.needs.add((kind, unbound(of), bool(bound_in(of))))

    def _div(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        self.divides(b, env)
        return product(a, inverse(b))

    def divides(self, b: Poly, env: dict[str, str]) -> None:
        one = single(b)
        for of, _ in one[0] if one else [(("poly", _primitive(b)), Fraction(1))]:
            if of[0] == "root":
                self.divides(of[1], env)
            elif not self.positive(of) and not self.is_nonzero(of):
                self.need("nonzero", of, env)

    def _pow(self, a: Poly, n: Poly, env: dict[str, str]) -> Poly:
        whole = n[0][1] if n and n[0][0] == () and len(n) == 1 else Fraction(0) if not n else None
        if whole is not None and whole.denominator == 1 and abs(whole) <= 8:
            if whole < 0:
                self.divides(a, env)
            return power(a, int(whole))
        if whole is not None and whole.denominator == 2 and abs(whole) < 4:
            root = self._sqrt(a, env)
            if whole < 0:
                self.divides(a, env)
            return power(root, int(2 * whole))
        one = single(a)
        if one is None or one[1] <= 0:
            return atom(("fun", "pow", (a, n)))
        sure: Poly = ((tuple((of, e) for of, e in one[0] if self.positive(of)), Fraction(1)),)
        rest: Poly = ((tuple((of, e) for of, e in one[0] if not self.positive(of)), one[1]),)
        out = self._exp(product(n, self._log(sure, env)), env)
        return out if rest == ONE else product(out, atom(("fun", "pow", (rest, n))))

    def _exp2(self, a: Poly, env: dict[str, str]) -> Poly:
        return self._exp(product(a, _LN2), env)

    def _log2(self, a: Poly, env: dict[str, str]) -> Poly:
        return product(self._log(a, env), inverse(_LN2))

    def _exp(self, a: Poly, env: dict[str, str]) -> Poly:
        result = ONE
        for monomial, coefficient in a:
            result = product(result, _exponential(monomial, coefficient))
        return result

    def _log(self, a: Poly, env: dict[str, str]) -> Poly:
        one = single(a)
        if one is None:
            self.need("positive", ("poly", _primitive(a)), env)
            return atom(("log", a))
        found: list[Poly] = []
        rest: Monomial = ()
        for of, exponent in one[0]:
            if of[0] == "exp":
                found.append(scaled(((of[1], Fraction(1)),), exponent))
            elif self.positive(of):
                found.append(scaled(atom(("log", atom(of))), exponent))
            else:
                rest += ((of, exponent),)
        number = one[1]
        if rest or number <= 0:
            inner: Poly = ((rest, Fraction(1 if number > 0 else -1)),)
            self.need("positive", ("poly", inner), env)
            found.append(atom(("log", inner)))
            number = abs(number)
        return total([*found, *([atom(("logarithm", number))] if number != 1 else [])])

    def _sqrt(self, a: Poly, env: dict[str, str]) -> Poly:
        one = single(a)
        if one is None:
            self.need("nonneg", ("poly", _primitive(a)), env)
            return atom(("root", a))
        result, rest = ONE, []
        for of, exponent in one[0]:
            if self.positive(of) or (self.is_nonneg(of) and exponent > 0):
                result = product(result, atom(of, exponent / 2))
            elif exponent % 2 == 0:
                result = product(result, power(self._abs(atom(of), env), int(exponent / 2)))
            else:
                rest.append((of, exponent))
        root = _square_root(one[1])
        number = Fraction(1) if root is not None else one[1]
        inner: Poly = ((tuple(rest), number),)
        if rest or number != 1:
            if rest or number < 0:
                self.need("nonneg", ("poly", _primitive(inner)), env)
            result = product(result, atom(("root", inner)))
        return scaled(result, root if root is not None else 1)

    def _rsqrt(self, a: Poly, env: dict[str, str]) -> Poly:
        root = self._sqrt(a, env)
        self.divides(a, env)
        return inverse(root)

    def _abs(self, a: Poly, env: dict[str, str]) -> Poly:
        one = single(a)
        if one is None:
            return atom(("abs", unsigned(a))) if a else ZERO
        result = constant(abs(one[1]))
        for of, exponent in one[0]:
            kept = self.positive(of) or self.is_nonneg(of) or exponent % 2 == 0
            factor = atom(of, exponent) if kept else atom(("abs", atom(of)), exponent)
            result = product(result, factor)
        return result

    def _sigmoid(self, a: Poly, env: dict[str, str]) -> Poly:
        return inverse(total([ONE, self._exp(scaled(a, -1), env)]))

    def _tanh(self, a: Poly, env: dict[str, str]) -> Poly:
        twice = self._exp(scaled(a, 2), env)
        return product(difference(twice, ONE), inverse(total([twice, ONE])))

    def _max(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return self.largest([a, b])

    def _min(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return scaled(self.largest([scaled(a, -1), scaled(b, -1)]), -1)

    def largest(self, polys: list[Poly]) -> Poly:
        """The largest of some: nested ones opened, what all share taken out."""
        opened: list[Poly] = []
        for poly in polys:
            one = single(poly)
            if one and one[1] == 1 and len(one[0]) == 1 and one[0][0][0][0] == "largest":
                opened += one[0][0][0][1]
            else:
                opened.append(poly)
        distinct = sorted(set(opened), key=repr)
        if len(distinct) == 1:
            return distinct[0]
        shared = {t for t in distinct[0] if all(t in p for p in distinct)}
        if shared:
            rest = [tuple(t for t in p if t not in shared) for p in distinct]
            return total([tuple(sorted(shared, key=repr)), self.largest(rest)])
        factor = self.shared_factor(distinct)
        if factor:
            turned: Poly = ((tuple((of, -e) for of, e in factor), Fraction(1)),)
            rest = [product(p, turned) for p in distinct]
            return product(((factor, Fraction(1)),), self.largest(rest))
        return atom(("largest", tuple(distinct)))

    def shared_factor(self, polys: list[Poly]) -> Monomial:
        """What is not negative and a factor of every term."""
        terms = [dict(m) for p in polys for m, _ in p]
        if not terms or not all(polys):
            return ()
        shared = [of for of in terms[0] if all(of in t for t in terms)]
        return tuple(
            (of, min(t[of] for t in terms))
            for of in sorted(shared, key=repr)
            if of[0] != "is" and (self.positive(of) or self.is_nonneg(of))
            and all(t[of] > 0 for t in terms)
        )  # fmt: skip

    def _floordiv(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        self.divides(b, env)
        one = single(b)
        if one is None or one[1] <= 0 or not all(self.is_size(of) for of, _ in one[0]):
            return atom(("fun", "floordiv", (a, b)))
        quotient = product(a, inverse(b))
        out = [t for t in quotient if self.is_whole(t)]
        left = product(tuple(t for t in quotient if not self.is_whole(t)), b)
        if not left:
            return tuple(out)
        inner = single(left)
        if inner and inner[1] == 1 and len(inner[0]) == 1 and inner[0][0][0][0] == "quotient":
            _, over, under = inner[0][0][0]
            return total([tuple(out), self._floordiv(over, product(under, b), env)])
        return total([tuple(out), atom(("quotient", left, b))])

    def is_size(self, of: Atom) -> bool:
        return bool(of[0] == "size" or (of[0] == "name" and of[1][0].isupper()))

    def is_whole(self, term: tuple[Monomial, Fraction]) -> bool:
        """Whether a term is an integer whatever its atoms are."""
        whole: bool = all(
            e > 0 and e.denominator == 1
            and (of[0] in ("size", "ix", "quotient") or (of[0] == "name" and of[1] in self.whole))
            for of, e in term[0]
        )  # fmt: skip
        return whole and term[1].denominator == 1

    def _mod(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return difference(a, product(b, self._floordiv(a, b, env)))

    def _lt(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return _negative(difference(a, b))

    def _gt(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return _negative(difference(b, a))

    def _le(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return difference(ONE, _negative(difference(b, a)))

    def _ge(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return difference(ONE, _negative(difference(a, b)))

    def _eq(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        between = difference(a, b)
        if not between:
            return ONE
        return atom(("is", "zero", unsigned(between)))

    def _ne(self, a: Poly, b: Poly, env: dict[str, str]) -> Poly:
        return difference(ONE, self._eq(a, b, env))

    def rounded(self, dtype: str, a: Poly) -> Poly:
        one = single(a)
        again = one is not None and one[1] == 1 and len(one[0]) == 1
        if one is not None and again and one[0][0][0][:2] == ("round", dtype) and one[0][0][1] == 1:
            return a
        return atom(("round", dtype, a))

    # --- what is known of atoms

    def positive(self, of: Atom) -> bool:
        if of[0] in ("exp", "size", "ln2"):
            return True
        if self.powers and of[0] in ("mu", "name") and of[1] in self.powers:
            return True
        if of[0] in ("sum", "poly"):
            body: Poly = of[1][1] if of[0] == "sum" else of[1]
            return all(c > 0 and all(self.positive(o) for o, _ in m) for m, c in body)
        return of[0] == "name" and (">" in self.signs.get(of[1], ()) or of[1][0].isupper())

    def is_nonneg(self, of: Atom) -> bool:
        known = of[0] in ("abs", "root", "is", "ix")
        return known or (of[0] == "name" and ">=" in self.signs.get(of[1], ()))

    def is_nonzero(self, of: Atom) -> bool:
        return of[0] == "name" and bool({"!=", "<"} & self.signs.get(of[1], set()))


def _exponential(monomial: Monomial, coefficient: Fraction) -> Poly:
    """exp of a term; of a logarithm it is what that is of."""
    if len(monomial) == 1 and monomial[0][0][0] == "log" and monomial[0][1] == 1:
        of: Poly = monomial[0][0][1]
        if coefficient.denominator == 1 and abs(coefficient) <= 4:
            return power(of, int(coefficient))
    return atom(("exp", monomial), coefficient)


def _negative(a: Poly) -> Poly:
    """Whether something is below zero."""
    if not a or (a[0][0] == () and len(a) == 1):
        return ONE if a and a[0][1] < 0 else ZERO
    return atom(("is", "negative", scaled(a, 1 / abs(a[0][1]))))


def unsigned(a: Poly) -> Poly:
    return a if a[0][1] > 0 else scaled(a, -1)


def _primitive(a: Poly) -> Poly:
    return scaled(a, 1 / abs(a[0][1])) if a else a


def _square_root(number: Fraction) -> Fraction | None:
    if number < 0:
        return None
    roots = [round(x**0.5) for x in (number.numerator, number.denominator)]
    exact = Fraction(*roots) ** 2 == number
    return Fraction(*roots) if exact else None


COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_LN2 = atom(("ln2",))
LITERALS: dict[float, Poly] = {math.log(2): _LN2, 1 / math.log(2): inverse(_LN2)}
PLAIN: dict[str, Callable[..., Poly]] = {
    "add": lambda a, b: total([a, b]),
    "sub": difference,
    "mul": product,
    "neg": lambda a: scaled(a, -1),
    "and": product,
    "or": lambda a, b: difference(total([a, b]), product(a, b)),
    "not": lambda a: difference(ONE, a),
}
