"""What a part computes, before tiles are chosen.

```
Body        ::= terms inside, loads, axes (grid, reduced), passes, contractions
pass        ::= (axis, number): one walk over a reduced axis; all reductions over the axis at one
                stage share it, and an output that has the axis free is stored in a later pass
```

A reduction's stage over its axis is the number of finished passes over that axis that its body
waits for. Running and Before values are there while their reduction's own pass runs, so an online
sum shares the stage of its carrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nautile.extract.contractions import Contraction, contractions
from nautile.terms import (
    Axis,
    Before,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    children,
)

__all__ = ["Body", "analyse", "below", "inner_terms", "monoid_of", "needs"]

Pass = tuple[Axis, int]


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
    nested: tuple[tuple[Axis, Axis], ...]
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


def monoid_of(reduction: Reduce | Online) -> str:
    """The monoid of a reduction; an online sum is a sum."""
    return reduction.monoid if isinstance(reduction, Reduce) else "sum"


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
    found = contractions(order, frozenset(o.term for o in outputs), numerics)
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
        contractions=found,
        free=frozenset(t for c in found.values() for t in c.spine),
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


def _nested(stage: Mapping[Term, int], reduced: tuple[Axis, ...]) -> tuple[tuple[Axis, Axis], ...]:
    pairs = set()
    for root in stage:
        assert isinstance(root, (Reduce, Online))
        pairs |= {(root.axis, b) for b in reduced if b in root.free and b != root.axis}
    return tuple(sorted(pairs))


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
