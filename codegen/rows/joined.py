"""Folds over several axes, one inside the other, as one fold over the positions of all of them.

`sum[c](sum[s](x))` adds the same elements as one sum over the pairs (c, s), and a partial state of
one is a partial state of the other: what a thread has summed of some pairs. So the axes are joined
to one column, whose position is a number with a digit for each of them, the axis of the shortest
stride last. Other folds over these axes must be of the same form, or sums of constants (counts),
which are spread over the positions that are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from nautile.codegen.affine import integer
from nautile.codegen.rows.accesses import offset_of, split_axis
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    Tile,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.terms import Axis, Const, Index, Term, transform, walk

__all__ = ["joined"]


def joined(program: TileProgram) -> TileProgram:
    """The program with the axes of nested folds joined; the same one where it has none, or where
    something else is folded along them."""
    statements = list(walk_statements(program.body))
    folds = {s.target.name: s for s in statements if isinstance(s, Fold)}
    axes = {f.axis for f in folds.values()}
    if len(axes) < 2 or any(isinstance(s, Mma) for s in statements):
        return program
    chains = _chains(folds, statements)
    if chains is None or not all(_covered(c, axes, statements) for c in chains.values()):
        return program
    return _Join(program, _digits(axes, statements), chains).made()


@dataclass(frozen=True, slots=True)
class _Chain:
    """Folds of folds: the outermost, the innermost's source, and the axes of all of them."""

    fold: Fold
    source: Tile
    axes: frozenset[Axis]
    inner: frozenset[str]


def _chains(folds: Mapping[str, Fold], statements: list[Statement]) -> dict[str, _Chain] | None:
    """The chains by their outermost fold's target; None where a fold inside one has another use."""
    inside = {f.source.name for f in folds.values() if f.source.name in folds}
    made: dict[str, _Chain] = {}
    for name, fold in folds.items():
        if name in inside:
            continue
        chain, last = [fold], fold
        while last.source.name in folds:
            last = folds[last.source.name]
            if last.monoid != fold.monoid or last.repair or last.before or last.offset:
                return None
            chain.append(last)
        if len(chain) > 1 and fold.monoid in ("argmax", "argmin"):
            return None
        inner = frozenset(f.target.name for f in chain[1:])
        made[name] = _Chain(fold, last.source, frozenset(f.axis for f in chain), inner)
    if any(n in inside for s in statements if not isinstance(s, Fold) for n in _used(s)):
        return None
    return made


def _used(statement: Statement) -> set[str]:
    """The tiles that a statement's terms and stores mention."""
    match statement:
        case Read(_, _, coordinates):
            roots: tuple[Term, ...] = coordinates
        case Map(_, value):
            roots = (value,)
        case Write(_, coordinates, source):
            roots = (*coordinates, Ref(source))
        case _:
            roots = ()
    return {t.tile.name for t in walk(*roots) if isinstance(t, Ref)}


def _covered(chain: _Chain, axes: set[Axis], statements: list[Statement]) -> bool:
    """Whether the chain walks all of the axes, or adds a constant that can be shared out."""
    missing = prod(a.extent for a in axes - chain.axes)
    if axes <= chain.axes:
        return True
    value = _constant(chain.source, statements)
    if chain.fold.monoid != "sum" or value is None or isinstance(value, bool):
        return False
    return isinstance(value, float) or value % missing == 0


def _constant(tile: Tile, statements: list[Statement]) -> bool | int | float | None:
    for s in statements:
        if isinstance(s, Map) and s.target.name == tile.name and isinstance(s.value, Const):
            return s.value.value
    return None


def _digits(axes: set[Axis], statements: list[Statement]) -> tuple[Axis, ...]:
    """The axes, those of longer strides in the largest tensor first."""
    reads = [s for s in statements if isinstance(s, Read) and axes <= set(s.target.axes)]
    stride: dict[Axis, int] = {}
    if reads:
        read = max(reads, key=lambda s: s.buffer.size)
        for axis in axes:
            split = split_axis(offset_of(read.buffer, read.coordinates), axis)
            stride[axis] = abs(split[0]) if split else 0
    return tuple(sorted(axes, key=lambda a: (-stride.get(a, 0), a)))


@dataclass(slots=True)
class _Join:
    """One joining: `column` stands for the digits."""

    program: TileProgram
    digits: tuple[Axis, ...]
    chains: Mapping[str, _Chain]
    column: Axis = field(init=False)
    places: dict[Axis, Term] = field(default_factory=dict)
    done: dict[Term, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {a.name for a in self.program.tiles}
        name = "_".join(a.name for a in self.digits)
        while name in names:
            name += "_"
        self.column = Axis(name, 0, prod(a.extent for a in self.digits))
        rest: Term = Index(self.column)
        for number, axis in enumerate(self.digits):
            below = Const(prod(a.extent for a in self.digits[number + 1 :]))
            self.places[axis] = integer("floordiv", rest, below)
            rest = integer("mod", rest, below) if below.value != 1 else Const(0)

    def made(self) -> TileProgram:
        body = tuple(s for statement in self.program.body for s in self._statement(statement))
        kept = {a: t for a, t in self.program.tiles.items() if a not in self.digits}
        tiles = {**kept, self.column: self.column.extent}
        grid = tuple(a for a in self.program.grid if a not in self.digits)
        return replace(self.program, tiles=tiles, grid=grid, body=body, masked={})

    def _statement(self, s: Statement) -> tuple[Statement, ...]:
        match s:
            case Read(target, buffer, coordinates):
                return (Read(self._tile(target), buffer, self._terms(coordinates)),)
            case Map(target, value):
                return (Map(self._tile(target), self._term(value)),)
            case Write(buffer, coordinates, source):
                return (Write(buffer, self._terms(coordinates), self._tile(source)),)
            case Fold():
                return self._fold(s)
            case Loop(axis, body):
                inner = tuple(n for statement in body for n in self._statement(statement))
                return (Loop(self.column, _flat(inner)),) if axis in self.digits else (s,)
        return (s,)

    def _fold(self, fold: Fold) -> tuple[Statement, ...]:
        """The outermost fold of a chain over the column; the others are gone."""
        chain = self.chains.get(fold.target.name)
        if chain is None:
            return ()
        made: list[Statement] = []
        source = chain.source
        missing = prod(a.extent for a in self.digits if a not in chain.axes)
        if missing > 1:
            value = _constant(source, list(walk_statements(self.program.body)))
            assert value is not None
            share = value // missing if isinstance(value, int) else value / missing
            source = Tile(f"{fold.target.name}_share", (), source.dtype)
            made.append(Map(source, Const(share)))
        moves = (
            None if t is None else self._tile(t) for t in (fold.repair, fold.before, fold.offset)
        )
        target = self._tile(fold.target)
        made.append(Fold(target, fold.monoid, self.column, self._tile(source), *moves))
        return tuple(made)

    def _tile(self, tile: Tile) -> Tile:
        kept = tuple(a for a in tile.axes if a not in self.digits)
        along = (self.column,) if len(kept) < len(tile.axes) else ()
        return Tile(tile.name, (*kept, *along), tile.dtype)

    def _terms(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        return tuple(map(self._term, terms))

    def _term(self, root: Term) -> Term:
        def step(term: Term) -> Term:
            if isinstance(term, Index):
                return self.places.get(term.axis, term)
            return Ref(self._tile(term.tile)) if isinstance(term, Ref) else term

        return transform(root, step)


def _flat(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements with loops inside replaced by what they hold."""
    return tuple(n for s in body for n in (s.body if isinstance(s, Loop) else (s,)))
