"""Tile programs as text, for people: a statement a line, loops indented, tiles with their axes."""

from __future__ import annotations

from collections import Counter

from nautile.codegen.tile import (
    Bounds,
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
from nautile.codegen.types import carrier
from nautile.operations import OPERATIONS
from nautile.terms import Apply, Axis, Cast, Const, Index, Load, Term, children, walk

__all__ = ["show", "show_value"]

_LARGE = 300  # nodes of a term's tree from which on shared parts are named


def show(program: TileProgram) -> str:
    """The whole program; `axis:tile/extent` introduces every axis."""
    axes = " ".join(f"{a}:{t}/{a.extent}" for a, t in program.tiles.items())
    head = f"tile program {program.name}  [{axes}]  grid ({', '.join(map(str, program.grid))})"
    return "\n".join([head, *(line for s in program.body for line in _lines(s, 1))])


def show_value(term: Term) -> str:
    """A pointwise term, infix where the language has an infix operator. What a large one holds
    several times is written once, with a name: the text is as long as the term is, not as its
    tree."""
    texts: dict[Term, str] = {}
    named: list[str] = []
    shared = _shared(term)
    for part in walk(term):
        text = _written(part, [texts[c] for c in children(part)])
        if part in shared:
            named.append(f"v{len(named) + 1} = {text}")
            text = f"v{len(named)}"
        texts[part] = text
    return texts[term] + (f" with {', '.join(named)}" if named else "")


def _shared(root: Term) -> frozenset[Term]:
    """What a term whose tree is large holds several times, but leaves."""
    size: dict[Term, int] = {}
    uses: Counter[Term] = Counter()
    for part in walk(root):
        below = children(part)
        uses.update(below)
        size[part] = 1 + sum(size[c] for c in below)
    if size[root] <= _LARGE:
        return frozenset()
    return frozenset(t for t, n in uses.items() if n > 1 and children(t))


def _written(term: Term, inner: list[str]) -> str:
    match term:
        case Ref(tile):
            return tile.name
        case Index(axis):
            return str(axis)
        case Const(value):
            return (
                "-inf" if value == float("-inf") else f"{value:.7g}" if _real(value) else str(value)
            )
        case Cast(dtype, _):
            return f"{dtype}({inner[0]})"
        case Load(buffer, _):
            return f"{buffer.name}[{', '.join(inner)}]"
        case Apply(operation, _):
            return _application(operation, inner)
    return str(term)


def _real(value: object) -> bool:
    return isinstance(value, float)


def _application(operation: str, inner: list[str]) -> str:
    infix = OPERATIONS[operation].infix
    if infix and len(inner) == 2:
        return f"({inner[0]} {infix} {inner[1]})"
    if infix:
        return f"({infix} {inner[0]})" if infix.isalpha() else f"{infix}{inner[0]}"
    return f"{operation}({', '.join(inner)})"


def _lines(statement: Statement, depth: int) -> list[str]:
    pad = "    " * depth
    match statement:
        case Read(target, buffer, coordinates):
            places = ", ".join(map(show_value, coordinates))
            return [f"{pad}{_tile(target)} = read {buffer.name}[{places}]"]
        case Map(target, value):
            return [f"{pad}{_tile(target)} = {show_value(value)}"]
        case Fold():
            return [pad + _fold(statement)]
        case Mma(target, left, right, axes, operand, repair, offset, _):
            text = f"{_tile(target)} = mma[{_names(axes)}]({left.name}, {right.name}) in {operand}"
            return [pad + text + _moved(repair, offset)]
        case Loop(axis, body, bounds):
            inner = [line for s in body for line in _lines(s, depth + 1)]
            return [f"{pad}for blocks of {axis}{_bounds(bounds)}:", *inner]
        case Write(buffer, coordinates, source):
            places = ", ".join(map(show_value, coordinates))
            return [f"{pad}write {buffer.name}[{places}] = {source.name} as {buffer.dtype}"]


def _fold(fold: Fold) -> str:
    text = f"{_tile(fold.target)} = {fold.monoid}[{fold.axis}]({fold.source.name})"
    text += _moved(fold.repair, fold.offset)
    return text + (f", {fold.before.name} before" if fold.before else "")


def _moved(repair: Tile | None, offset: Tile | None) -> str:
    text = f" repaired by {repair.name}" if repair else ""
    return text + (f" moved by {offset.name}" if offset else "")


def _bounds(bounds: Bounds) -> str:
    parts = [
        f"{name} {show_value(term)}"
        for name, term in (
            ("from", bounds.first),
            ("to", bounds.stop),
            ("whole from", bounds.whole_first),
            ("whole to", bounds.whole_stop),
        )
        if term is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _tile(tile: Tile) -> str:
    kind = "" if carrier(tile.dtype) == "f32" and tile.dtype == "f32" else f": {tile.dtype}"
    return f"{tile.name}[{_names(tile.axes)}]{kind}"


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(str, axes))
