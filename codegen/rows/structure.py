"""A tile program as passes over the columns of rows, where it has that shape.

Every statement's value is either a row value (its axes are grid axes) or an element value (it has
the column axis too). A pass walks the columns once: it updates the folds whose sources are known by
then, and stores what is known. Inside a pass a fold may follow the running values of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

from nautile.codegen.rows.accesses import split_axis
from nautile.codegen.rows.joined import joined
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Index, Term, transform, walk

__all__ = ["Pass", "RowProgram", "as_rows", "lane_axis", "strided"]


@dataclass(slots=True)
class Pass:
    """One walk over the columns: folds in `phases` (each phase reads the running values of earlier
    ones), and element values to store."""

    folds: list[Fold] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    phases: list[list[Fold]] = field(default_factory=list)

    @property
    def targets(self) -> dict[str, Fold]:
        return {f.target.name: f for f in self.folds}


@dataclass(slots=True)
class RowProgram:
    """`passes[k]`, then the row values of `stores[k]`; stores[0] come before every pass. `lane` is
    the row axis that memory runs along, where that is not the column. `shared` is a program of
    folds over another axis, which come before the elements and are the same for all columns."""

    program: TileProgram
    column: Axis
    rows: tuple[Axis, ...]
    reads: dict[str, Read]
    maps: dict[str, Map]
    passes: list[Pass]
    stores: list[list[Write]]
    lane: Axis | None = None
    shared: RowProgram | None = None

    def expand(self, term: Term) -> Term:
        """The term over Reads and folds alone: Maps are replaced by what they compute."""
        while True:
            wider = transform(term, self._step)
            if wider is term:
                return term
            term = wider

    def _step(self, term: Term) -> Term:
        if isinstance(term, Ref) and term.tile.name in self.maps:
            return self.maps[term.tile.name].value
        return term

    def source(self, fold: Fold) -> Term:
        return self.expand(Ref(fold.source))


def as_rows(program: TileProgram) -> RowProgram | None:
    """The row form of a program, or None where it has another shape. Folds inside folds are joined
    to one."""
    program = joined(program)
    statements = list(walk_statements(program.body))
    if any(isinstance(s, Mma) for s in statements):
        return None
    column = _column(program, statements)
    if column is None:
        return _two_columns(program, statements)
    if any(isinstance(s, Loop) and s.axis != column for s in statements):
        return None
    rows = tuple(a for a in program.grid if a != column)
    if not all(a == column or a in rows for t in _tiles(statements) for a in t):
        return None
    reads = {s.target.name: s for s in statements if isinstance(s, Read)}
    maps = {s.target.name: s for s in statements if isinstance(s, Map)}
    found = RowProgram(program, column, rows, reads, maps, [], [[]])
    elements = _elements(found, statements)
    if elements is not None:
        return _apart(found, elements)
    if any(isinstance(s, Fold) for s in statements):
        found.lane = lane_axis(found)
        if found.lane is None and strided(reads.values(), column):
            return None
    _schedule(found)
    return found


def _two_columns(program: TileProgram, statements: list[Statement]) -> RowProgram | None:
    """Folds over one axis that wait for none over the other, and come first: the partial states of
    a sum, say, which another sum over the row then joins."""
    axes = {s.axis for s in statements if isinstance(s, Fold)}
    if len(axes) != 2:
        return None
    for column in sorted(axes, key=lambda a: (-a.extent, a)):
        (other,) = axes - {column}
        found = _after(program, statements, column, other)
        if found is not None:
            return found
    return None


def _after(
    program: TileProgram, statements: list[Statement], column: Axis, other: Axis
) -> RowProgram | None:
    """Rows along `column`, after the folds over `other`."""
    rows = program.grid
    reads = {s.target.name: s for s in statements if isinstance(s, Read)}
    maps = {s.target.name: s for s in statements if isinstance(s, Map)}
    made = RowProgram(program, column, rows, reads, maps, [], [[]])
    folds = [s for s in statements if isinstance(s, Fold)]
    later = {f.target.name for f in folds if f.axis == column}
    for fold in folds:
        inner = (fold.source, fold.repair, fold.offset)
        terms = [made.expand(Ref(t)) for t in inner if t is not None]
        names = {t.tile.name for t in walk(*terms) if isinstance(t, Ref)}
        axes = frozenset[Axis]().union(fold.target.axes, *(t.free for t in terms))
        if not axes <= {*rows, fold.axis} or (fold.axis == other and names & later):
            return None
    if any(other in c.free for s in statements if isinstance(s, Write) for c in s.coordinates):
        return None
    made.lane = lane_axis(made)
    if made.lane is not None or strided(reads.values(), column):
        return None
    made.shared = RowProgram(program, other, rows, reads, maps, [], [[]])
    _schedule(made.shared, _only(program.body, other))
    _schedule(made, _only(program.body, column))
    made.shared.stores = [[] for _ in made.shared.stores]
    return made


def _only(body: tuple[Statement, ...], axis: Axis) -> tuple[Statement, ...]:
    """The statements less the folds over other axes and the loops around them."""
    kept: list[Statement] = []
    for s in body:
        if isinstance(s, Loop):
            inner = _only(s.body, axis)
            kept += [Loop(axis, inner)] if s.axis == axis else inner
        elif not isinstance(s, Fold) or s.axis == axis:
            kept.append(s)
    return tuple(kept)


def _elements(rows: RowProgram, statements: list[Statement]) -> Axis | None:
    """The row axis that results are stored along and no fold concerns."""
    folds = [s for s in statements if isinstance(s, Fold)]
    moves = [t for f in folds for t in (f.repair, f.offset) if t is not None]
    folded = frozenset[Axis]().union(*(rows.expand(Ref(f.source)).free for f in folds))
    folded |= frozenset[Axis]().union(*(f.target.axes for f in folds), *(t.axes for t in moves))
    writes = [s for s in statements if isinstance(s, Write) and s.coordinates]
    if not folds or any(rows.column in c.free for w in writes for c in w.coordinates):
        return None
    last = [w.coordinates[-1] for w in writes]
    free = [c.axis for c in last if isinstance(c, Index) and c.axis not in folded]
    return max(free, key=lambda a: a.extent, default=None)


def _apart(found: RowProgram, elements: Axis) -> RowProgram:
    """The elements along one axis, after the folds along another."""
    rows = tuple(a for a in found.rows if a != elements)
    folds = RowProgram(found.program, found.column, rows, found.reads, found.maps, [], [[]])
    _schedule(folds)
    every = [w for stores in folds.stores for w in stores]
    step = Pass([], [w for w in every if any(elements in c.free for c in w.coordinates)], [[]])
    folds.stores = [[w for w in stores if w not in step.writes] for stores in folds.stores]
    made = RowProgram(found.program, elements, rows, found.reads, found.maps, [step], [[], []])
    made.shared = folds
    return made


def strided(reads: Iterable[Read], axis: Axis) -> bool:
    """Whether memory runs along other axes wherever elements along `axis` are read."""
    last = [r.coordinates[-1].free for r in reads if axis in r.target.axes]
    return bool(last) and all(free and axis not in free for free in last)


def lane_axis(rows: RowProgram) -> Axis | None:
    """The row axis along which most of what is read along the column is contiguous; None where that
    is the column itself, or no axis."""
    found: dict[Axis, int] = {}
    for read in rows.reads.values():
        coordinates = tuple(rows.expand(c) for c in read.coordinates)
        axes = frozenset[Axis]().union(*(c.free for c in coordinates))
        if rows.column not in axes:
            continue
        touched = prod(a.extent for a in axes) * DTYPES[read.buffer.dtype].bytes
        outer = frozenset[Axis]().union(*(c.free for c in coordinates[:-1]))
        for axis in sorted(axes - outer):
            split = split_axis(coordinates[-1], axis)
            if split is not None and split[0] == 1:
                found[axis] = found.get(axis, 0) + touched
    best = max(found, key=lambda a: (found[a], a == rows.column), default=None)
    return best if best != rows.column and best in rows.rows else None


def _tiles(statements: list[Statement]) -> Iterator[tuple[Axis, ...]]:
    for s in statements:
        if isinstance(s, (Read, Map, Fold)):
            yield s.target.axes


def _column(program: TileProgram, statements: list[Statement]) -> Axis | None:
    """The axis that all folds walk, or where there are none the last one stored along."""
    axes = {s.axis for s in statements if isinstance(s, Fold)}
    if len(axes) > 1:
        return None
    if axes:
        return next(iter(axes))
    for s in statements:
        if isinstance(s, Write) and s.coordinates:
            last = s.coordinates[-1]
            return last.axis if isinstance(last, Index) else None
    return None


def _schedule(rows: RowProgram, body: tuple[Statement, ...] | None = None) -> None:
    """Number the passes: a value is available after the folds that it reads are complete; a loop is
    one pass, in which its own folds are running values."""
    known: dict[str, int] = {}
    for s in rows.program.body if body is None else body:
        inside = s.body if isinstance(s, Loop) else (s,)
        number = _loop_pass(inside, known) if isinstance(s, Loop) else None
        for inner in inside:
            _place(rows, inner, number, known)
    for step in rows.passes:
        step.phases = _phases(rows, step)


def _loop_pass(body: tuple[Statement, ...], known: dict[str, int]) -> int:
    """The pass that a loop over the columns is."""
    return max((known.get(n, 0) for s in body for n in _inputs(s)), default=0)


def _inputs(statement: Statement) -> Iterator[str]:
    match statement:
        case Read(_, _, coordinates):
            roots: tuple[Term, ...] = coordinates
        case Map(_, value):
            roots = (value,)
        case Fold():
            roots = (Ref(statement.source),)
        case Write():
            roots = (Ref(statement.source), *statement.coordinates)
        case _:
            roots = ()
    yield from (t.tile.name for t in walk(*roots) if isinstance(t, Ref))


def _place(
    rows: RowProgram, statement: Statement, number: int | None, known: dict[str, int]
) -> None:
    """Assign the statement to a pass; `known` tells after how many passes a tile is complete."""
    at = max((known.get(n, 0) for n in _inputs(statement)), default=0)
    if number is not None:
        at = number
    match statement:
        case Read() | Map():
            known[statement.target.name] = at
        case Fold():
            _pass(rows, at).folds.append(statement)
            known[statement.target.name] = at + 1
        case Write():
            if rows.column in frozenset[Axis]().union(*(c.free for c in statement.coordinates)):
                _pass(rows, at).writes.append(statement)
            else:
                _extend(rows, at)
                rows.stores[at].append(statement)


def _pass(rows: RowProgram, number: int) -> Pass:
    _extend(rows, number + 1)
    return rows.passes[number]


def _extend(rows: RowProgram, count: int) -> None:
    while len(rows.passes) < count:
        rows.passes.append(Pass())
        rows.stores.append([])


def _phases(rows: RowProgram, step: Pass) -> list[list[Fold]]:
    """Folds by how many running values they follow in a chain."""
    depth: dict[str, int] = {}
    phases: list[list[Fold]] = []
    for fold in step.folds:
        roots = [rows.source(fold)]
        roots += [rows.expand(Ref(t)) for t in (fold.repair, fold.offset) if t is not None]
        refs = {t.tile.name for t in walk(*roots) if isinstance(t, Ref)}
        level = max((depth[n] + 1 for n in refs if n in depth), default=0)
        depth[fold.target.name] = level
        while len(phases) <= level:
            phases.append([])
        phases[level].append(fold)
    return phases
