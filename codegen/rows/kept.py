"""Element values that several passes need: computed once and held in registers.

A pass over a resident row that needs what an earlier one computed (the exponentials of a softmax,
the differences of a variance) reads it back instead of computing it again from what was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.tile import Ref
from nautile.codegen.types import dtype_of
from nautile.terms import Apply, Term, children, walk

__all__ = ["kept_values"]


def kept_values(rows: RowProgram, elements: int, room: int) -> tuple[tuple[Term, ...], ...]:
    """For each pass the values to hold for later ones, where a thread has `elements` of the row and
    `room` registers for such values."""
    found: list[tuple[Term, ...]] = []
    free = room
    held: set[Term] = set()
    for number in range(len(rows.passes)):
        shared = [t for t in _shared(rows, number) if t not in held]
        chosen = tuple(shared[: free // max(1, elements)])
        held.update(walk(*chosen))
        free -= len(chosen) * elements
        found.append(chosen)
    return tuple(found)


def _shared(rows: RowProgram, number: int) -> list[Term]:
    """The largest terms over elements that pass `number` and a later one compute."""
    step = rows.passes[number]
    later = set(walk(*(t for p in rows.passes[number + 1 :] for t in _roots(rows, p))))
    running = {f.target.name for f in step.folds}
    running |= {f.before.name for f in step.folds if f.before is not None}
    unsettled: set[Term] = set()
    candidates: list[Term] = []
    for term in walk(*_roots(rows, step)):
        follows = isinstance(term, Ref) and term.tile.name in running
        if follows or any(c in unsettled for c in children(term)):
            unsettled.add(term)
        elif term in later and isinstance(term, Apply) and rows.column in term.free:
            candidates.append(term)
    inside = {t for c in candidates for child in children(c) for t in walk(child)}
    return [c for c in candidates if c not in inside and dtype_of(c) == "f32"]


def _roots(rows: RowProgram, step: Pass) -> Iterator[Term]:
    yield from (rows.source(f) for f in step.folds)
    yield from (rows.expand(Ref(w.source)) for w in step.writes)
