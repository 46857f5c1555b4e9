"""Stores that round because every reader is a tensor core.

Under `real`, a float32 operand of a contraction may be rounded to the type of its bf16, f16 or fp8
neighbour. So may a tensor between two kernels that is read as such an operand and nowhere else: it
is the same rounding, done once at the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nautile.extract.kernel import Plan
from nautile.terms import Apply, Axis, Cast, Const, Load, Online, Reduce, Term, children, walk

__all__ = ["NARROW", "rounded_operands"]

NARROW = frozenset({"bf16", "f16", "f8e4m3", "f8e5m2"})


def rounded_operands(plan: Plan) -> frozenset[str]:
    """Tensors that the plan stores in a narrow type which each of their readers rounds them to."""
    terms = [o.term for k in plan.kernels for o in k.outputs]
    made = {o.buffer.name: o.buffer.dtype for k in plan.kernels for o in k.outputs}
    narrow = {n: d for n, d in made.items() if d in NARROW}
    places = _places(terms, set(narrow))
    allowed = set(_operands(terms, narrow))
    read = {load.buffer.name for _, load in places}
    return frozenset(n for n in read if all(p in allowed for p in places if p[1].buffer.name == n))


def _places(terms: Iterable[Term], names: set[str]) -> set[tuple[Term, Load]]:
    """Where the named tensors are read: the parent and the load."""
    found: set[tuple[Term, Load]] = set()
    for root in terms:
        for parent in walk(root):
            found |= {
                (parent, c)
                for c in children(parent)
                if isinstance(c, Load) and c.buffer.name in names
            }
        if isinstance(root, Load) and root.buffer.name in names:
            found.add((root, root))
    return found


def _operands(terms: Iterable[Term], narrow: dict[str, str]) -> Iterator[tuple[Term, Load]]:
    """Reads as a factor of a sum of products that has another factor of the same narrow type."""
    for root in terms:
        for term in walk(root):
            if isinstance(term, Online) or (isinstance(term, Reduce) and term.monoid == "sum"):
                factors = list(_factors(term.body, term, term.axis))
                for parent, factor in factors:
                    if isinstance(factor, Load) and factor.buffer.name in narrow:
                        wanted = narrow[factor.buffer.name]
                        others = (f for _, f in factors if f is not factor)
                        if any(_type(f, narrow) == wanted for f in others):
                            yield parent, factor


def _factors(term: Term, parent: Term, axis: Axis) -> Iterator[tuple[Term, Term]]:
    """Factors with their parents, through products, quotients by what leaves the sum over the axis,
    inner sums, and selections of zero."""
    match term:
        case Apply("mul", (left, right)):
            yield from _factors(left, term, axis)
            yield from _factors(right, term, axis)
        case Apply("div", (left, right)) if axis not in right.free:
            yield from _factors(left, term, axis)
        case Apply("where", (_, chosen, Const(value))) if value == 0:
            yield from _factors(chosen, term, axis)
        case Reduce("sum", _, body):
            yield from _factors(body, term, axis)
        case _:
            yield parent, term


def _type(term: Term, narrow: dict[str, str]) -> str:
    if isinstance(term, Load):
        return narrow.get(term.buffer.name, term.buffer.dtype)
    return term.dtype if isinstance(term, Cast) else "f32"
