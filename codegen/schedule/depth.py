"""The depth of a contraction is walked in steps that shared memory holds.

A contraction of two pure operands may cut its contracted axis as it likes, where nothing but its
operands has that axis: a resident axis becomes a loop, a loop with a deep tile one with a tile of
`step` positions. A chain's contractions inside the stream keep theirs. Where a left operand is made
of values of the row that are folded along a resident depth, the folds become loops of their own.
"""

from __future__ import annotations

from dataclasses import replace

from nautile.codegen.schedule.structure import Structure, analyse, statements
from nautile.codegen.tile import (
    Bounds,
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    TileProgram,
    Write,
)
from nautile.dtypes import DTYPES
from nautile.terms import Axis, walk

__all__ = ["cut_depth"]

STEP_BYTES = 128


def cut_depth(program: TileProgram, *, exact: bool = False) -> TileProgram:
    """The program with every free depth cut to 128 bytes of operand a step; with `exact`, smaller
    steps are raised to as much."""
    structure = analyse(program)
    steps = _steps(structure, exact)
    if not steps:
        return program
    body = _wrap(structure, program.body, (), steps)
    return replace(program, body=body, tiles={**program.tiles, **steps})


def _steps(structure: Structure, exact: bool) -> dict[Axis, int]:
    """The new tile of each axis to cut."""
    steps: dict[Axis, int] = {}
    blocked = _fixed(structure)
    for c in structure.contractions.values():
        step = STEP_BYTES // DTYPES[c.operand].bytes if DTYPES[c.operand].bytes > 1 else 64
        if exact:
            step = STEP_BYTES // DTYPES[c.operand].bytes
        tile = structure.program.tiles[c.axis]
        if c.axis not in blocked and step < c.axis.extent and (tile > step or exact):
            steps[c.axis] = step
    return steps


def _fixed(structure: Structure) -> set[Axis]:
    """Axes that something else has: fragments, streams of other values, a chain's contractions."""
    fixed = {structure.row} | set(structure.program.grid)
    for s in statements(structure.program.body):
        if isinstance(s, (Map, Read)) and s.target.name not in structure.columns:
            continue
        if isinstance(s, (Map, Mma)):
            fixed |= set(s.target.axes)
        elif isinstance(s, Fold):
            free = _carried(structure, s) or _formed(structure, s)
            fixed |= {*s.target.axes, *(() if free else (s.axis,))}
        elif isinstance(s, Write):
            fixed |= {a for c in s.coordinates for a in c.free}
        elif isinstance(s, Loop) and s.bounds != Bounds():
            fixed.add(s.axis)
    return fixed | _inner(structure, structure.program.body, ())


def _carried(structure: Structure, fold: Fold) -> bool:
    """Whether a fold along a contracted axis is carried by that axis' loop: then it may take more
    and smaller steps, as the contraction beside it does."""
    looped = {s.axis for s in statements(structure.program.body) if isinstance(s, Loop)}
    return structure.folded(fold) is not None and fold.axis in looped


def _formed(structure: Structure, fold: Fold) -> bool:
    """Whether the fold is along the depth of an operand that is made of values of the row."""
    return structure.folded(fold) is not None and any(
        c.axis == fold.axis and c.left.name in structure.deep
        for c in structure.contractions.values()
    )


def _inner(
    structure: Structure, body: tuple[Statement, ...], around: tuple[Axis, ...]
) -> set[Axis]:
    """Axes of contractions that start afresh inside a loop, or whose left operand is computed."""
    found: set[Axis] = set()
    for s in body:
        if isinstance(s, Loop):
            found |= _inner(structure, s.body, (*around, s.axis))
        elif isinstance(s, Mma):
            c = structure.contractions[s.target.name]
            if structure.operand(c.left.name) is None or any(a not in s.axes for a in around):
                found |= set(s.axes)
    return found


def _wrap(
    structure: Structure,
    body: tuple[Statement, ...],
    around: tuple[Axis, ...],
    steps: dict[Axis, int],
) -> tuple[Statement, ...]:
    """Runs of contractions, and of folds beside them, over a resident axis that is cut go into a
    loop over it. A run ends before a statement that reads what it made."""
    result: list[Statement] = []
    run: list[Mma | Fold] = []

    def flush() -> None:
        if run:
            result.append(Loop(_depth(structure, run[0]), tuple(run)))
            run.clear()

    for s in body:
        if isinstance(s, (Mma, Fold)):
            axis = _depth(structure, s)
            if axis in steps and axis not in around and _walks(structure, s):
                if run and (_depth(structure, run[0]) != axis or _reads(structure, s, run)):
                    flush()
                run.append(s)
                continue
            flush()
        elif not (isinstance(s, (Read, Map)) and s.target.name not in structure.columns):
            flush()
        if isinstance(s, Loop):
            s = replace(s, body=_wrap(structure, s.body, (*around, s.axis), steps))
        result.append(s)
    flush()
    return tuple(result)


def _depth(structure: Structure, s: Mma | Fold) -> Axis:
    return s.axis if isinstance(s, Fold) else structure.contractions[s.target.name].axis


def _walks(structure: Structure, s: Mma | Fold) -> bool:
    return isinstance(s, Mma) or structure.folded(s) is not None


def _reads(structure: Structure, s: Mma | Fold, run: list[Mma | Fold]) -> bool:
    """Whether the statement reads a value that the run makes."""
    if isinstance(s, Fold):
        value = structure.folded(s)
    else:
        value = structure.operand(structure.contractions[s.target.name].left.name)
    made = {other.target.name for other in run}
    inside = walk(value) if value is not None else ()
    return any(isinstance(t, Ref) and t.tile.name in made for t in inside)
