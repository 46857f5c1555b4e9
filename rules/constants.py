"""Constant arithmetic: what a right-hand side makes of constants alone is built as its number.

Names are constants where a condition says so (`finite(n)`, a comparison of extents, an upper-case
name). Integers are exact in every class; floating-point numbers are computed in f64, which only the
classes that may round differently allow, and only where the result is finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .guards import arithmetic, constants
from .law import Call, Name, Number, Pattern, Rule, Size, direct, names_of, over

__all__ = ["Made", "computed", "computing", "with_made"]

_WHOLE = ("add", "sub", "mul", "floordiv", "mod", "neg", "max", "min")
_REAL = ("add", "sub", "mul", "div", "pow", "neg", "max", "min")


@dataclass(frozen=True, slots=True)
class Made:
    """The number that a query computed: its place among the law's, and whether it is Int or Num."""

    place: int
    kind: str


def computed(rule: Rule, built: Pattern) -> tuple[Pattern, ...]:
    """The outermost parts of a right-hand side that are arithmetic of constants."""
    return tuple(dict.fromkeys(_outermost(rule, constants(rule), built)))


def _outermost(rule: Rule, known: dict[str, str], pattern: Pattern) -> Iterator[Pattern]:
    if _is_arithmetic(rule, known, pattern):
        yield pattern
        return
    for part in direct(pattern):
        yield from _outermost(rule, known, part)


def _is_arithmetic(rule: Rule, known: dict[str, str], pattern: Pattern) -> bool:
    """True for an operation on constants, at least one of them a name."""
    kinds = {known[n] for n in names_of(pattern) if n in known}
    if not isinstance(pattern, Call) or len(kinds) != 1:
        return False
    whole = kinds == {"Int"}
    if not whole and rule.numerics == "exact":
        return False
    return _is_constant(known, pattern, _WHOLE if whole else _REAL)


def _is_constant(known: dict[str, str], pattern: Pattern, allowed: tuple[str, ...]) -> bool:
    match pattern:
        case Call(operation, arguments):
            return operation in allowed and all(_is_constant(known, a, allowed) for a in arguments)
        case Name(name):
            return name in known
        case Number(value):
            return type(value) is int or (type(value) is float and allowed is _REAL)
    return isinstance(pattern, Size)


def computing(rule: Rule, made: Iterable[Pattern]) -> Iterator[str]:
    """Queries that bind made0, made1, .. to the numbers."""
    known = constants(rule)
    for place, pattern in enumerate(made):
        real = _kind(known, pattern) == "Num"
        yield f"(= made{place} {arithmetic(pattern, known, real=real)})"
        if real:
            yield f"(< (abs made{place}) 1e300)"


def with_made(rule: Rule, pattern: Pattern, made: tuple[Pattern, ...]) -> Pattern | Made:
    """The right-hand side with the numbers in place of their arithmetic."""
    known = constants(rule)

    def visit(part: Pattern) -> Pattern:
        if part in made:
            return Made(made.index(part), _kind(known, part))  # type: ignore[return-value]
        return over(part, visit)

    return visit(pattern) if made else pattern


def _kind(known: dict[str, str], pattern: Pattern) -> str:
    return "Num" if "Num" in {known[n] for n in names_of(pattern)} else "Int"
