"""Positive constant factors move out of the values that a running maximum follows.

Where `x = c * y` with c > 0, also behind a mask by -inf, max(x) = c * max(y): the fold runs over y,
and every use of x or of the maximum gets the factor. An exponential of their difference then needs
one multiply-add, exp2(y * k - max * k), in place of a product, a difference and a product.

This places constants, as hoisting does: which values, sums and maxima a kernel computes is the
e-graph's choice and stays (`max_scale` of rules/identities.nau is the law; on its own it saves
nothing that extraction prices, as the multiply-add is a matter of instructions). Factors of sums
and of products of matrices are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautile.codegen.schedule.structure import statements
from nautile.codegen.tile import Fold, Loop, Map, Mma, Ref, Statement, Tile, TileProgram, Write
from nautile.terms import Apply, Const, Term, apply, transform, walk

__all__ = ["factor"]

Factors = Mapping[str, float]
MINUS_INFINITY = Const(float("-inf"))


def factor(program: TileProgram) -> TileProgram:
    """The same program with factored tiles; unchanged where no maximum follows a product."""
    factors = _factors(program)
    if not factors:
        return program
    masked = {n: _plain(t, n, factors) for n, t in program.masked.items()}
    return replace(program, body=_body(program.body, factors), masked=masked)


def _factors(program: TileProgram) -> dict[str, float]:
    """The factor of every tile that gets one: sources of maxima, what they mask, and the maxima."""
    found = list(statements(program.body))
    fixed = {t.name for s in found if isinstance(s, Mma) for t in (s.left, s.right)}
    fixed |= {s.source.name for s in found if isinstance(s, Write)}
    fixed |= {s.source.name for s in found if isinstance(s, Fold) and s.monoid != "max"}
    kept = {s.target.name for s in found if isinstance(s, Map) and s.target.dtype == "f32"}
    kept |= {t.name for s in found if isinstance(s, Fold) for t in _targets(s)}
    while True:
        factors = _assign(found, kept - fixed)
        useful = _followed(found, factors)
        if set(factors) <= useful:
            return factors
        kept = useful


def _targets(s: Fold) -> list[Tile]:
    return [t for t in (s.target, s.before) if t is not None]


def _assign(found: list[Statement], allowed: set[str]) -> dict[str, float]:
    """Factors of the allowed tiles, each from those before it."""
    factors: dict[str, float] = {}
    for s in found:
        if isinstance(s, Map) and s.target.name in allowed:
            c, _ = _split(s.value, factors)
            if c != 1:
                factors[s.target.name] = c
        elif isinstance(s, Fold) and _follows(s, factors, allowed):
            factors |= {t.name: factors[s.source.name] for t in _targets(s)}
    return factors


def _follows(s: Fold, factors: Factors, allowed: set[str]) -> bool:
    return (
        s.monoid == "max"
        and s.source.name in factors
        and all(t.name in allowed for t in _targets(s))
    )


def _followed(found: list[Statement], factors: Factors) -> set[str]:
    """The tiles that a factored maximum follows, and the maxima; others need no factor."""
    maps = {s.target.name: s for s in found if isinstance(s, Map)}
    result: set[str] = set()
    for s in found:
        if isinstance(s, Fold) and s.source.name in factors and s.target.name in factors:
            result |= {t.name for t in _targets(s)}
            pending = [s.source.name]
            while pending:
                name = pending.pop()
                if name in factors and name in maps and name not in result:
                    result.add(name)
                    refs = (t for t in walk(maps[name].value) if isinstance(t, Ref))
                    pending += [t.tile.name for t in refs]
    unfollowed = {
        s.source.name
        for s in found
        if isinstance(s, Fold) and s.source.name in factors and s.target.name not in factors
    }
    return result - unfollowed


def _split(term: Term, factors: Factors) -> tuple[float, Term]:
    """term = c * rest with c > 0."""
    match term:
        case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)) if _positive(c):
            inner, rest = _split(a, factors)
            return inner * float(c), rest
        case Apply("div", (a, Const(c))) if _positive(c):
            inner, rest = _split(a, factors)
            return inner / float(c), rest
        case Apply("mul", (a, b)):
            (c, x), (d, y) = _split(a, factors), _split(b, factors)
            return c * d, apply("mul", x, y)
        case Apply("where", (p, a, b)) if b is MINUS_INFINITY:
            inner, rest = _split(a, factors)
            return inner, Apply("where", (_scaled(p, factors), rest, b))
        case Ref(tile) if tile.name in factors:
            return factors[tile.name], term
    return 1.0, _scaled(term, factors)


def _positive(c: object) -> bool:
    return isinstance(c, float) and 1e-6 < c < 1e6


def _scaled(term: Term, factors: Factors) -> Term:
    """The term with the factors of its tiles written out."""

    def step(t: Term) -> Term:
        if isinstance(t, Ref) and t.tile.name in factors:
            return apply("mul", t, Const(factors[t.tile.name]))
        return t

    return transform(term, step)


def _plain(term: Term, name: str, factors: Factors) -> Term:
    return _split(term, factors)[1] if name in factors else _scaled(term, factors)


def _body(body: tuple[Statement, ...], factors: Factors) -> tuple[Statement, ...]:
    changed: list[Statement] = []
    for s in body:
        if isinstance(s, Loop):
            changed.append(replace(s, body=_body(s.body, factors)))
        elif isinstance(s, Map):
            changed.append(replace(s, value=_plain(s.value, s.target.name, factors)))
        else:
            changed.append(s)
    return tuple(changed)
