"""The merge of two threads' partial states as a C++ function of a pass.

Inside it the running value of a fold is the merged one (`c.x`), and what a fold was before is each
side's own (`a.x`, `b.x`); terms of running values alone are computed once for both sides.
"""

from __future__ import annotations

from nautile.codegen.expression import Level, Printer
from nautile.codegen.rows.reading import Reader
from nautile.codegen.rows.states import Moves, merge_lines
from nautile.codegen.rows.structure import Pass
from nautile.codegen.tile import Fold, Ref, Tile
from nautile.terms import Term, transform

__all__ = ["merge_function"]


def merge_function(reader: Reader, number: int, step: Pass) -> list[str]:
    """`merge<number>` of two `State<number>`. What it needs from the row is left in the printer's
    outermost level."""
    ordered = [f for phase in step.phases for f in phase]
    level = Level(reader.printer.levels[1].axes, prefix="mg")
    sides = {f"{side}.{f.target.name}" for f in ordered for side in "abc"}

    def leaf(term: Term) -> str:
        if isinstance(term, Ref) and term.tile.name in sides:
            return term.tile.name
        return reader.leaf(term)

    levels = [reader.printer.levels[0], level]
    printer = Printer(levels, leaf, precise=reader.precise, counter=reader.names)
    reader.running = frozenset(n for f in ordered for n in _names(f))
    moves = {f.target.name: _moves(reader, printer, ordered, f) for f in ordered}
    reader.running = frozenset()
    state = f"State{number}"
    return [
        f"auto merge{number} = [&](const {state}& a, const {state}& b) {{",
        f"  {state} c;",
        *(f"  {line}" for line in merge_lines(ordered, moves)),
        "  return c;",
        "};",
    ]


def _names(fold: Fold) -> list[str]:
    return [fold.target.name, *([fold.before.name] if fold.before else [])]


def _moves(reader: Reader, printer: Printer, folds: list[Fold], fold: Fold) -> Moves:
    found: list[tuple[str, str] | None] = []
    for tile in (fold.repair, fold.offset):
        if tile is None:
            found.append(None)
            continue
        term = reader.term(Ref(tile))
        left, right = (printer.value(_of_side(term, folds, s), fold.target.dtype) for s in "ab")
        found.append((left, right))
    lines = tuple(printer.levels[1].lines)
    printer.levels[1].lines.clear()
    return Moves(lines, found[0], found[1])


def _of_side(root: Term, folds: list[Fold], side: str) -> Term:
    """The term with running values those of c, and values before those of one side."""
    names = {f.target.name: f"c.{f.target.name}" for f in folds}
    names |= {f.before.name: f"{side}.{f.target.name}" for f in folds if f.before}

    def step(term: Term) -> Term:
        if isinstance(term, Ref) and term.tile.name in names:
            return Ref(Tile(names[term.tile.name], term.tile.axes, term.tile.dtype))
        return term

    return transform(root, step)
