"""What a part computes, before tiles are chosen.

```
Body        ::= terms inside, loads, axes (grid, reduced), passes, contractions
pass        ::= (axis, number): one walk over a reduced axis; all reductions over the axis at one
                stage share it, and an output that has the axis free is stored in a later pass
Contraction ::= sum (or online sum) over one or several axes of left * right
```

A reduction's stage over its axis is the number of finished passes over that axis that its body
waits for. Running and Before values are there while their reduction's own pass runs, so an online
sum shares the stage of its carrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nautile.terms import (
    Apply,
    Axis,
    Before,
    Cast,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    children,
)

__all__ = ["Body", "Contraction", "analyse", "below", "inner_terms", "needs", "operand_type"]

Pass = tuple[Axis, int]
NARROW = frozenset({"bf16", "f16", "f8e4m3", "f8e5m2"})


@dataclass(frozen=True, slots=True)
class Contraction:
    """`root` = sum over `axes` of left * right. `rows` are the axes of left alone, `columns` those
    of right alone. `operand` is the type that the tensor cores take, "" where FMA must do."""

    root: Term
    axes: tuple[Axis, ...]
    left: Term
    right: Term
    rows: frozenset[Axis]
    columns: frozenset[Axis]
    operand: str


@dataclass(frozen=True, slots=True)
class Body:
    """See the module's docstring. `inside` lists the computed terms, children first; `visits` says
    in how many passes over an axis a term is evaluated; `free` are terms that cost nothing of their
    own (products and inner sums of a contraction); `nested` holds (a, b) where a pass over a runs
    inside one over b; along its `running` axes a term depends on running values alone."""

    outputs: tuple[Output, ...]
    inside: tuple[Term, ...]
    loads: tuple[Load, ...]
    axes: tuple[Axis, ...]
    grid: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    stage: Mapping[Term, int]
    passes: Mapping[Pass, frozenset[Term]]
    visits: Mapping[Term, Mapping[Axis, int]]
    contractions: Mapping[Term, Contraction]
    free: frozenset[Term]
    nested: frozenset[tuple[Axis, Axis]]
    running: Mapping[Term, frozenset[Axis]]


def inner_terms(roots: Iterable[Term]) -> tuple[Term, ...]:
    """Every term below the roots once, children first, coordinates of loads left out."""
    order: dict[Term, None] = {}
    for root in roots:
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if ready:
                order[term] = None
            elif term not in order:
                stack.append((term, True))
                stack.extend((c, False) for c in reversed(below(term)) if c not in order)
    return tuple(order)


def below(term: Term) -> tuple[Term, ...]:
    """The direct subterms that are computed as values (none for a Load)."""
    return () if isinstance(term, Load) else children(term)


def needs(order: Iterable[Term]) -> tuple[dict[Term, dict[Axis, int]], dict[Term, int]]:
    """For each term the finished passes that it waits for, axis by axis, and each reduction's
    stage. `order` lists children first."""
    need: dict[Term, dict[Axis, int]] = {}
    stage: dict[Term, int] = {}
    for term in order:
        own: dict[Axis, int] = {}
        for child in below(term):
            for axis, n in need[child].items():
                own[axis] = max(own.get(axis, 0), n)
        if isinstance(term, (Reduce, Online)):
            stage[term] = own.get(term.axis, 0)
            own[term.axis] = stage[term] + 1
        elif isinstance(term, (Running, Before)):
            own[term.axis] = stage[term.reduction]
        need[term] = own
    return need, stage


def analyse(outputs: tuple[Output, ...], *, numerics: str = "real") -> Body:
    """The body of a part that computes `outputs`."""
    order = inner_terms(o.term for o in outputs)
    need, stage = needs(order)
    reduced = tuple(dict.fromkeys(t.axis for t in stage if isinstance(t, (Reduce, Online))))
    stored = tuple(dict.fromkeys(a for o in outputs for a in o.axes))
    passes = _passes(outputs, need, stage)
    contractions, free = _contractions(order, outputs, numerics)
    return Body(
        outputs=outputs,
        inside=tuple(t for t in order if not isinstance(t, Load)),
        loads=_loads(order),
        axes=tuple(dict.fromkeys((*stored, *reduced))),
        grid=tuple(a for a in stored if a not in reduced),
        reduced=reduced,
        stage=stage,
        passes=passes,
        visits=_visits(order, passes),
        contractions=contractions,
        free=free,
        nested=_nested(stage, reduced),
        running=_running(order),
    )


def _loads(order: Iterable[Term]) -> tuple[Load, ...]:
    """All loads, those inside coordinates included."""
    found: dict[Load, None] = {}
    stack: list[Term] = [t for t in order if isinstance(t, Load)]
    while stack:
        term = stack.pop()
        if isinstance(term, Load):
            found[term] = None
        stack.extend(children(term))
    return tuple(found)


def _passes(
    outputs: tuple[Output, ...],
    need: Mapping[Term, Mapping[Axis, int]],
    stage: Mapping[Term, int],
) -> dict[Pass, frozenset[Term]]:
    got: dict[Pass, set[Term]] = {}

    def absorb(key: Pass, starts: Iterable[Term]) -> None:
        bag = got.setdefault(key, set())
        stack = [t for t in starts if key[0] in t.free]
        while stack:
            term = stack.pop()
            if term not in bag:
                bag.add(term)
                stack.extend(c for c in below(term) if key[0] in c.free)

    for root, number in stage.items():
        assert isinstance(root, (Reduce, Online))
        absorb((root.axis, number), below(root))
    walked = {axis for axis, _ in got}
    for output in outputs:
        for axis in output.axes:
            if axis in walked:
                absorb((axis, need[output.term].get(axis, 0)), [output.term])
    return {key: frozenset(bag) for key, bag in got.items()}


def _visits(
    order: Iterable[Term], passes: Mapping[Pass, frozenset[Term]]
) -> dict[Term, dict[Axis, int]]:
    visits: dict[Term, dict[Axis, int]] = {term: {} for term in order}
    for (axis, _), bag in passes.items():
        for term in bag:
            visits[term][axis] = visits[term].get(axis, 0) + 1
    return visits


def _nested(stage: Mapping[Term, int], reduced: tuple[Axis, ...]) -> frozenset[tuple[Axis, Axis]]:
    pairs = set()
    for root in stage:
        assert isinstance(root, (Reduce, Online))
        pairs |= {(root.axis, b) for b in reduced if b in root.free and b != root.axis}
    return frozenset(pairs)


def _running(order: Iterable[Term]) -> dict[Term, frozenset[Axis]]:
    """For each term the free axes along which only running values inside it change."""
    solid: dict[Term, frozenset[Axis]] = {}
    for term in order:
        if isinstance(term, (Running, Before)):
            solid[term] = term.reduction.free
        elif below(term):
            solid[term] = frozenset().union(*(solid[c] for c in below(term))) & term.free
        else:
            solid[term] = term.free
    return {term: term.free - solid[term] for term in order}


# ---- contractions ------------------------------------------------------------------------------


def _contractions(
    order: tuple[Term, ...], outputs: tuple[Output, ...], numerics: str
) -> tuple[dict[Term, Contraction], frozenset[Term]]:
    users: dict[Term, list[Term]] = {}
    for term in order:
        for child in below(term):
            users.setdefault(child, []).append(term)
    kept = {o.term for o in outputs}
    found: dict[Term, Contraction] = {}
    free: set[Term] = set()
    for term in reversed(order):
        if term in free or not _sums(term):
            continue
        chain, body = _chain(term, users, kept)
        contraction = _contraction(term, chain, body, numerics)
        if contraction is not None:
            found[term] = contraction
            free.update(_absorbed(contraction, chain[1:], body, users, kept))
    return found, frozenset(free)


def _sums(term: Term) -> bool:
    return isinstance(term, Online) or (isinstance(term, Reduce) and term.monoid == "sum")


def _chain(
    root: Term, users: Mapping[Term, list[Term]], kept: set[Term]
) -> tuple[list[Term], Term]:
    """The sums directly inside one another from `root` down, and the innermost body."""
    assert isinstance(root, (Reduce, Online))
    chain, body = [root], root.body
    while isinstance(body, Reduce) and _sums(body) and len(users[body]) == 1 and body not in kept:
        chain.append(body)
        body = body.body
    return list(chain), body


def _absorbed(
    contraction: Contraction,
    inner: list[Term],
    body: Term,
    users: Mapping[Term, list[Term]],
    kept: set[Term],
) -> set[Term]:
    """Terms that the multiply-accumulate does on the way: inner sums and the top product."""
    free = set(inner)
    if body not in kept and all(_sums(u) for u in users[body]):
        free.add(body)
    return free


def _contraction(root: Term, chain: list[Term], body: Term, numerics: str) -> Contraction | None:
    axes = tuple(t.axis for t in chain if isinstance(t, (Reduce, Online)))
    if not (isinstance(body, Apply) and body.operation == "mul"):
        return None
    left, right = body.arguments
    summed = frozenset(axes)
    if not (summed <= left.free and summed <= right.free):
        return None
    rows, columns = left.free - right.free - summed, right.free - left.free - summed
    if not rows or not columns:
        return None
    operand = operand_type(left, right, numerics)
    return Contraction(root, axes, left, right, rows, columns, operand)


def operand_type(left: Term, right: Term, numerics: str = "real") -> str:
    """The type in which the tensor cores may multiply the two operands, or "": both round to it
    already, or one does and the numerics class lets an f32 neighbour be rounded to it."""
    a, b = _type(left), _type(right)
    if a == b:
        return a if a in NARROW or a == "tf32" else ""
    wide, narrow = (a, b) if a == "f32" else (b, a)
    allowed = numerics != "exact" and wide == "f32" and (narrow in NARROW or narrow == "tf32")
    return narrow if allowed else ""


def _type(term: Term) -> str:
    if isinstance(term, Load):
        return term.buffer.dtype
    return term.dtype if isinstance(term, Cast) else "f32"
