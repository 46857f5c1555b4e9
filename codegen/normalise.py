"""Terms brought to the form that lowering reads.

Over a resident axis one block holds every position: a running value is the final one, nothing came
before, and an online sum is a sum. Factors that a contraction's axes do not concern leave its sum,
so that they scale the small accumulator instead of an operand.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautile.codegen.contraction import factor_out
from nautile.codegen.folding import identity
from nautile.codegen.types import carrier, dtype_of
from nautile.errors import LoweringError
from nautile.terms import (
    Axis,
    Before,
    Const,
    Online,
    Reduce,
    Running,
    Term,
    children,
    rebuild,
    reduce_,
    walk,
)

__all__ = ["normalise"]


def normalise(root: Term, streams: frozenset[Axis], tiles: Mapping[Axis, int]) -> Term:
    """An equal term (over the reals) without running values over resident axes, contractions freed
    of foreign factors. Raises LoweringError for a running value outside an online sum."""
    _check_running(root)
    kept = {t.body for t in walk(root) if isinstance(t, (Reduce, Online)) and _sums(t)}
    kept |= {t.reduction for t in walk(root) if isinstance(t, (Running, Before))}
    done: dict[Term, Term] = {}
    for term in walk(root):
        new = _settled(term, tuple(done[c] for c in children(term)), streams)
        if isinstance(new, (Reduce, Online)) and _sums(new) and term not in kept:
            new = factor_out(new, streams, tiles)
        done[term] = new
    return done[root]


def _sums(term: Term) -> bool:
    return isinstance(term, Online) or (isinstance(term, Reduce) and term.monoid == "sum")


def _check_running(root: Term) -> None:
    """Running values live inside the online sums over their axis."""
    stack: list[tuple[Term, frozenset[Axis]]] = [(root, frozenset())]
    seen: set[tuple[Term, frozenset[Axis]]] = set()
    while stack:
        term, inside = item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(term, (Running, Before)) and term.axis not in inside:
            raise LoweringError(f"a running value over {term.axis} stands outside an online sum")
        within = inside | {term.axis} if isinstance(term, Online) else inside
        stack.extend((c, within) for c in children(term))


def _settled(term: Term, inner: tuple[Term, ...], streams: frozenset[Axis]) -> Term:
    match term:
        case Online(axis) if axis not in streams:
            return reduce_("sum", axis, inner[1])
        case Running(_) if term.axis not in streams:
            return inner[0]
        case Before(reduction) if term.axis not in streams:
            return _identity(reduction)
    return rebuild(term, inner)


def _identity(reduction: Term) -> Term:
    if isinstance(reduction, Reduce):
        return Const(identity(reduction.monoid, carrier(dtype_of(reduction))))
    return Const(0.0)
