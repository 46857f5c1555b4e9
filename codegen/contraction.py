"""Contractions, recognised by structure: a sum over products of two operands that share the summed
axes and each have an axis of their own (or one of them has, where a chain has a single row).

`sum[k](a * b)` with a over (i, k) and b over (j, k) is one whatever a and b are; factors that do
not depend on k leave the sum, the others join the operand that grows least, and `where(p, x, 0)`
keeps its condition on the operand that has the condition's axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product as choices
from math import prod

from nautile.codegen.types import dtype_of
from nautile.dtypes import DTYPES
from nautile.terms import Apply, Axis, Const, Online, Reduce, Term, apply, walk

__all__ = ["Contraction", "contraction", "factor_out", "peel"]

_LIMIT = 10


@dataclass(frozen=True, slots=True)
class Contraction:
    """`sum over axes of left * right`, operands rounded to type `operand`."""

    left: Term
    right: Term
    axes: tuple[Axis, ...]
    operand: str


@dataclass(slots=True)
class _Product:
    """A product taken apart: factors, divisors, and conditions outside which it is 0."""

    factors: list[Term] = field(default_factory=list)
    divisors: list[Term] = field(default_factory=list)
    conditions: list[Term] = field(default_factory=list)

    @property
    def parts(self) -> list[tuple[str, Term]]:
        rows = (("factor", self.factors), ("divisor", self.divisors), ("where", self.conditions))
        return [(kind, term) for kind, terms in rows for term in terms]

    def add(self, kind: str, term: Term) -> None:
        rows = {"factor": self.factors, "divisor": self.divisors, "where": self.conditions}
        rows[kind].append(term)

    def term(self) -> Term:
        """The product as a term; an empty one is 1."""
        value = (
            reduce(lambda a, b: apply("mul", a, b), self.factors) if self.factors else Const(1.0)
        )
        for divisor in self.divisors:
            value = apply("div", value, divisor)
        for condition in self.conditions:
            value = apply("where", condition, value, Const(0.0))
        return value


def peel(root: Term, streams: frozenset[Axis]) -> tuple[tuple[Axis, ...], Term]:
    """The axes of directly nested sums, outermost first, and the innermost body. At most one of the
    axes is streamed: a second one would need a loop of its own."""
    assert isinstance(root, (Reduce, Online))
    axes, body = [root.axis], root.body
    while isinstance(body, Reduce) and body.monoid == "sum" and body.axis not in axes:
        if body.axis in streams and any(a in streams for a in axes):
            break
        axes.append(body.axis)
        body = body.body
    return tuple(axes), body


def contraction(
    root: Term,
    streams: frozenset[Axis],
    tiles: Mapping[Axis, int],
    rounding: bool = True,
    *,
    lone: bool = False,
    folded: frozenset[Term] = frozenset(),
) -> Contraction | None:
    """The reduction as a contraction, or None where it is not one. `rounding` lets an f32 operand
    be rounded to the narrow type of the other. With `lone`, one operand may be a single row: have
    no axis of its own but such of one position. Factors that may join either operand join the one
    that holds a load of `folded`: it is formed in registers, and the other may be copied."""
    if not isinstance(root, Online) and not (isinstance(root, Reduce) and root.monoid == "sum"):
        return None
    axes, body = peel(root, streams)
    whole = _take_apart(body)
    split = _best_split(whole, frozenset(axes), tiles, lone, folded)
    if split is None:
        return None
    left, right = split
    for kind, term in _outside(whole, axes):
        left.add(kind, term)
    operands = left.term(), right.term()
    return Contraction(*operands, axes, _operand(*operands, rounding))


def factor_out(root: Reduce | Online, streams: frozenset[Axis], tiles: Mapping[Axis, int]) -> Term:
    """A contraction with the factors that its axes do not concern outside the sum; other reductions
    as they are, and an online sum with an offset, which is not a product."""
    if isinstance(root, Online) and root.offset is not None:
        return root
    axes, body = peel(root, streams)
    whole, inside, outside = _take_apart(body), _Product(), _Product()
    loose = _outside(whole, axes)
    if not loose or _best_split(whole, frozenset(axes), tiles, lone=True) is None:
        return root
    for part in whole.parts:
        (outside if part in loose else inside).add(*part)
    core: Term = inside.term()
    for axis in reversed(axes[1:]):
        core = Reduce("sum", axis, core)
    outside.factors.insert(0, _same(root, core))
    return outside.term()


def _outside(whole: _Product, axes: tuple[Axis, ...]) -> list[tuple[str, Term]]:
    """The parts that do not depend on the summed axes."""
    return [part for part in whole.parts if not part[1].free & frozenset(axes)]


def _same(root: Reduce | Online, body: Term) -> Term:
    if isinstance(root, Online):
        return Online(root.axis, root.repair, body, root.offset)
    return Reduce("sum", root.axis, body)


def _take_apart(body: Term) -> _Product:
    found = _Product()
    stack: list[tuple[str, Term]] = [("factor", body)]
    while stack:
        kind, term = stack.pop()
        match term:
            case Apply("mul", (a, b)) if kind == "factor":
                stack += [("factor", b), ("factor", a)]
            case Apply("mul", (a, b)):
                stack += [("divisor", b), ("divisor", a)]
            case Apply("div", (a, b)) if kind == "factor":
                stack += [("divisor", b), ("factor", a)]
            case Apply("neg", (a,)) if kind == "factor":
                stack += [("factor", a), ("factor", Const(-1.0))]
            case Apply("where", (p, a, Const(0))) if kind == "factor":
                found.add("where", p)
                stack.append(("factor", a))
            case _:
                found.add(kind, term)
    return found


def _best_split(
    whole: _Product,
    axes: frozenset[Axis],
    tiles: Mapping[Axis, int],
    lone: bool = False,
    folded: frozenset[Term] = frozenset(),
) -> tuple[_Product, _Product] | None:
    """The two operands whose tiles are smallest, first the one whose factor stands first."""
    inner = [part for part in whole.parts if part[1].free & axes]
    if not 2 <= len(inner) <= _LIMIT:
        return None
    best: tuple[float, tuple[_Product, _Product]] | None = None
    for pair in _splits(inner):
        size = _size(*pair, axes, tiles, lone, folded)
        if size is not None and (best is None or size < best[0]):
            best = size, pair
    return best[1] if best else None


def _splits(parts: list[tuple[str, Term]]) -> Iterator[tuple[_Product, _Product]]:
    for sides in choices((0, 1), repeat=len(parts) - 1):
        pair = (_Product(), _Product())
        for side, (kind, term) in zip((0, *sides), parts, strict=True):
            pair[side].add(kind, term)
        if pair[0].factors and pair[1].factors:
            yield pair


def _size(
    left: _Product,
    right: _Product,
    axes: frozenset[Axis],
    tiles: Mapping[Axis, int],
    lone: bool,
    folded: frozenset[Term],
) -> float | None:
    """Elements of both operands' tiles (those that must be computed weigh a little more), or None
    where the split makes no contraction."""
    a, b = _free(left), _free(right)
    own = [any(x.extent > 1 for x in only) for only in (a - b, b - a)]
    if not (axes <= a and axes <= b and (any(own) if lone else all(own))):
        return None
    weights = [_weight(side, folded) for side in (left, right)]
    sizes = [prod(tiles.get(x, x.extent) for x in free) for free in (a, b)]
    return sum(w * s for w, s in zip(weights, sizes, strict=True))


def _weight(side: _Product, folded: frozenset[Term]) -> float:
    """What an element of the operand costs, 1 where it is copied: then its type may also be the
    other operand's."""
    if len(side.parts) == 1 and dtype_of(side.parts[0][1]) != "f32":
        return 1.0
    inside = walk(*(term for _, term in side.parts))
    return 0.5 if len(side.parts) > 1 and not folded.isdisjoint(inside) else 1.01


def _free(side: _Product) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(term.free for _, term in side.parts))


def _operand(left: Term, right: Term, rounding: bool) -> str:
    """The type that both operands are rounded to before they are multiplied."""
    a, b = dtype_of(left), dtype_of(right)
    kinds = {DTYPES[a].kind, DTYPES[b].kind}
    if "f64" in (a, b):
        return "f64"
    if "i8" in (a, b) and {a, b} & {"bf16", "f16"}:
        return b if a == "i8" else a  # which hold every integer of 8 bits
    if kinds != {"float"}:
        return "f32" if "float" in kinds else "i64" if "i64" in (a, b) else "i32"
    if a == b:
        return a
    if "f32" in (a, b):
        narrow = b if a == "f32" else a
        return narrow if rounding else "f32"
    return _common(a, b)


def _common(a: str, b: str) -> str:
    """A type that holds the values of two different narrow types exactly."""
    if {a, b} <= {"f16", "f8e4m3", "f8e5m2"}:
        return "f16"
    if {a, b} <= {"bf16", "f8e4m3", "f8e5m2"}:
        return "bf16"
    return "tf32"
