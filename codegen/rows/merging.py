"""The merge of two threads' partial states as a C++ function of a pass.

Inside it the running value of a fold is the merged one (`c.x`), and what a fold was before is each
side's own (`a.x`, `b.x`); terms of running values alone are computed once for both sides. Folds
with one result come before those with several, which may follow them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import indented
from nautile.codegen.rows.states import Moves, merge_lines
from nautile.codegen.rows.structure import Pass
from nautile.codegen.tile import Fold, Ref, Tile
from nautile.terms import Axis, Term, transform

__all__ = ["Emitter", "merge_function"]


class Emitter(Protocol):
    """What the merge needs of the kernel that is being written: its printer (level 0 is the row,
    level 1 what changes with running values), and how `at` picks one of a fold's results."""

    precise: bool
    names: Counter[str]
    printer: Printer
    running: frozenset[str]

    def leaf(self, term: Term) -> str: ...

    def term(self, root: Term) -> Term: ...

    def at(self, tile: Tile) -> str: ...


def merge_function(emitter: Emitter, number: int, step: Pass, width: int = 1) -> list[str]:
    """`merge<number>` of two `State<number>`; folds with several results have `width` of them. What
    it needs from the row is left in the printer's outermost level."""
    folds = [f for phase in step.phases for f in phase]
    emitter.running = frozenset(step.targets) | {f.before.name for f in folds if f.before}
    merge = _Merge(emitter, folds)
    single = [f for f in folds if not emitter.at(f.target)]
    several = [f for f in folds if emitter.at(f.target)]
    first = merge_lines(single, {f.target.name: merge.moves(f, 1, 2) for f in single})
    each = merge_lines(several, {f.target.name: merge.moves(f, 2) for f in several}, "[e]")
    lines = [*first, *merge.take(1)]
    if each:
        inner = (indented(line, 1) for line in each)
        lines += ["#pragma unroll", f"for (int e = 0; e < {width}; e++) {{", *inner, "}"]
    emitter.running = frozenset()
    state = f"State{number}"
    return [
        f"auto merge{number} = [&](const {state}& a, const {state}& b) {{",
        f"  {state} c;",
        *(f"  {line}" for line in lines),
        "  return c;",
        "};",
    ]


@dataclass(slots=True)
class _Merge:
    """Prints the repairs and offsets of a pass' folds for both sides of a merge."""

    emitter: Emitter
    folds: list[Fold]
    printer: Printer = field(init=False)
    spelled: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        emitter, outer = self.emitter, self.emitter.printer.levels
        for fold in self.folds:
            for side in "abc":
                name = f"{side}.{fold.target.name}"
                self.spelled[name] = f"{name}{emitter.at(fold.target)}"
        inner = frozenset[Axis]().union(outer[1].axes, *(f.target.axes for f in self.folds))
        levels = [outer[0], Level(outer[1].axes, prefix="mg"), Level(inner, prefix="ml")]
        self.printer = Printer(levels, self._leaf, precise=emitter.precise, counter=emitter.names)

    def _leaf(self, term: Term) -> str:
        if isinstance(term, Ref) and term.tile.name in self.spelled:
            return self.spelled[term.tile.name]
        return self.emitter.leaf(term)

    def take(self, *levels: int) -> list[str]:
        lines = [line for n in levels for line in self.printer.levels[n].lines]
        for n in levels:
            self.printer.levels[n].lines.clear()
        return lines

    def moves(self, fold: Fold, *levels: int) -> Moves:
        """The fold's repair and offset, with the temporaries of some levels."""
        found: list[tuple[str, str] | None] = []
        for tile in (fold.repair, fold.offset):
            if tile is None:
                found.append(None)
                continue
            sides = (self._of_side(tile, side) for side in "ab")
            left, right = (self.printer.value(t, fold.target.dtype) for t in sides)
            found.append((left, right))
        return Moves(tuple(self.take(*levels)), found[0], found[1])

    def _of_side(self, tile: Tile, side: str) -> Term:
        """The value with running values those of c, and values before those of one side."""
        names = {f.target.name: f"c.{f.target.name}" for f in self.folds}
        names |= {f.before.name: f"{side}.{f.target.name}" for f in self.folds if f.before}

        def step(term: Term) -> Term:
            if isinstance(term, Ref) and term.tile.name in names:
                return Ref(Tile(names[term.tile.name], term.tile.axes, term.tile.dtype))
            return term

        return transform(self.emitter.term(Ref(tile)), step)
