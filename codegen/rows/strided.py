"""Row programs whose memory runs across the rows as CUDA C++ (see lanes.py).

A thread walks positions i of the column; its results lie side by side, e of them. Values that vary
with neither, one or both are computed in scopes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    comment,
    identifier,
    indented,
    parameters,
    pointer,
    pruned,
    scalar_store,
    wide_offset,
)
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.lanes import lane_geometry
from nautile.codegen.rows.merging import merge_function
from nautile.codegen.rows.states import (
    declared,
    fields,
    moved,
    state_type,
    update,
)
from nautile.codegen.rows.strided_reading import (
    ELEMENT,
    LANE,
    POSITION,
    ROW,
    RUNNING,
    StridedReader,
)
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Fold, Ref, Tile, Write
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Axis

__all__ = ["emit_strided"]

_MAX_BLOCKS = 2**31 - 1


def emit_strided(
    rows: RowProgram, lane: Axis, name: str, precise: bool, overlaps: bool = False
) -> CudaKernel:
    """The kernel of such a program; neighbouring threads lie along `lane`. With `overlaps` it may
    begin while the kernel before it drains."""
    made = _Emitter.of(rows, lane, name, precise)
    made.overlaps = overlaps
    return made.kernel()


@dataclass(slots=True)
class _Emitter(StridedReader):
    """Passes over the column, merges across groups, stores."""

    overlaps: bool = False

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

    # -- text -----------------------------------------------------------------------------------

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
            *pruned(self.body),
            "}",
        ]
        source = inline("\n".join(text) + "\n", "scalar.cuh", "rows.cuh")
        buffers = tuple(b.name for b in (*inputs, *outputs))
        overlaps = self.overlaps
        return CudaKernel(name, source, (g.blocks, 1, 1), g.threads, 0, buffers, overlaps=overlaps)

    def _head(self) -> None:
        g = self.shape
        if self.overlaps:
            self.put("nt_overlap();")
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
