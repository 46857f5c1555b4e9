"""What a strided row kernel (see strided.py) reads, and the scopes that its values stand in: `ru`
the row, `ck` running values, `ps` a position of the column, `ln` a result, `el` an element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import identifier, indented, pointer, scalar_load, wide_offset
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.lanes import LaneGeometry
from nautile.codegen.rows.reading import CHUNK
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.tile import Ref, Tile
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Axis, Index, Term, transform, walk

__all__ = ["ELEMENT", "LANE", "POSITION", "ROW", "RUNNING", "StridedReader"]

ROW, RUNNING, POSITION, LANE, ELEMENT = range(5)


@dataclass(slots=True)
class StridedReader:
    """The text of a kernel as it grows. `loaded` tells which C++ expressions hold what a pass has
    read; `running` are the folds of the pass."""

    rows: RowProgram
    lane: Axis
    name: str
    precise: bool
    reads: dict[str, Access]
    shape: LaneGeometry
    printer: Printer = field(init=False)
    body: list[str] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    loaded: dict[str, str] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    depth: int = 1

    def _printer(self, leaf: Callable[[Term], str]) -> Printer:
        outer = frozenset(self.rows.rows) - {self.lane}
        running, column = outer | {CHUNK}, self.rows.column
        levels = [
            Level(outer, prefix="ru"),
            Level(running, prefix="ck"),
            Level(running | {column}, prefix="ps"),
            Level(running | {self.lane}, prefix="ln", several=self.several),
            Level(running | {column, self.lane}, prefix="el"),
        ]
        return Printer(levels, leaf, precise=self.precise, counter=self.names)

    def put(self, *lines: str) -> None:
        self.body += [indented(line, self.depth) for line in lines]

    def take(self, level: int) -> list[str]:
        lines = list(self.printer.levels[level].lines)
        self.printer.levels[level].lines.clear()
        return lines

    def settle(self) -> None:
        """Write out what rows, running values and results need."""
        self.put(*self.take(ROW), *self.take(RUNNING))
        level = self.printer.levels[LANE]
        if level.lines:
            self.put(*level.declared, *self._each(self.take(LANE)))
            level.declared.clear()

    @property
    def several(self) -> int:
        """Results of a thread, or 0 where it has one, which needs no loops and no arrays."""
        return self.shape.width if self.shape.width > 1 else 0

    def _each(self, lines: list[str]) -> list[str]:
        """The lines for every result of a thread."""
        if not lines or not self.several:
            return lines
        inner = (indented(line, 1) for line in lines)
        return ["#pragma unroll", f"for (int e = 0; e < {self.several}; e++) {{", *inner, "}"]

    # -- leaves ---------------------------------------------------------------------------------

    def leaf(self, term: Term) -> str:
        if isinstance(term, Index):
            lane = "(lane0 + e)" if self.several else "lane0"
            return lane if term.axis == self.lane else f"i_{identifier(term.axis.name)}"
        if not isinstance(term, Ref):
            raise LoweringError(f"{self.name}: a {type(term).__name__} inside a pointwise value")
        name = term.tile.name
        if name not in self.reads:
            return f"{name}{self.at(term.tile)}"
        if name in self.loaded:
            return self.loaded[name]
        access = self.reads[name]
        guards = [(self.printer.value(c), n) for c, n in access.guards]
        offset = self.printer.value(wide_offset(access.buffer, access.offset))
        return scalar_load(access.buffer, offset, guards)

    def at(self, tile: Tile) -> str:
        """How one of a tile's results is picked; "" where a thread has one."""
        return "[e]" if self.several and self.lane in tile.axes else ""

    def _dimension(self, tile: Tile) -> str:
        return f"[{self.several}]" if self.at(tile) else ""

    def term(self, root: Term) -> Term:
        """The term over reads and folds, running values marked as changing with the chunk."""

        def step(term: Term) -> Term:
            if isinstance(term, Ref) and term.tile.name in self.running:
                tile = term.tile
                return Ref(Tile(tile.name, (*tile.axes, CHUNK), tile.dtype))
            return term

        return transform(self.rows.expand(root), step)

    # -- reading --------------------------------------------------------------------------------

    def _vector(self, access: Access) -> bool:
        need = min(self.shape.width, max(1, 16 // access.bytes))
        return access.base is not None and access.width(self.lane.extent) >= need

    def _preload(self, step: Pass) -> None:
        """Start the loads of a pass, all positions of a thread at once."""
        sources = [*(f.source for f in step.folds), *(w.source for w in step.writes)]
        roots = [self.term(Ref(tile)) for tile in sources]
        wanted = dict.fromkeys(t.tile.name for t in walk(*roots) if isinstance(t, Ref))
        lines: list[str] = []
        for name in wanted:
            if name in self.reads and name not in self.loaded:
                lines += self._load(name)
        if lines:
            self.settle()
            lines = [*self.take(POSITION), *lines]
            g, column = self.shape, self.rows.column
            at = self._position()
            if g.ragged:
                at = f"nt_min_int({at}, {column.extent - 1})"
            head = f"const int i_{identifier(column.name)} = {at};"
            self._positions([head, *lines])
        self.printer.close(POSITION)

    def _load(self, name: str) -> list[str]:
        """The load of one read at position i, where its place is known beforehand."""
        access, g = self.reads[name], self.shape
        place = access.offset
        known = not any(isinstance(t, Ref) for t in walk(place)) and not access.guards
        if self.rows.column not in place.free or not known:
            return []
        if self.lane not in place.free:
            kind = CPP[carrier(access.buffer.dtype)]
            value = self.leaf(Ref(self.rows.reads[name].target))
            self.put(f"{kind} v_{name}[{g.held}];")
            self.loaded[name] = f"v_{name}[i]"
            return [f"v_{name}[i] = {value[1:-1]};"]
        if not self._vector(access):
            return []
        assert access.base is not None
        size = access.bytes * g.width
        base = self.printer.value(wide_offset(access.buffer, access.base))
        self.put(f"nt_vec<{size}> v_{name}[{g.held}];")
        element = "e" if self.several else "0"
        self.loaded[name] = f"(nt_get_{access.buffer.dtype}(v_{name}[i], {element}))"
        return [f"v_{name}[i] = nt_load<{size}, false>({pointer(access.buffer)} + {base} + lane0);"]

    def _position(self) -> str:
        g = self.shape
        start = "group" if g.resident else "first + group"
        return f"{start} + i * {g.groups}" if g.held > 1 else start

    def _positions(self, lines: list[str]) -> None:
        self.put("#pragma unroll", f"for (int i = 0; i < {self.shape.held}; i++) {{")
        self.put(*(indented(line, 1) for line in lines), "}")
