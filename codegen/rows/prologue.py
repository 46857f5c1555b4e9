"""Folds that the elements of a row share, or that stand beside those of the row: done first.

`y[n, j] = exp(x[n, j] - max[p](top[n, p]))` folds p for each row, not for each element: the threads
of a row take the positions of p in turn, merge, and go on to the elements with the results.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import identifier, indented, scalar_load, scalar_store, wide_offset
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.merging import merge_function
from nautile.codegen.rows.reading import CHUNK, Reader
from nautile.codegen.rows.states import declared, fields, state_type, update
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.tile import Fold, Ref, Tile
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Index, Term, transform

__all__ = ["prologue"]


def prologue(reader: Reader, rows: RowProgram) -> list[str]:
    """The lines that leave the results of the program's folds in every thread of a row."""
    made = _Prologue(reader, rows, reader.precise, reader.names)
    later = len(reader.rows.passes)
    for number, step in enumerate(rows.passes):
        made.stores(number)
        made.fold(later + number, step)
    made.stores(len(rows.passes))
    return made.body


@dataclass(slots=True)
class _Prologue:
    reader: Reader
    rows: RowProgram
    precise: bool
    names: Counter[str]
    printer: Printer = field(init=False)
    running: frozenset[str] = frozenset()
    body: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        axes = frozenset(self.rows.rows)
        levels = [
            Level(axes, prefix="ru"),
            Level(axes | {CHUNK}, prefix="ck"),
            Level(axes | {CHUNK, self.rows.column}, prefix="pt"),
        ]
        self.printer = Printer(levels, self.leaf, precise=self.precise, counter=self.names)

    def leaf(self, term: Term) -> str:
        if isinstance(term, Index):
            return f"i_{identifier(term.axis.name)}"
        if not isinstance(term, Ref):
            name = self.rows.program.name
            raise LoweringError(f"{name}: a {type(term).__name__} inside a pointwise value")
        read = self.rows.reads.get(term.tile.name)
        if read is None:
            return term.tile.name
        coordinates = tuple(self.rows.expand(c) for c in read.coordinates)
        access = Access.of(read.buffer, coordinates, self.rows.column)
        guards = [(self.printer.value(c), n) for c, n in access.guards]
        return scalar_load(
            read.buffer, self.printer.value(wide_offset(read.buffer, access.offset)), guards
        )

    def at(self, tile: Tile) -> str:
        """Which of a fold's results: a thread has one."""
        return ""

    def term(self, root: Term) -> Term:
        def step(term: Term) -> Term:
            if isinstance(term, Ref) and term.tile.name in self.running:
                return Ref(Tile(term.tile.name, (*term.tile.axes, CHUNK), term.tile.dtype))
            return term

        return transform(self.rows.expand(root), step)

    def take(self, *levels: int) -> list[str]:
        lines = [line for n in levels for line in self.printer.levels[n].lines]
        for n in levels:
            self.printer.levels[n].lines.clear()
        return lines

    def fold(self, number: int, step: Pass) -> None:
        """One pass: a thread's positions at once, phase by phase, then the merge."""
        for fold in step.folds:
            self.body += [f"{kind} {name} = {first};" for kind, name, first in declared(fold)]
            if fold.before is not None:
                kind = CPP[carrier(fold.target.dtype)]
                self.body.append(f"const {kind} {fold.before.name} = {fold.target.name};")
        self.running = frozenset(step.targets) | {f.before.name for f in step.folds if f.before}
        for folds in step.phases:
            self._positions(folds)
        self.printer.close(1)
        self.running = frozenset()
        if self.reader.shape.row_threads > 1 and step.folds:
            self._merge(number, step)

    def _positions(self, folds: list[Fold]) -> None:
        at = f"i_{identifier(self.rows.column.name)}"
        updates: list[str] = []
        for fold in folds:
            value = self.printer.value(self.term(Ref(fold.source)), fold.source.dtype)
            updates += update(fold, value, at)
        inner = [*self.take(2), *updates]
        extent, threads = self.rows.column.extent, self.reader.shape.row_threads
        head = f"for (int {at} = t; {at} < {extent}; {at} += {threads}) {{"
        self.body += [*self.take(0, 1), head, *(indented(line, 1) for line in inner), "}"]
        self.printer.close(2)

    def _merge(self, number: int, step: Pass) -> None:
        g, state = self.reader.shape, f"State{number}"
        function = merge_function(self, number, step)
        names = [n for f in step.folds for n in fields(f)]
        call = f"nt_reduce<{g.row_threads}>({state}{{{', '.join(names)}}}, merge{number}"
        self.body += [
            *self.take(0),
            state_type(number, step.folds),
            f"__shared__ {state} shared{number}[{max(1, g.threads // 32)}];",
            *function,
            f"const {state} all{number} = {call}, shared{number});",
            *(f"{n} = all{number}.{n};" for n in names),
        ]

    def stores(self, number: int) -> None:
        """Row values that are complete after `number` passes."""
        for write in self.rows.stores[number]:
            access = Access.of(write.buffer, write.coordinates, self.rows.column)
            value = self.printer.value(self.term(Ref(write.source)), write.buffer.dtype)
            offset = self.printer.value(wide_offset(write.buffer, access.offset))
            line = f"if ({self.reader.leader}) {scalar_store(write.buffer, offset, value)}"
            self.body += [*self.take(0), line]
