"""Side conditions as egglog queries.

Extents and constants are compared as the numbers that they are: as integers, or in f64 where a
floating-point constant takes part. `//` and `%` are written out, as egglog's round towards zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .conditions import (
    Apart,
    Bare,
    Bound,
    Chain,
    Compare,
    Condition,
    Differs,
    Free,
    Kind,
    NotFree,
)
from .law import Call, Name, Number, Pattern, Rule, Size, names_of, parts

__all__ = ["arithmetic", "bindings", "compared", "condition_text", "constants", "sizes_in"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "^"}
_NAMED = {"max": "max", "min": "min"}


def condition_text(condition: Condition, position: int) -> str:
    """The query of a condition; "" for those that look at traits or make queries of their own."""
    match condition:
        case NotFree(axis, name) | Free(axis, name):
            mask, same = f"fv{position}", "=" if isinstance(condition, NotFree) else "!="
            return f"(= {mask} (fv v_{name})) ({same} 0 (& (<< 1 x_{axis}) {mask}))"
        case Apart(name, carrier):
            pair = f"rd{position}", f"ra{position}"
            found = f"(= {pair[0]} (rd v_{name})) (= {pair[1]} (ra v_{carrier}))"
            return f"{found} (= 0 (& {pair[0]} {pair[1]}))"
        case Differs(name, value):
            return f"(= v_{name} (Num n{position})) (!= n{position} {value!r})"
        case Bound(name, relation, value):
            return f"(= v_{name} (Num n{position})) ({relation} n{position} {value!r})"
        case Kind("still", name):
            return f"(= 0 (ra v_{name}))"
        case Chain(axis, first, second, third):
            names = (first, second, third)
            masks = [f"fv{position}_{n}" for n in names]
            looked = " ".join(f"(= {m} (fv v_{n}))" for m, n in zip(masks, names, strict=True))
            lacks = f"(^ -1 (| {masks[2]} (<< 1 x_{axis})))"
            return f"{looked} (= 0 (& (& {masks[0]} {masks[1]}) {lacks}))"
        case Bare(axis, name):
            mask = f"loose{position}"
            return f"(= {mask} (loose v_{name})) (= 0 (& (<< 1 x_{axis}) {mask}))"
    return ""


def constants(rule: Rule) -> dict[str, str]:
    """Names that stand for constants, with what these are: Int, or Num for floating-point ones."""
    kinds = {c.name: c.kind for c in rule.conditions if isinstance(c, Kind)}
    found = {n: "Int" for n, kind in kinds.items() if kind == "size"}
    asked = [p for c in rule.conditions if isinstance(c, Compare) for p in (c.left, c.right)]
    for name in (n for p in asked for n in names_of(p)):
        found[name] = "Int" if kinds.get(name) in ("integer", "size") else "Num"
    return found | {n: "Num" for n, kind in kinds.items() if kind == "finite" and n not in found}


def bindings(rule: Rule, used: Iterable[str]) -> Iterator[str]:
    """Queries that bind c_NAME to the number that a constant is; sizes are positive."""
    known = constants(rule)
    for name in dict.fromkeys(used):
        yield f"(= v_{name} ({known[name]} c_{name}))"
        if Kind("size", name) in rule.conditions:
            yield f"(> c_{name} 0)"


def compared(rule: Rule) -> Iterator[str]:
    """The queries of comparisons of extents and constants."""
    known = constants(rule)
    for c in rule.conditions:
        if isinstance(c, Compare):
            names = [n for p in (c.left, c.right) for n in names_of(p)]
            real = any(known[n] == "Num" for n in names)
            sides = [arithmetic(p, known, real=real) for p in (c.left, c.right)]
            relation = {"==": "=", "!=": "!="}.get(c.relation, c.relation)
            yield f"({relation} {sides[0]} {sides[1]})"


def sizes_in(patterns: Iterable[Pattern]) -> dict[str, None]:
    """The axes whose extents the patterns mention."""
    return dict.fromkeys(p.axis for s in patterns for p in parts(s) if isinstance(p, Size))


def arithmetic(pattern: Pattern, known: dict[str, str], *, real: bool) -> str:
    """The number that extents, numbers and constants make, as egglog's own arithmetic."""

    def inner(part: Pattern) -> str:
        return arithmetic(part, known, real=real)

    match pattern:
        case Number(value):
            return repr(float(value)) if real else str(int(value))
        case Size(axis):
            return f"n_{axis}" if real else f"(to-i64 n_{axis})"
        case Name(name):
            return f"(to-f64 c_{name})" if real and known[name] == "Int" else f"c_{name}"
        case Call("neg", (a,)):
            return f"(- {'0.0' if real else '0'} {inner(a)})"
        case Call("mod", (a, b)):
            one, two = inner(a), inner(b)
            return f"(% (+ (% {one} {two}) {two}) {two})"
        case Call("floordiv", (a, b)):
            return f"(/ (- {inner(a)} {inner(Call('mod', (a, b)))}) {inner(b)})"
        case Call(operation, (a, b)) if operation in _INFIX or operation in _NAMED:
            sign = _INFIX.get(operation) or _NAMED[operation]
            return f"({sign} {inner(a)} {inner(b)})"
    raise TypeError(pattern)
