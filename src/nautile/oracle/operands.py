"""What tensor cores round in a sum of products: the operands that are float32 beside a narrow one.

A contraction sums a product over axes that two of its parts share, each of which has an axis of its
own; or one of which has, where the other is a row that waits for another reduction. The parts of a
product are found through quotients, negation and `where(p, a, 0)`; those that do not depend on the
summed axes leave the sum and are no operands. Where one part is stored in a narrow type, an
implementation may choose it as an operand, and then rounds the others to its type.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

from nautile.terms import Apply, Axis, Cast, Const, Load, Online, Reduce, Term, apply, rebuild, walk
from nautile.types import type_of

__all__ = ["NARROW", "rounded", "stored_type"]

Sum = TypeVar("Sum", Reduce, Online)
NARROW = ("f8e5m2", "f8e4m3", "bf16", "f16")  # the coarsest first


def stored_type(term: Term) -> str | None:
    """The element type that a factor has by itself; None for one that is computed."""
    if isinstance(term, Load):
        return term.buffer.dtype if term.buffer.dtype not in ("f32", "tf32") else None
    if isinstance(term, Cast):
        return term.dtype if term.dtype not in ("f32", "tf32") else None
    return "const" if isinstance(term, Const) else None


@lru_cache(maxsize=1024)
def rounded(term: Sum) -> Sum:
    """The sum with its float32 operands cast to the narrow type of another; itself where it is no
    contraction or nothing is narrow."""
    axes, body = [term.axis], term.body
    while isinstance(body, Reduce) and body.monoid == "sum" and body.axis not in axes:
        axes.append(body.axis)
        body = body.body
    summed = frozenset(axes)
    operands = [p for p in _parts(body) if p.free & summed]
    held = {stored_type(p) for p in operands}
    narrow = next((t for t in NARROW if t in held), None)
    if narrow is None or not _contracts(operands, summed):
        return term
    inside = _cast(body, summed, narrow)
    for axis in reversed(axes[1:]):
        inside = Reduce("sum", axis, inside)
    if isinstance(term, Online):
        return Online(term.axis, term.repair, inside, term.offset)
    return Reduce("sum", term.axis, inside)


def _parts(term: Term) -> Iterator[Term]:
    """Factors and divisors of a product."""
    match term:
        case Apply("mul" | "div", (a, b)):
            yield from _parts(a)
            yield from _parts(b)
        case Apply("neg", (a,)) | Apply("where", (_, a, Const(0))):
            yield from _parts(a)
        case _:
            yield term


def _contracts(operands: list[Term], summed: frozenset[Axis]) -> bool:
    """Whether two parts share summed axes and each has an axis of its own, or the stored one has
    and the other waits for a reduction."""
    own = [p for p in operands if len(p.free) > len(p.free & summed)]
    if any(p.free - q.free and q.free - p.free for p in own for q in own):
        return True
    rows = [p for p in operands if any(isinstance(t, (Reduce, Online)) for t in walk(p))]
    stored = [q for q in own if stored_type(q) in NARROW]
    return any(q.free - p.free for p in rows for q in stored)


def _cast(term: Term, summed: frozenset[Axis], dtype: str, *, masked: bool = False) -> Term:
    """The term with its operands rounded. Behind a mask a product that is no larger than one of its
    factors is rounded as a whole, too: it is an operand, which elsewhere its evaluation rounds."""
    match term:
        case Apply("mul" | "div", (a, b)):
            parts = (_cast(c, summed, dtype, masked=masked) for c in (a, b))
            product = apply(term.operation, *parts)
            whole = masked and term.free in (a.free, b.free) and summed <= term.free
            return Cast(dtype, product) if whole and type_of(term) == "f32" else product
        case Apply("neg", (a,)):
            return apply("neg", _cast(a, summed, dtype, masked=masked))
        case Apply("where", (p, a, Const(0))):
            inner = _cast(a, summed, dtype, masked=True)
            return rebuild(term, (p, inner, term.arguments[2]))
    if not term.free & summed or stored_type(term) is not None or type_of(term) != "f32":
        return term
    return Cast(dtype, term)
