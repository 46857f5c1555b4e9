"""Contractions, recognised by structure: a sum over products of two operands that share the summed
axes and each have an axis of their own (or one of them has, in a chain of products with a row).

A product is taken apart into parts (factors, divisors, conditions outside which it is 0); parts
that do not depend on the summed axes leave the sum, the others are dealt to two operands, whichever
way makes the operands smallest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as choices

from nautile.terms import Apply, Axis, Cast, Const, Load, Online, Reduce, Term, children, walk

__all__ = [
    "NARROW",
    "Contraction",
    "contractions",
    "contracts",
    "element_loads",
    "lone_row",
    "operand_type",
    "product_parts",
    "product_steps",
    "reduces",
    "row_axes",
]

NARROW = frozenset({"bf16", "f16", "f8e4m3", "f8e5m2"})
HOLD_BYTES = ("bf16", "f16")  # types that hold every integer of 8 bits
MOST = 8  # parts of a product that are dealt to two sides


@dataclass(frozen=True, slots=True)
class Contraction:
    """`root` = sum over `axes` of the product of the `left` parts times that of the `right` parts.
    `rows` are the axes of the left operand alone, `columns` those of the right alone. `operand` is
    the type that the tensor cores take, "" where FMA must do. `spine` holds the terms that the
    multiply-accumulate does on the way."""

    root: Term
    axes: tuple[Axis, ...]
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    left_free: frozenset[Axis]
    right_free: frozenset[Axis]
    operand: str
    spine: tuple[Term, ...]

    @property
    def rows(self) -> frozenset[Axis]:
        return self.left_free - self.right_free

    @property
    def columns(self) -> frozenset[Axis]:
        return self.right_free - self.left_free

    @property
    def sides(self) -> tuple[tuple[tuple[Term, ...], frozenset[Axis]], ...]:
        return (self.left, self.left_free), (self.right, self.right_free)


def contractions(
    order: tuple[Term, ...], kept: frozenset[Term], numerics: str = "real"
) -> dict[Term, Contraction]:
    """The contractions among the terms of `order` (children first); `kept` are stored terms, which
    cannot vanish inside another's spine. Where the tensor cores have none, they may have a chain of
    products with a single row."""
    users: dict[Term, list[Term]] = {}
    for term in order:
        for child in _below(term):
            users.setdefault(child, []).append(term)
    found = _found(order, users, kept, numerics, lone=False)
    if not any(c.operand for c in found.values()):
        rows = _found(order, users, kept, numerics, lone=True)
        if any(_follows(c, rows) for c in rows.values()):
            found = rows
    return _settled(found, users, kept)


def _found(
    order: tuple[Term, ...],
    users: Mapping[Term, list[Term]],
    kept: frozenset[Term],
    numerics: str,
    *,
    lone: bool,
) -> dict[Term, Contraction]:
    found: dict[Term, Contraction] = {}
    taken: set[Term] = set()
    for term in reversed(order):
        if term in taken or not _sums(term):
            continue
        one = _contraction(term, users, kept, numerics, lone)
        if one is not None and (one.operand or not lone):
            found[term] = one
            taken.update(t for t in one.spine if isinstance(t, Reduce))
    return found


def _follows(c: Contraction, others: Mapping[Term, Contraction]) -> bool:
    """Whether the contraction multiplies what another one made."""
    return any(t in others for parts, _ in c.sides for t in walk(*parts))


def _settled(
    found: dict[Term, Contraction], users: Mapping[Term, list[Term]], kept: frozenset[Term]
) -> dict[Term, Contraction]:
    """The contractions with spines from which everything is gone that something else reads too."""
    free = {t for c in found.values() for t in c.spine} - kept
    while True:
        seen = [t for t in free if any(u not in free and u not in found for u in users[t])]
        if not seen:
            break
        free.difference_update(seen)
    return {
        root: replace(c, spine=tuple(t for t in c.spine if t in free)) for root, c in found.items()
    }


def contracts(root: Term, numerics: str = "real") -> str | None:
    """The operand type ("" for FMA) if the reduction is a contraction, else None. An outer sum over
    an inner one is judged by the innermost body."""
    split = _innermost(root) if _sums(root) else None
    return None if split is None else operand_type(*split, numerics)


def row_axes(root: Term) -> frozenset[Axis]:
    """The axes of a contraction that may be a block's rows: those of one side alone, and of the
    side that waits for a reduction where one does."""
    split = _innermost(root)
    assert split is not None
    left, right = (_free(side) for side in split)
    rows = left ^ right
    for side, own in zip(split, (left - right, right - left), strict=True):
        if any(reduces(t) for t in side):
            rows &= own
    return rows


def _innermost(root: Term) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
    """The operands of directly nested sums."""
    assert isinstance(root, (Reduce, Online))
    axes, body = [root.axis], root.body
    while isinstance(body, Reduce) and body.monoid == "sum" and body.axis not in axes:
        axes.append(body.axis)
        body = body.body
    return _split(body, frozenset(axes))


def lone_row(root: Term, numerics: str = "real") -> str | None:
    """ "row" if the reduction is the product of a single row of loads with a matrix that the tensor
    cores could take, "chain" if the row waits for another reduction; None for any other."""
    if not _sums(root) or contracts(root, numerics) is not None:
        return None
    assert isinstance(root, (Reduce, Online))
    split = _split(root.body, frozenset((root.axis,)), lone=True)
    if split is None or not operand_type(*split, numerics):
        return None
    return "chain" if any(reduces(t) for side in split for t in side) else "row"


def _sums(term: Term) -> bool:
    return isinstance(term, Online) or (isinstance(term, Reduce) and term.monoid == "sum")


def _below(term: Term) -> tuple[Term, ...]:
    return () if isinstance(term, Load) else children(term)


def _contraction(
    root: Term, users: Mapping[Term, list[Term]], kept: frozenset[Term], numerics: str, lone: bool
) -> Contraction | None:
    assert isinstance(root, (Reduce, Online))
    axes, spine, body = [root.axis], list[Term](), root.body
    while isinstance(body, Reduce) and body.monoid == "sum" and body not in kept:
        if len(users[body]) > 1 or body.axis in axes:
            break
        axes.append(body.axis)
        spine.append(body)
        body = body.body
    split = _split(body, frozenset(axes), lone)
    if split is None:
        return None
    left, right = split
    spine += _product_nodes(body)
    return Contraction(
        root,
        tuple(axes),
        left,
        right,
        _free(left),
        _free(right),
        operand_type(left, right, numerics),
        tuple(spine),
    )


def _product_nodes(body: Term) -> list[Term]:
    """The terms that take a product apart: what lies between a sum and the product's parts."""
    found: dict[Term, None] = {}
    stack = [body]
    while stack:
        term = stack.pop()
        steps = product_steps(term, "factor")
        if steps is not None:
            found[term] = None
            stack += [t for kind, t in steps if kind == "factor"]
    return list(found)


