"""Which values need an absolute accuracy alone: what they are made for are exponentials.

`exp(c (x - m))` has the relative error that c x has as an absolute one. Where x is rounded to 16
bits after its exponential, tanh may be 2 sigmoid(2 x) - 1, which has absolute errors of some 1e-7
and is less exact, relatively, near 0. A value qualifies where all that reads it are exponentials of
linear terms with factors below `LARGEST`, comparisons, extremes that qualify, and values that do.

This chooses how a function is computed; the program's formulas stay as the e-graph left them (that
1 + tanh(x) is 2 sigmoid(2 x) is a law of rules/elementwise.nau). `_times` folds constant factors
into the argument of the function alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautile.codegen.schedule.registers import reads
from nautile.codegen.schedule.structure import Structure, statements
from nautile.codegen.tile import Fold, Map, Ref, Statement
from nautile.codegen.types import dtype_of
from nautile.terms import Apply, Cast, Const, Term, apply, children, transform

__all__ = ["absolute", "bounded", "share"]

LARGEST = 1000.0  # times 3e-7 is below what a rounding to 16 bits shows
HARMLESS = 3e-4  # of an exponential's argument
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def absolute(structure: Structure) -> dict[str, float]:
    """The values that need an absolute accuracy alone, and the error that each may have."""
    found = list(statements(structure.program.body))
    names = _absolute(structure)
    moved = dict.fromkeys(names, 0.0)
    for s in reversed(found):
        for name in reads(s) & names:
            moved[name] = max(moved[name], _moved(s, name, moved))
    return {n: HARMLESS / m if m else 1.0 for n, m in moved.items() if m <= LARGEST}


def _moved(s: Statement, name: str, moved: Mapping[str, float]) -> float:
    """By how much the arguments of exponentials change with a value that a statement reads."""
    if isinstance(s, Fold):
        return max(moved.get(t.name, 0.0) for t in (s.target, s.before) if t is not None)
    assert isinstance(s, Map)
    own = moved.get(s.target.name)
    paths = _paths(s.value, name, None if own is None else 1.0)
    return max(paths, default=0.0) * (1.0 if own is None else own)


def share(term: Term, name: str) -> float:
    """By how much a term changes with a value that it reads."""
    return max(_paths(term, name, 1.0), default=0.0)


def _absolute(structure: Structure) -> frozenset[str]:
    found = list(statements(structure.program.body))
    names = {s.target.name for s in found if isinstance(s, Map) and s.target.dtype == "f32"}
    folds = [s for s in found if isinstance(s, Fold) and s.monoid in ("max", "min")]
    names |= {t.name for s in folds for t in (s.target, s.before) if t is not None}
    names &= set(structure.columns)
    while True:
        kept = {n for n in names if all(_accepts(s, n, names) for s in found if n in reads(s))}
        if kept == names:
            return frozenset(n for n in names if any(n in reads(s) for s in found))
        names = kept


def _accepts(s: Statement, name: str, names: set[str]) -> bool:
    """Whether a reader of a value asks for no relative accuracy of it."""
    if isinstance(s, Fold):
        own = [t for t in (s.target, s.before) if t is not None]
        return s.monoid in ("max", "min") and all(t.name in names for t in own)
    if isinstance(s, Map):
        inside = s.target.name in names
        return all(p <= LARGEST for p in _paths(s.value, name, 1.0 if inside else None))
    return False


def _paths(term: Term, name: str, factor: float | None) -> Iterator[float]:
    """The factor of every occurrence of a value: by how much an exponential's argument, or a value
    of absolute accuracy, changes with it. Infinite for any other use."""
    match term:
        case Ref(tile):
            if tile.name == name:
                yield float("inf") if factor is None else factor
        case Apply("exp" | "exp2", (x,)):
            yield from _paths(x, name, 1.0)
        case Apply(operation, _) if operation in _COMPARISONS:
            return
        case Apply("add" | "sub" | "neg" | "max" | "min", arguments):
            for a in arguments:
                yield from _paths(a, name, factor)
        case Apply("where", (p, a, b)):
            for x in (a, b):
                yield from _paths(x, name, factor)
            yield from _paths(p, name, None)
        case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)):
            yield from _paths(a, name, None if factor is None else factor * abs(float(c)))
        case Apply("div", (a, Const(c))) if c:
            yield from _paths(a, name, None if factor is None else factor / abs(float(c)))
        case Cast("f32", a):
            yield from _paths(a, name, factor)
        case _:
            for a in children(term):
                yield from _paths(a, name, None)


def bounded(term: Term) -> Term:
    """tanh as 2 sigmoid(2 x) - 1, factors folded."""

    def step(t: Term) -> Term:
        match t:
            case Apply("tanh", (x,)) if dtype_of(t) == "f32":
                twice = Apply("sigmoid", (_times(x, 2.0),))
                return apply("sub", apply("mul", twice, Const(2.0)), Const(1.0))
        return t

    return transform(term, step)


def _times(x: Term, factor: float) -> Term:
    """The product with a constant, other constant factors folded into it."""
    if factor == 1:
        return x
    match x:
        case Apply("mul", (a, Const(c))) | Apply("mul", (Const(c), a)):
            return _times(a, factor * float(c))
        case Apply("div", (a, Const(c))) if c:
            return _times(a, factor / float(c))
    return Apply("mul", (x, Const(factor)))
