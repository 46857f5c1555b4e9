"""Polynomials over atoms with rational coefficients: the normal form of `nautile.rules.normal`.

```
Poly     ::= {Monomial: coefficient}            immutable, as a sorted tuple of pairs
Monomial ::= ((Atom, exponent), ..)             sorted; exponents are fractions
Atom     ::= a tuple (kind, ..): ("name", ..) ("exp", monomial) ("sum", ..) ("poly", Poly) ..
```

Atoms of kind "is" are truth values, which are their own squares; ("exp", m) to the power c is
exp(c m); ("root", p) is a square root; ("poly", p) stands for a sum that is divided by.
Equal normal forms are equal values; different ones may be equal too.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

__all__ = [
    "ONE",
    "ZERO",
    "Atom",
    "Large",
    "Monomial",
    "Poly",
    "atom",
    "cleared",
    "constant",
    "difference",
    "inverse",
    "power",
    "product",
    "scaled",
    "single",
    "total",
]

Atom = tuple[Any, ...]
Monomial = tuple[tuple[Atom, Fraction], ...]
Poly = tuple[tuple[Monomial, Fraction], ...]
_TERMS = 300
_CLEARED = 12


class Large(Exception):
    """The normal form would have too many terms, or there is none."""


def _made(terms: dict[Monomial, Fraction]) -> Poly:
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > _TERMS:
        raise Large
    return tuple(sorted(kept, key=repr))


def constant(value: Fraction | int) -> Poly:
    """A number."""
    return _made({(): Fraction(value)})


ZERO: Poly = ()
ONE: Poly = (((), Fraction(1)),)


def atom(of: Atom, exponent: Fraction | int = 1) -> Poly:
    """An atom to a power."""
    return ((((of, Fraction(exponent)),), Fraction(1)),)


def total(polys: Iterable[Poly]) -> Poly:
    """The sum."""
    terms: dict[Monomial, Fraction] = {}
    for poly in polys:
        for monomial, coefficient in poly:
            terms[monomial] = terms.get(monomial, Fraction(0)) + coefficient
    return _made(terms)


def scaled(poly: Poly, by: Fraction | int) -> Poly:
    """The poly times a number."""
    return _made({m: c * by for m, c in poly})


def difference(one: Poly, two: Poly) -> Poly:
    """one - two."""
    return total([one, scaled(two, -1)])


def product(one: Poly, two: Poly) -> Poly:
    """The product, powers of roots and of truth values simplified."""
    if len(one) * len(two) > 4 * _TERMS:
        raise Large
    parts = [scaled(_times(m, n), c * d) for m, c in one for n, d in two]
    return total(parts)


def _times(one: Monomial, two: Monomial) -> Poly:
    powers = dict(one)
    for of, exponent in two:
        powers[of] = powers.get(of, Fraction(0)) + exponent
    return _simplified(powers)


def _simplified(powers: dict[Atom, Fraction]) -> Poly:
    """A monomial; what a root squared or a divisor in the numerator stands for is put in."""
    inner: list[Poly] = []
    kept: dict[Atom, Fraction] = {}
    for of, exponent in powers.items():
        if of[0] == "is" and exponent:
            if exponent < 0:
                raise Large
            exponent = Fraction(1)
        elif of[0] == "root" and abs(exponent) >= 2:
            times = int(exponent / 2)
            inner.append(power(of[1], times))
            exponent -= 2 * times
        elif of[0] == "poly" and exponent > 0 and exponent.denominator == 1:
            inner.append(power(of[1], int(exponent)))
            exponent = Fraction(0)
        if exponent:
            kept[of] = exponent
    result: Poly = ((tuple(sorted(kept.items(), key=repr)), Fraction(1)),)
    for poly in inner:
        result = product(result, poly)
    return result


def power(poly: Poly, exponent: int) -> Poly:
    """A whole power."""
    if exponent < 0:
        return inverse(power(poly, -exponent))
    if exponent > 12:
        raise Large
    result = ONE
    for _ in range(exponent):
        result = product(result, poly)
    return result


def single(poly: Poly) -> tuple[Monomial, Fraction] | None:
    """The only term of a poly."""
    return poly[0] if len(poly) == 1 else None


def inverse(poly: Poly) -> Poly:
    """1 / poly: of one term by exponents, of a sum by an atom for what is left of it once the
    common factor and the first coefficient are out."""
    if not poly:
        raise Large
    one = single(poly)
    if one is not None:
        inverted = {of: -exponent for of, exponent in one[0]}
        return scaled(_simplified(inverted), 1 / one[1])
    common, first = _common(poly), poly[0][1]
    turned: Poly = ((tuple((of, -e) for of, e in common), Fraction(1)),)
    rest = scaled(product(poly, turned), 1 / first)
    return scaled(product(turned, atom(("poly", rest), -1)), 1 / first)


def _common(poly: Poly) -> Monomial:
    """The largest monomial that divides every term."""
    shared = {of for m, _ in poly for of, _ in m if of[0] != "is"}
    least = {of: min(dict(m).get(of, Fraction(0)) for m, _ in poly) for of in shared}
    return tuple(sorted(((of, e) for of, e in least.items() if e), key=repr))


def cleared(poly: Poly) -> Poly:
    """The poly times whatever it is divided by: zero if and only if the poly is."""
    for _ in range(_CLEARED):
        divisors = {of: e for m, _ in poly for of, e in m if of[0] == "poly" and e < 0}
        if not divisors:
            return poly
        of = min(divisors, key=repr)
        most = max(-dict(m).get(of, Fraction(0)) for m, _ in poly)
        if most.denominator != 1:
            raise Large
        poly = total(scaled(_lifted(m, of, most), c) for m, c in poly)
    raise Large


def _lifted(monomial: Monomial, of: Atom, by: Fraction) -> Poly:
    powers = dict(monomial)
    powers[of] = powers.get(of, Fraction(0)) + by
    return _simplified(powers)