def product_steps(term: Term, kind: str) -> list[tuple[str, Term]] | None:
    """The parts of one node of a product, or None where it is a part itself."""
    match term:
        case Apply("mul", (a, b)):
            return [(kind, a), (kind, b)]
        case Apply("div", (a, b)) if kind == "factor":
            return [("factor", a), ("divisor", b)]
        case Apply("neg", (a,)) if kind == "factor":
            return [("factor", a)]
        case Apply("where", (p, a, Const(0))) if kind == "factor":
            return [("where", p), ("factor", a)]
    return None


@lru_cache(maxsize=4096)
def _split(
    body: Term, summed: frozenset[Axis], lone: bool = False
) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
    """The two operands, as parts, whose extents are smallest; None where there are no two. With
    `lone`, one of them may have no axis of its own."""
    parts = [part for part in product_parts(body) if part[1].free & summed]
    if not 2 <= len(parts) <= MOST:
        return None
    best: tuple[float, tuple[tuple[Term, ...], tuple[Term, ...]]] | None = None
    for left, right in _deals(parts):
        size = _size(left, right, summed, lone)
        if size is not None and (best is None or size < best[0]):
            best = size, (left, right)
    return best[1] if best else None


def product_parts(body: Term) -> list[tuple[str, Term]]:
    """The parts of a product with their kinds: factor, divisor, or where (a condition)."""
    found: list[tuple[str, Term]] = []
    stack = [("factor", body)]
    while stack:
        kind, term = stack.pop()
        steps = product_steps(term, kind)
        if steps is None:
            found.append((kind, term))
        else:
            stack += reversed(steps)
    return found


