"""Partial bodies: how one e-class may be computed inside a kernel.

```
Partial ::= choice (class -> node), needs (classes read from memory), term
```

A partial chooses one node for every class that it computes, so two partials merge only where they
agree. `follows` lists the (axis, stage) of running values that no online sum has closed yet: a body
with open ones cannot be stored. Costs: `own` and `own_resident` are ideal seconds of the body, the
first with every pass reading again, the second with all passes over a resident axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nautile.extract.classes import Classes
from nautile.extract.contractions import contracts, lone_row, row_axes
from nautile.extract.norms import holds
from nautile.snapshot import Node, term_of
from nautile.terms import Axis, Online, Reduce, Term

__all__ = ["FOLD", "NORM", "Partial", "combine", "leaf", "stored"]

LARGEST = 1000  # classes of one body
TENSOR, FMA, FOLD, ROW = 1, 2, 4, 8  # ROW: a row times a matrix, which a chain alone may need
NORM = 16  # a contraction after folds along its depth: nothing may be reduced after it
UNROUNDED = frozenset(
    ("neg", "abs", "where", "max", "min", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")
)


@dataclass(slots=True)
class Partial:
    """See the module's docstring. `need` counts finished passes by axis; `producers` is what
    storing the needs takes, every kernel counted once. `kinds` tells what sort of reductions stand
    inside, `folded` the axes of folds of what no contraction made, `depths` the axes of tensor
    contractions and `rows` the axes that all of them may have as rows: a body that holds a tensor
    contraction may hold no other contraction, and such folds along its depth alone, beside it or
    before it (the tensor path has no other place for them)."""

    root: int
    term: Term
    choice: Mapping[int, Node]
    needs: frozenset[int]
    need: Mapping[Axis, int] = field(default_factory=dict)
    follows: frozenset[tuple[Axis, int]] = frozenset()
    work: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    own: float = 0.0
    own_resident: float = 0.0
    producers: float = 0.0
    kinds: int = 0
    folded: frozenset[Axis] = frozenset()
    depths: frozenset[Axis] = frozenset()
    rows: frozenset[Axis] | None = None

    @property
    def passes(self) -> int:
        return max(self.need.values(), default=0)

    @property
    def total(self) -> float:
        return self.own + self.producers


def leaf(classes: Classes, root: int) -> Partial:
    """A class that is a load, a constant or an index."""
    node = classes.nodes[root][0]
    work = classes.work(root, node)
    return _finish(Partial(root, term_of(node, ()), {root: node}, frozenset(), work=work))


def stored(classes: Classes, root: int, producers: float) -> Partial:
    """A class that another kernel has stored."""
    work = (classes.transfer(root), 0.0, 0.0, 0.0)
    partial = Partial(root, classes.load(root), {}, frozenset({root}), work=work)
    partial.producers = producers
    return _finish(partial)


def combine(
    classes: Classes, root: int, node: Node, parts: Mapping[int, Partial]
) -> Partial | None:
    """`node` over one partial for each child class, or None where they disagree."""
    below = [parts[c] for c in node.children]
    merged = _merge(classes, root, node, below)
    if merged is None:
        return None
    choice, needs, work = merged
    if _rounds_twice(classes, choice, needs):
        return None
    need, follows = _joined(below)
    step = _step(node, below, need, follows)
    if step is None:
        return None
    need, follows = step
    term = classes.term_of(node, tuple(p.term for p in below))
    partial = Partial(root, term, choice, needs, need, follows, work)
    return _finish(partial) if _sorted(partial, below, classes.numerics) else None


def _sorted(partial: Partial, below: list[Partial], numerics: str) -> bool:
    """Set what reductions stand inside; whether one kernel has a place for all of them."""
    for part in below:
        partial.kinds |= part.kinds
        partial.folded |= part.folded
        partial.depths |= part.depths
        partial.rows = _both(partial.rows, part.rows)
    if isinstance(partial.term, (Reduce, Online)) and not _reduced(partial, partial.term, numerics):
        return False
    if not partial.kinds & TENSOR:
        return True
    placed = partial.folded <= partial.depths and partial.rows != frozenset()
    return placed and not partial.kinds & FMA


def _reduced(partial: Partial, term: Reduce | Online, numerics: str) -> bool:
    """The same for a reduction over what stands below it."""
    if partial.kinds & NORM:
        return False
    operand, lone = contracts(term, numerics), lone_row(term, numerics)
    if operand is not None:
        after = bool(operand) and term.axis in partial.folded
        if operand and (partial.kinds & ROW or (after and not _after_norm(partial, term))):
            return False
        partial.kinds |= NORM if after else 0
        partial.kinds |= TENSOR if operand else FMA
        if operand:
            partial.depths |= {term.axis}
            partial.rows = _both(partial.rows, row_axes(term))
    elif lone == "chain" and partial.kinds == ROW:
        partial.kinds, partial.depths = TENSOR, partial.depths | {term.axis}
    elif lone == "row" and not partial.kinds:
        partial.kinds = ROW
    elif not partial.kinds & (TENSOR | FMA | ROW):
        partial.kinds |= FOLD
        partial.folded |= {term.axis}
        partial.rows = _both(partial.rows, term.free)
    return True


def _after_norm(partial: Partial, term: Reduce | Online) -> bool:
    """Whether a contraction may come after the folds along its depth: nothing else stands inside,
    and rows of the depth fit into shared memory."""
    alone = partial.kinds == FOLD and partial.folded == {term.axis}
    return alone and isinstance(term, Reduce) and not partial.follows and holds(term.axis)


def _both(a: frozenset[Axis] | None, b: frozenset[Axis] | None) -> frozenset[Axis] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _merge(
    classes: Classes, root: int, node: Node, below: list[Partial]
) -> tuple[dict[int, Node], frozenset[int], tuple[float, float, float, float]] | None:
    first = below[0] if below else None
    choice = dict(first.choice) if first else {}
    needs = first.needs if first else frozenset[int]()
    total = list(first.work) if first else [0.0, 0.0, 0.0, 0.0]
    for part in below[1:]:
        for c, n in part.choice.items():
            mine = choice.get(c)
            if mine is None:
                choice[c] = n
                for q, w in enumerate(classes.work(c, n)):
                    total[q] += w
            elif mine is not n:
                return None
        for c in part.needs - needs:
            total[0] += classes.transfer(c)
        needs |= part.needs
    if root in choice or root in needs or len(choice) >= LARGEST or not needs.isdisjoint(choice):
        return None
    choice[root] = node
    for q, w in enumerate(classes.work(root, node)):
        total[q] += w
    return choice, needs, (total[0], total[1], total[2], total[3])


def _rounds_twice(classes: Classes, choice: Mapping[int, Node], needs: frozenset[int]) -> bool:
    """Whether a stored maximum (or minimum) meets the values that it was taken of, computed again
    by this body: sums of another order and fused multiplications round differently, and a
    difference that the source keeps at or below 0 might be far above."""
    return any(
        _rounds(choice, source)
        for need in needs
        for source in classes.extremes.get(need, ())
        if source in choice
    )


def _rounds(choice: Mapping[int, Node], root: int) -> bool:
    """Whether the body computes the class with arithmetic of its own."""
    stack, seen = [root], {root}
    while stack:
        node = choice.get(stack.pop())
        if node is None:
            continue
        if node.kind in ("reduce", "online"):
            return True
        if node.kind == "apply" and node.payload not in UNROUNDED:
            return True
        fresh = set(node.children) - seen
        seen |= fresh
        stack += fresh
    return False


def _joined(below: list[Partial]) -> tuple[dict[Axis, int], frozenset[tuple[Axis, int]]]:
    need: dict[Axis, int] = {}
    follows: frozenset[tuple[Axis, int]] = frozenset()
    for part in below:
        follows |= part.follows
        for axis, n in part.need.items():
            need[axis] = max(need.get(axis, 0), n)
    return need, follows


def _step(
    node: Node,
    below: list[Partial],
    need: dict[Axis, int],
    follows: frozenset[tuple[Axis, int]],
) -> tuple[dict[Axis, int], frozenset[tuple[Axis, int]]] | None:
    """Passes and open running values after the node itself, or None where it may not stand."""
    if node.kind in ("running", "before"):
        carrier = below[0].term
        if not isinstance(carrier, (Reduce, Online)) or carrier.axis != node.payload:
            return None
        stage = need[node.payload] - 1
        return {**need, node.payload: stage}, follows | {(node.payload, stage)}
    if node.kind == "reduce":
        axis = node.payload[1]
        if any(a == axis for a, _ in follows):
            return None
        return {**need, axis: need.get(axis, 0) + 1}, follows
    if node.kind == "online":
        axis, stage = node.payload, need.get(node.payload, 0)
        if any(a == axis and s != stage for a, s in follows):
            return None
        open_ = frozenset(f for f in follows if f[0] != axis)
        return {**need, axis: stage + 1}, open_
    return need, follows


def _finish(partial: Partial) -> Partial:
    memory, tensor, vector, special = partial.work
    vector, p = max(vector, 0.0), max(1, partial.passes)
    partial.own = _blend(memory * p, tensor, vector * p, special * p)
    partial.own_resident = _blend(memory, tensor, vector, special)
    return partial


def _blend(*seconds: float) -> float:
    return max(seconds) * 0.8 + sum(seconds) * 0.2
