"""Axes taken apart, in numbers: each definition and result of both programs, at the same memory.

A tensor over an axis of A * B positions and one over two axes of A and B are the same memory in row
order. Definition by definition, both programs read the same drawn values there (of definitions,
too, so that no error hides behind another), and what they make of them is compared in float64.
Whole numbers and truth values that the program computes are computed on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from nautile.certificate.drawing import Array, Drawn
from nautile.certificate.meaning import agreement
from nautile.certificate.places import places
from nautile.certificate.recipes import CASES, float_kind, is_positive, recipes
from nautile.certificate.subject import Side
from nautile.dtypes import is_float
from nautile.extract.apart import joined
from nautile.oracle import evaluate
from nautile.terms import Axis, Buffer, Program, Term

from .numbers import Tried, loss

__all__ = ["taken_apart"]

_PLACES, _FEW, _LOADS = 64, 16, 1 << 18

Made = tuple[Buffer, tuple[Axis, ...], Term]


def taken_apart(program: Program, work: Program, *, numerics: str, seed: int) -> Tried:
    """How `work` compares with the program whose axes it has taken apart."""
    own, theirs = dict(_made(program)), dict(_made(work))
    odd = [n for n in own.keys() | theirs.keys() if not _same_memory(own.get(n), theirs.get(n))]
    if odd:
        return Tried(0.0, 0.0, 0, f"{', '.join(sorted(odd))}: not the same memory")
    cases = [c for c in CASES if numerics != "fast" or c not in ("large", "edges")]
    found = [
        _compared(_Sides.of(program, work, case, seed), case, own[n], theirs[n], numerics)
        for case in cases
        for n in own
    ]
    return Tried(
        max((t.error for t in found), default=0.0),
        max((t.naive for t in found), default=0.0),
        sum(t.samples for t in found),
        "; ".join(dict.fromkeys(t.wrong for t in found if t.wrong)),
    )


def _made(program: Program) -> Iterator[tuple[str, Made]]:
    """Everything that the program computes: definitions and results by their names."""
    yield from ((f"definition {d.name}", (d.buffer, d.axes, d.body)) for d in program.definitions)
    yield from ((o.buffer.name, (o.buffer, o.axes, o.term)) for o in program.outputs)


def _same_memory(a: Made | None, b: Made | None) -> bool:
    """Whether the dimensions of the second are those of the first, some taken apart."""
    if a is None or b is None or a[0].dtype != b[0].dtype:
        return False
    rest = list(b[0].shape)
    for extent in a[0].shape:
        size = 1
        while rest and size < extent:
            size *= rest.pop(0)
        if size != extent and not (extent == 1 and rest and rest.pop(0) == 1):
            return False
    return prod(rest) == 1


@dataclass(frozen=True, slots=True)
class _Sides:
    """What both programs read in one case of inputs."""

    drawn: Drawn
    source: Side
    work: Side
    seed: int

    @staticmethod
    def of(program: Program, work: Program, case: str, seed: int) -> _Sides:
        kinds = dict(recipes(program, case))
        for d in program.definitions:
            if is_float(d.dtype):
                positive = is_positive(d.body, program)
                kinds[d.name] = "uniform:0.5:1.5" if positive else float_kind(case, d.buffer)
        return _Sides(Drawn(seed, kinds), Side(_counted(program)), Side(_counted(work)), seed)


def _counted(program: Program) -> Mapping[str, tuple[tuple[Axis, ...], Term]]:
    return {d.name: (d.axes, d.body) for d in program.definitions if not is_float(d.dtype)}


def _compared(sides: _Sides, case: str, own: Made, theirs: Made, numerics: str) -> Tried:
    """One tensor at places of the axes that were taken apart, in both forms."""
    buffer, axes, term = own
    rng = np.random.default_rng([sides.seed, *case.encode(), *buffer.name.encode()])
    limit = _PLACES if case == "ordinary" else _FEW
    grid = places(theirs[1], (theirs[2],), {}, rng, limit=limit, loads=_LOADS)
    positions = [[int(p) for p in at] for at in grid.values()]
    whole = joined(positions, theirs[0].shape, buffer.shape)
    at = {a: np.array(p, dtype=np.int64) for a, p in zip(axes, whole, strict=True)}
    fetch = sides.source.fetch(sides.drawn, "f64")
    expected = evaluate(term, fetch, at)
    naive = evaluate(term, sides.source.fetch(sides.drawn, "mma"), at, precision="mma")
    actual = evaluate(theirs[2], sides.work.fetch(sides.drawn, "f64"), grid)
    return _agreed(buffer.name, case, actual.reshape(expected.shape), expected, naive, numerics)


def _agreed(
    name: str, case: str, actual: Array, expected: Array, naive: Array, numerics: str
) -> Tried:
    found = agreement(actual, expected, naive, exact=numerics == "exact")
    wrong = "" if found.passed else f"{name}, {case}: {found.detail}"
    return Tried(found.error, loss(naive, expected), found.samples, wrong)