def _deals(
    parts: list[tuple[str, Term]],
) -> Iterator[tuple[tuple[Term, ...], tuple[Term, ...]]]:
    for sides in choices((0, 1), repeat=len(parts) - 1):
        dealt = list(zip((0, *sides), parts, strict=True))
        if all(any(s == side and kind == "factor" for s, (kind, _) in dealt) for side in (0, 1)):
            left = tuple(term for side, (_, term) in dealt if side == 0)
            yield left, tuple(term for side, (_, term) in dealt if side == 1)


def _size(
    left: tuple[Term, ...], right: tuple[Term, ...], summed: frozenset[Axis], lone: bool
) -> float | None:
    a, b = _free(left), _free(right)
    if not (summed <= a and summed <= b):
        return None
    own = [any(x.extent > 1 for x in only) for only in (a - b, b - a)]
    if not (any(own) if lone else all(own)):
        return None
    weights = [1.0 if len(side) == 1 and _type(side) != "f32" else 1.01 for side in (left, right)]
    return sum(w * math.prod(x.extent for x in f) for w, f in zip(weights, (a, b), strict=True))


def _free(parts: Iterable[Term]) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(t.free for t in parts))


def operand_type(left: tuple[Term, ...], right: tuple[Term, ...], numerics: str = "real") -> str:
    """The type in which the tensor cores may multiply the two operands (f32 as three products of
    tf32 pieces), or "": both round to it
    already (8-bit integers to bf16, f16 and f32), or one does and the numerics class lets an f32
    neighbour be rounded to it. At most one operand may wait for a reduction of the same kernel."""
    if any(reduces(t) for t in left) and any(reduces(t) for t in right):
        return ""
    a, b = _type(left), _type(right)
    tensor = NARROW | {"tf32"}
    if a == b == "f32":
        return "f32" if numerics != "exact" else ""
    if a == b:
        return a if a in tensor else ""
    if "i8" in (a, b):
        narrow = b if a == "i8" else a
        if narrow == "f32":
            return "f32" if numerics != "exact" else ""
        return narrow if narrow in HOLD_BYTES else ""
    if "f32" in (a, b):
        narrow = b if a == "f32" else a
        return narrow if numerics != "exact" and narrow in tensor else ""
    wide = next((w for w in ("f16", "bf16") if {a, b} <= {w, "f8e4m3", "f8e5m2"}), "tf32")
    return wide if {a, b} <= tensor else ""


def _type(parts: tuple[Term, ...]) -> str:
    if len(parts) > 1:
        return "f32"
    term = parts[0]
    if isinstance(term, Load):
        return term.buffer.dtype
    return term.dtype if isinstance(term, Cast) else "f32"


def element_loads(contraction: Contraction) -> frozenset[Load]:
    """Loads that feed the operands of a contraction element by element."""
    found: set[Load] = set()
    stack = [*contraction.left, *contraction.right]
    while stack:
        term = stack.pop()
        if isinstance(term, Load):
            found.add(term)
        elif not isinstance(term, (Reduce, Online)):
            stack.extend(_below(term))
    return frozenset(found)


@lru_cache(maxsize=8192)
def reduces(term: Term) -> bool:
    """Whether the term waits for a reduction."""
    if isinstance(term, (Reduce, Online)):
        return True
    return any(reduces(c) for c in _below(term))
