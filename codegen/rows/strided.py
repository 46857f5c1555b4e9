"""Row programs whose memory runs across the rows as CUDA C++ (see lanes.py).

A thread walks positions i of the column; its results lie side by side, e of them. Values that vary
with neither, one or both are computed in scopes of their own: `ru` the row, `ck` running values,
`ps` a position, `ln` a result, `el` an element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    comment,
    identifier,
    indented,
    parameters,
    pointer,
    scalar_load,
    scalar_store,
    wide_offset,
)
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.lanes import LaneGeometry, lane_geometry
from nautile.codegen.rows.merging import merge_function
from nautile.codegen.rows.reading import CHUNK
from nautile.codegen.rows.states import (
    declared,
    fields,
    moved,
    state_type,
    update,
)
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Fold, Ref, Tile, Write
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Axis, Index, Term, transform, walk

__all__ = ["emit_strided"]

ROW, RUNNING, POSITION, LANE, ELEMENT = range(5)
_MAX_BLOCKS = 2**31 - 1


def emit_strided(rows: RowProgram, lane: Axis, name: str, precise: bool) -> CudaKernel:
    """The kernel of such a program; neighbouring threads lie along `lane`."""
    return _Emitter.of(rows, lane, name, precise).kernel()


@dataclass(slots=True)
class _Emitter:
    """The text of one kernel. `loaded` tells which C++ expressions hold what a pass has read;
    `running` are the folds of the pass, `sides` how a merge spells them."""

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

    @classmethod
    def of(cls, rows: RowProgram, lane: Axis, name: str, precise: bool) -> _Emitter:
        reads = {
            n: Access.of(r.buffer, tuple(rows.expand(c) for c in r.coordinates), lane)
            for n, r in rows.reads.items()
        }
        shape = lane_geometry(rows, lane, reads)
        if shape.blocks > _MAX_BLOCKS:
            raise LoweringError(f"{name}: {shape.blocks} blocks exceed the grid")
        made = cls(rows, lane, name, precise, reads, shape)
        made.printer = made._printer(made.leaf)
        return made

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

    # -- text -----------------------------------------------------------------------------------

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

    def kernel(self) -> CudaKernel:
        self._head()
        for number, step in enumerate(self.rows.passes):
            self._stores(number)
            self._pass(number, step)
        self._stores(len(self.rows.passes))
        inputs = list(dict.fromkeys(r.buffer for r in self.rows.reads.values()))
        writes = [w for p in self.rows.passes for w in p.writes]
        writes += [w for s in self.rows.stores for w in s]
        outputs = list(dict.fromkeys(w.buffer for w in writes))
        g, name = self.shape, identifier(self.name)
        text = [
            *comment(self.rows.program),
            f'extern "C" __global__ void __launch_bounds__({g.bounds}) {name}(',
            f"    {parameters(inputs, outputs)}) {{",
            *self.body,
            "}",
        ]
        source = inline("\n".join(text) + "\n", "scalar.cuh", "rows.cuh")
        buffers = tuple(b.name for b in (*inputs, *outputs))
        return CudaKernel(name, source, (g.blocks, 1, 1), g.threads, 0, buffers)

    def _head(self) -> None:
        g = self.shape
        self.put(
            f"const int group = threadIdx.x / {g.lanes};",
            f"const nt_i64 place = (nt_i64)blockIdx.x * {g.lanes} + threadIdx.x % {g.lanes};",
            f"const bool live = place < {g.places}LL;",
            f"const nt_i64 row = live ? place : {g.places - 1}LL;",
        )
        side = self.lane.extent // g.width
        self.put(f"const int lane0 = (int)(row % {side}) * {g.width};")
        others = [a for a in self.rows.rows if a != self.lane]
        stride = g.places
        for axis in others:
            stride //= axis.extent
            wrapped = f"row / {stride}"
            if stride * axis.extent < g.places:
                wrapped = f"({wrapped}) % {axis.extent}"
            self.put(f"const int i_{identifier(axis.name)} = (int)({wrapped});")

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

    # -- passes ---------------------------------------------------------------------------------

    def _pass(self, number: int, step: Pass) -> None:
        g = self.shape
        self._declare(step)
        self.running = frozenset(step.targets) | {f.before.name for f in step.folds if f.before}
        if not g.resident:
            self.loaded.clear()
            stride = g.groups * g.held
            self.put(f"for (int first = 0; first < {g.extent}; first += {stride}) {{")
            self.depth += 1
        self._preload(step)
        self._phases(step)
        if not g.resident:
            self.depth -= 1
            self.put("}")
        self.printer.close(RUNNING if g.resident else ROW)
        self.running = frozenset()
        if step.folds and g.groups > 1:
            self._merge(number, step)

    def _declare(self, step: Pass) -> None:
        """What a thread folds into."""
        each: list[str] = []
        for fold in step.folds:
            at = self.at(fold.target)
            for kind, name, first in declared(fold):
                several = f"{kind} {name}{self._dimension(fold.target)};"
                self.put(several if at else f"{kind} {name} = {first};")
                each += [f"{name}[e] = {first};"] if at else []
        self.put(*self._each(each))

    def _phases(self, step: Pass) -> None:
        for fold in step.folds:
            if fold.before is not None:
                kind = CPP[carrier(fold.target.dtype)]
                self._set(fold.target, f"{kind} {fold.before.name}", fold.target.name)
        phases = step.phases or [[]]
        for number, folds in enumerate(phases):
            for fold in folds:
                self._move(fold)
            last = number == len(phases) - 1
            self._elements(folds, step.writes if last else [])

    def _set(self, tile: Tile, declaration: str, source: str) -> None:
        """A copy of a fold's results."""
        if not self.at(tile):
            self.put(f"const {declaration} = {source};")
            return
        name = declaration.split()[-1]
        self.put(f"{declaration}{self._dimension(tile)};")
        self.put(*self._each([f"{name}[e] = {source}[e];"]))

    def _move(self, fold: Fold) -> None:
        """Bring what a thread has summed to the running values of this chunk; before the only
        chunk of a resident column nothing was summed."""
        if self.shape.resident or (fold.repair is None and fold.offset is None):
            return
        kind = fold.target.dtype
        repair, offset = (
            None if t is None else self.printer.value(self.term(Ref(t)), kind)
            for t in (fold.repair, fold.offset)
        )
        self.settle()
        name = f"{fold.target.name}{self.at(fold.target)}"
        line = f"{name} = {moved(name, repair, offset, carrier(kind))};"
        self.put(*(self._each([line]) if self.at(fold.target) else [line]))

    def _elements(self, folds: list[Fold], writes: list[Write]) -> None:
        """One walk over the positions and results that a thread has."""
        if not folds and not writes:
            return
        column = self.rows.column
        index = f"i_{identifier(column.name)}"
        single: list[str] = []
        each: list[str] = []
        for fold in folds:
            value = self.printer.value(self.term(Ref(fold.source)), fold.source.dtype)
            enter = update(fold, value, index, self.at(fold.target))
            (each if self.lane in fold.target.axes else single).extend(enter)
        stored = [self._store(w) for w in writes]
        each += [line for inner, _, _ in stored for line in inner]
        before = [line for _, lines, _ in stored for line in lines]
        after = [line for _, _, lines in stored for line in lines]
        position, element = self.take(POSITION), self.take(ELEMENT)
        lines = [*position, *single, *before, *self._each([*element, *each]), *after]
        self.settle()
        guard = self.shape.ragged
        if guard or any(index in line for line in lines):
            head = f"const int {index} = {self._position()};"
            if guard:
                inside = (indented(line, 1) for line in lines)
                lines = [f"if ({index} < {column.extent}) {{", *inside, "}"]
            lines = [head, *lines]
        self._positions(lines)
        self.printer.close(POSITION)

    # -- across groups --------------------------------------------------------------------------

    def _merge(self, number: int, step: Pass) -> None:
        """Groups meet in shared memory."""
        g, state = self.shape, f"State{number}"
        sizes = {f.target.name: g.width for f in step.folds if self.at(f.target)}
        function = merge_function(self, number, step, g.width)
        self.settle()
        self.put(state_type(number, step.folds, sizes), *function)
        self.put(f"__shared__ {state} shared{number}[{g.threads}];")
        self._copied(step, f"{state} all{number};", f"all{number}.?", "?")
        call = f"nt_meet<{g.groups}, {g.lanes}>(all{number}, merge{number}, shared{number})"
        self._copied(step, f"all{number} = {call};", "?", f"all{number}.?")

    def _copied(self, step: Pass, head: str, target: str, source: str) -> None:
        """Copy every variable of the state; ? stands for its name."""
        lines: list[str] = []
        each: list[str] = []
        for fold in step.folds:
            at = self.at(fold.target)
            for name in fields(fold):
                left, right = (f"{side.replace('?', name)}{at}" for side in (target, source))
                (each if at else lines).append(f"{left} = {right};")
        self.put(head, *lines, *self._each(each))

    # -- storing --------------------------------------------------------------------------------

    def _store(self, write: Write) -> tuple[list[str], list[str], list[str]]:
        """Lines for each result, before them, and after them."""
        access = Access.of(write.buffer, write.coordinates, self.lane)
        dtype, width = write.buffer.dtype, self.shape.width
        value = self.printer.value(self.term(Ref(write.source)), dtype)
        if not self._vector(access):
            offset = self.printer.value(wide_offset(write.buffer, access.offset))
            return [f"if (live) {scalar_store(write.buffer, offset, value)}"], [], []
        assert access.base is not None
        element = "e" if self.several else "0"
        name = f"o_{identifier(write.buffer.name)}"
        base = self.printer.assign(wide_offset(write.buffer, access.base))
        place = f"{pointer(write.buffer)} + {base} + lane0"
        pack = f"nt_pack_{dtype}<{width}>({name})"
        store = f"if (live) nt_store<{width * access.bytes}>({place}, {pack});"
        return (
            [f"{name}[{element}] = {value};"],
            [f"{CPP[carrier(dtype)]} {name}[{width}];"],
            [store],
        )

    def _stores(self, number: int) -> None:
        """Row values that are complete after `number` passes: the first group stores them."""
        for write in self.rows.stores[number]:
            each, before, after = self._store(write)
            lines = [*before, *self._each([*self.take(ELEMENT), *each]), *after]
            self.settle()
            if self.shape.groups > 1:
                lines = ["if (group == 0) {", *(indented(line, 1) for line in lines), "}"]
            self.put(*lines)
            self.printer.close(LANE)
