"""Contractions with a single row that no axis names get one of one position.

`sum[s](p[s] * v[s, e])` multiplies a row by a matrix. The tensor cores have sixteen rows, and every
value of the row is one of them: an axis of extent 1 joins the operand without an axis of its own,
and all that is computed from it. What is stored keeps its coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautile.codegen.schedule.structure import statements
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
)
from nautile.terms import Axis, Term, transform, walk

__all__ = ["with_row"]


def with_row(program: TileProgram) -> TileProgram:
    """The program with a row axis for its contractions, where some have none."""
    found = list(statements(program.body))
    bare = {t.name for s in found if isinstance(s, Mma) for t in _bare(s)}
    if not bare:
        return program
    row = Axis(_family(program), 0, 1)
    named = _reached(found, bare)
    tiles = {name: replace(tile, axes=(row, *tile.axes)) for name, tile in named.items()}
    masked = {name: _term(value, tiles) for name, value in program.masked.items()}
    body = tuple(_statement(s, tiles) for s in program.body)
    return replace(program, tiles={**program.tiles, row: 1}, body=body, masked=masked)


def _bare(s: Mma) -> list[Tile]:
    """The operand whose axes the other one has all."""
    sides = ((s.left, s.right), (s.right, s.left))
    found = [a for a, b in sides if set(a.axes) <= set(b.axes)]
    return found if len(found) == 1 else []


def _family(program: TileProgram) -> str:
    name = "row"
    while any(a.name == name or a.family == name for a in program.tiles):
        name += "_"
    return name


def _reached(found: list[Statement], bare: set[str]) -> dict[str, Tile]:
    """The bare operands and what is computed from them."""
    made = {t.name: s for s in found for t in _targets(s)}
    reached = {n: _target(made[n], n) for n in bare}
    for s in found:
        if any(name in reached for name in _sources(s)):
            reached |= {t.name: t for t in _targets(s)}
    return reached


def _target(s: Statement, name: str) -> Tile:
    return next(t for t in _targets(s) if t.name == name)


def _targets(s: Statement) -> list[Tile]:
    match s:
        case Fold():
            return [s.target] if s.before is None else [s.target, s.before]
        case Read() | Map() | Mma():
            return [s.target]
    return []


def _sources(s: Statement) -> list[str]:
    match s:
        case Map(_, value):
            return [t.tile.name for t in walk(value) if isinstance(t, Ref)]
        case Fold():
            tiles: tuple[Tile | None, ...] = (s.source, s.repair, s.offset)
        case Mma():
            tiles = (s.left, s.right, s.repair, s.offset)
        case _:
            return []
    return [t.name for t in tiles if t is not None]


def _statement(s: Statement, tiles: Mapping[str, Tile]) -> Statement:
    def new(tile: Tile) -> Tile:
        return tiles.get(tile.name, tile)

    def maybe(tile: Tile | None) -> Tile | None:
        return None if tile is None else new(tile)

    match s:
        case Loop():
            return replace(s, body=tuple(_statement(inner, tiles) for inner in s.body))
        case Read():
            coordinates = tuple(_term(c, tiles) for c in s.coordinates)
            return Read(new(s.target), s.buffer, coordinates)
        case Map():
            return Map(new(s.target), _term(s.value, tiles))
        case Fold():
            repair, before, offset = maybe(s.repair), maybe(s.before), maybe(s.offset)
            source = new(s.source)
            return Fold(new(s.target), s.monoid, s.axis, source, repair, before, offset)
        case Mma():
            left, right, repair = new(s.left), new(s.right), maybe(s.repair)
            return Mma(
                new(s.target), left, right, s.axes, s.operand, repair, maybe(s.offset), s.split
            )
        case Write():
            return Write(s.buffer, s.coordinates, new(s.source))


def _term(term: Term, tiles: Mapping[str, Tile]) -> Term:
    def step(t: Term) -> Term:
        return Ref(tiles[t.tile.name]) if isinstance(t, Ref) and t.tile.name in tiles else t

    return transform(term, step)
