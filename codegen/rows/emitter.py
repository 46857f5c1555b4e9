"""Row programs as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from nautile.codegen.expression import LOG2E, Level, Printer
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    comment,
    identifier,
    indented,
    parameters,
    pruned,
    scalar_store,
    wide_offset,
)
from nautile.codegen.rows.accesses import FIRST, Access
from nautile.codegen.rows.geometry import DEFAULT, RowOptions, geometry
from nautile.codegen.rows.kept import kept_values
from nautile.codegen.rows.merging import merge_function
from nautile.codegen.rows.prologue import prologue
from nautile.codegen.rows.reading import CHUNK, WITHIN, Reader, row_dependent
from nautile.codegen.rows.states import declared, fields, moved, state_type, update
from nautile.codegen.rows.strided import emit_strided
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.rows.transposed import cross_axis, emit_transposed
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Fold, Ref, Tile, Write
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Apply, Buffer, Const, Term

__all__ = ["RowEmitter", "emit_rows", "emit_rows_cluster"]

_KEPT = "kept"  # arrays of values held from one pass to the next
_MAX_BLOCKS = 2**31 - 1
CLUSTER = RowOptions(cluster=0)


def emit_rows(
    program: RowProgram, name: str, precise: bool, options: RowOptions = DEFAULT
) -> CudaKernel:
    """The kernel of a row program."""
    cross = cross_axis(program) if program.shared is None else None
    if cross is not None:
        return emit_transposed(program, cross, name, precise, options.overlap)
    if program.lane is not None:
        return emit_strided(program, program.lane, name, precise, options.overlap)
    return RowEmitter.of(program, name, precise, options).kernel()


def emit_rows_cluster(
    program: RowProgram, name: str, precise: bool, options: RowOptions = CLUSTER
) -> CudaKernel:
    """The kernel of a row program whose rows are shared by the blocks of a cluster (sm_90): each
    holds its part, and partial states are exchanged through distributed shared memory. Raises
    LoweringError where one block a row does as well, or eight blocks cannot hold it."""
    if program.lane is not None:
        raise LoweringError(f"{name}: rows that memory runs across are not shared by a cluster")
    return RowEmitter.of(program, name, precise, options).kernel()


@dataclass(slots=True)
class RowEmitter(Reader):
    """Passes over the columns, merges across threads, stores. Blocks of a cluster have `met` once
    all of them are known to have started."""

    met: bool = False
    room: int = 0
    overlaps: bool = False

    @classmethod
    def of(cls, rows: RowProgram, name: str, precise: bool, options: RowOptions) -> Self:
        reads = {
            n: Access.of(r.buffer, tuple(rows.expand(c) for c in r.coordinates), rows.column)
            for n, r in rows.reads.items()
        }
        writes = [
            Access.of(w.buffer, w.coordinates, rows.column) for p in rows.passes for w in p.writes
        ]
        element = {n: a for n, a in reads.items() if rows.column in a.offset.free}
        unique: dict[object, str] = {}
        keys = {n: unique.setdefault((a.buffer, a.offset, a.guards), n) for n, a in reads.items()}
        every = [a for n, a in element.items() if keys[n] == n]
        wide = any(a.width(rows.column.extent) > 1 for a in (*every, *writes))
        cached = [
            a
            for a in every
            if row_dependent(a, rows)
            and a.steady
            and (not wide or a.start is not None or a.width(rows.column.extent) > 1)
        ]
        shape = geometry(rows, every, writes, cached, options)
        made = cls(rows, name, precise, reads, keys, shape)
        made.room, made.overlaps = options.room, options.overlap
        if shape.blocks > _MAX_BLOCKS:
            raise LoweringError(f"{name}: {shape.blocks} blocks exceed the grid")
        axes = frozenset(rows.rows)
        levels = [
            Level(axes, prefix="ru"),
            Level(axes | {CHUNK}, prefix="ck"),
            Level(axes | {CHUNK, rows.column, FIRST, WITHIN}, prefix="el"),
        ]
        made.printer = Printer(levels, made.leaf, precise=precise, counter=made.names)
        return made

    # -- text -----------------------------------------------------------------------------------

    def kernel(self) -> CudaKernel:
        self._head()
        if self.rows.shared is not None:
            if self.shape.resident:
                # What the elements read is on its way while the threads fold and merge.
                self._preload(self._wanted(self.rows.passes[0]))
            self.put(*prologue(self, self.rows.shared))
        self._work()
        g = self.shape
        inputs, outputs = _buffers(self.rows)
        signature = parameters(inputs, outputs)
        cluster = f"__cluster_dims__({g.chunks}, 1, 1) " if g.cluster else ""
        bounds = f"{cluster}__launch_bounds__({g.bounds})"
        text = [
            *comment(self.rows.program),
            f'extern "C" __global__ void {bounds} {identifier(self.name)}(',
            f"    {signature}) {{",
            *pruned(self.body),
            "}",
        ]
        headers = ("scalar.cuh", "copy.cuh", "sm90.cuh", "rows.cuh")
        source = inline("\n".join(text) + "\n", *headers)
        return CudaKernel(
            identifier(self.name),
            source,
            (g.blocks, 1, 1),
            g.threads,
            g.stage,
            tuple(b.name for b in (*inputs, *outputs)),
            architecture="sm_90" if g.cluster or g.ring else "sm_80",
            overlaps=self.overlaps,
        )

    def _work(self) -> None:
        """The passes over a row, and what is stored between them."""
        g = self.shape
        keep = kept_values(self.rows, g.held * g.width, self.room) if g.lasting else ()
        for number, step in enumerate(self.rows.passes):
            self._stores(number)
            self._pass(number, step, keep[number] if keep else ())
        self._stores(len(self.rows.passes))

    def _overlap(self) -> None:
        if self.overlaps:
            self.put("nt_overlap();")

    def _head(self) -> None:
        g = self.shape
        self._overlap()
        if g.cluster:
            self.put("nt_cluster_arrive();")
        block = "blockIdx.x" if g.chunks == 1 else f"blockIdx.x / {g.chunks}"
        self.put(
            f"const int t = threadIdx.x % {g.row_threads};",
            f"const nt_i64 place = (nt_i64)({block}) * {g.block_rows}"
            f" + threadIdx.x / {g.row_threads};",
            f"const bool live = place < {g.rows}LL;",
            f"const nt_i64 row = live ? place : {g.rows - 1}LL;",
        )
        if g.chunks > 1:
            step = g.part if g.cluster else g.row_threads * g.held
            self.put(f"const int first = (int)(blockIdx.x % {g.chunks}) * {step};")
        if g.cluster and g.ragged:
            last = "" if g.part * g.chunks == g.vectors else f"first + {g.part} > {g.vectors} ? "
            end = f"(first + {g.part}) * {g.width}"
            self.put(f"const int end = {f'{last}{g.vectors * g.width} : ' if last else ''}{end};")
        if g.staged:
            self.put(
                "extern __shared__ __align__(16) nt_u8 staged[];",
                "const nt_u32 stage = nt_shared(staged) + 16 * threadIdx.x;",
            )
        self._digits()

    def _digits(self) -> None:
        """The position of the row on each row axis."""
        rows = stride = self.shape.rows
        for axis in self.rows.rows:
            stride //= axis.extent
            divided = "row" if stride == 1 else f"row / {stride}"
            wrapped = f"({divided}) % {axis.extent}" if stride * axis.extent < rows else divided
            self.put(f"const int i_{identifier(axis.name)} = (int)({wrapped});")

    # -- passes ---------------------------------------------------------------------------------

    def _pass(self, number: int, step: Pass, keep: tuple[Term, ...]) -> None:
        g = self.shape
        self._declare(step)
        self.running = frozenset(step.targets) | frozenset(
            f.before.name for f in step.folds if f.before is not None
        )
        wanted = self._wanted(step)
        if not g.resident:
            self.loaded.clear()
            stride = g.row_threads * g.held
            self.put(f"for (int first = 0; first < {g.vectors}; first += {stride}) {{")
            self.depth += 1
        self._preload(wanted)
        self._phases(step, keep)
        if not g.resident:
            self.depth -= 1
            self.put("}")
        self.running = frozenset()
        self.printer.close(1 if g.resident else 0)
        self._merge(number, step)

    def _declare(self, step: Pass) -> None:
        for fold in step.folds:
            self.put(*(f"{kind} {name} = {first};" for kind, name, first in declared(fold)))

    def _phases(self, step: Pass, keep: tuple[Term, ...]) -> None:
        for fold in step.folds:
            if fold.before is not None:
                kind = CPP[carrier(fold.target.dtype)]
                self.put(f"const {kind} {fold.before.name} = {fold.target.name};")
        phases = step.phases or [[]]
        for number, folds in enumerate(phases):
            for fold in folds:
                self._move(fold)
            writes = step.writes if number == len(phases) - 1 else []
            self._element_loop(folds, writes, () if number else keep)

    def _move(self, fold: Fold) -> None:
        """Bring what a thread has summed to the running values of this chunk; a resident row is one
        chunk, before which nothing was summed."""
        if self.shape.resident or (fold.repair is None and fold.offset is None):
            return
        kind = fold.target.dtype
        repair, offset = (
            None if t is None else self.printer.value(self.term(Ref(t)), kind)
            for t in (fold.repair, fold.offset)
        )
        self.flush(0)
        self.flush(1)
        name = fold.target.name
        self.put(f"{name} = {moved(name, repair, offset, carrier(kind))};")

    def _element_loop(self, folds: list[Fold], writes: list[Write], keep: tuple[Term, ...]) -> None:
        """One walk over the elements that a thread holds."""
        if not folds and not writes:
            return
        g, printer = self.shape, self.printer
        part = Pass(folds, writes)
        outer_loaded = dict(self.loaded)
        wanted = self._wanted(part)
        loads = self._inner_loads(wanted)
        self._hold(keep)
        updates: list[str] = []
        for fold in folds:
            value = self._summand(fold)
            updates += update(fold, value, f"i_{identifier(self.rows.column.name)}")
        stored = [self._element_store(w) for w in writes]
        updates += [line for inner, _, _ in stored for line in inner]
        element = [*printer.levels[2].lines, *updates]
        printer.levels[2].lines.clear()
        self.flush(0)
        self.flush(1)
        index = f"i_{identifier(self.rows.column.name)}"
        if any(index in line for line in element):
            element.insert(0, f"const int {index} = c0 + e;")
        lines = [f"nt_opaque({v});" for v in self._narrow(outer_loaded, wanted)]
        lines += loads + [line for _, before, _ in stored for line in before]
        loop = ["#pragma unroll", f"for (int e = 0; e < {g.width}; e++) {{"]
        lines += [*loop, *(indented(line, 1) for line in element), "}"]
        lines += [line for _, _, after in stored for line in after]
        if self.ragged:
            guard = f"if ({self.inside}) {{"
            lines = [guard, *(indented(line, 1) for line in lines), "}"]
        self._vector_loop(lines)
        self.loaded = outer_loaded
        printer.close(2)

    def _hold(self, keep: tuple[Term, ...]) -> None:
        """Compute values for this pass and later ones into arrays of registers."""
        g = self.shape
        for term in keep:
            name = self.printer.name(_KEPT)
            self.put(f"float {name}[{g.held * g.width}];")
            value = self.printer.value(self.term(term), "f32")
            self.printer.levels[2].lines.append(f"{name}[i * {g.width} + e] = {value};")
            self.arrays.add(name)
            self.kept[term] = Ref(Tile(name, (*self.rows.rows, self.rows.column), "f32"))

    def _summand(self, fold: Fold) -> str:
        """The fold's source in C++. exp(x - max(x)) in base 2 straight from the special-function
        unit: what that loses (2 ulp, and all below 2^-126) is less than an ulp of a sum that holds
        the maximum's 1."""
        source = self.rows.source(fold)
        direct = self.precise and fold.monoid == "sum" and carrier(fold.target.dtype) == "f32"
        match source:
            case Apply("exp", (Apply("sub", (a, Ref(tile))) as distance,)) if direct:
                if source not in self.kept and self._maxima().get(tile.name) is a:
                    power = Apply("mul", (self.term(distance), Const(LOG2E)))
                    return f"nt_ex2({self.printer.value(power, 'f32')})"
        return self.printer.value(self.term(source), fold.source.dtype)

    def _maxima(self) -> dict[str, Term]:
        """What each maximum of the program is of."""
        folds = [f for p in self.rows.passes for f in p.folds if f.monoid == "max"]
        return {f.target.name: self.rows.source(f) for f in folds}

    def _element_store(self, write: Write) -> tuple[list[str], list[str], list[str]]:
        """Lines inside the element loop, before it, and after it."""
        access = Access.of(write.buffer, write.coordinates, self.rows.column)
        dtype = write.buffer.dtype
        value = self.printer.value(self.term(Ref(write.source)), dtype)
        if not self._vector(access):
            offset = self.printer.value(wide_offset(write.buffer, access.offset))
            line = scalar_store(write.buffer, offset, value)
            return [f"{self.alive}{line}"], [], []
        name = f"o_{identifier(write.buffer.name)}"
        lines, place = self._first(access)
        width = self.shape.width
        pack = f"nt_pack_{dtype}<{width}>({name})"
        store = f"{self.alive}nt_store<{width * access.bytes}>({place}, {pack});"
        before = [f"{CPP[carrier(dtype)]} {name}[{width}];"]
        return [f"{name}[e] = {value};"], before, [*lines, store]

    # -- across threads -------------------------------------------------------------------------

    def _merge(self, number: int, step: Pass) -> None:
        g = self.shape
        if not step.folds or g.row_threads == 1:
            return
        function = merge_function(self, number, step)
        self.flush(0)
        self.put(state_type(number, step.folds))
        self.put(*function)
        names = [n for f in step.folds for n in fields(f)]
        call = self._reduced(number, f"State{number}{{{', '.join(names)}}}, merge{number}")
        self.put(f"const State{number} all{number} = {call};")
        self.put(*(f"{n} = all{number}.{n};" for n in names))

    def _reduced(self, number: int, states: str) -> str:
        """The merged state of all threads of a row, after what it needs is declared."""
        g = self.shape
        warps = max(1, g.threads // 32) * (g.chunks if g.cluster else 1)
        self.put(f"__shared__ State{number} shared{number}[{warps}];")
        if g.cluster and not self.met:
            self.put("nt_cluster_wait();")
            self.met = True
        across = f"_cluster<{g.chunks}, {g.row_threads}>" if g.cluster else f"<{g.row_threads}>"
        return f"nt_reduce{across}({states}, shared{number})"

    def _stores(self, number: int) -> None:
        """Row values that are complete after `number` passes."""
        for write in self.rows.stores[number]:
            access = Access.of(write.buffer, write.coordinates, self.rows.column)
            value = self.printer.value(self.term(Ref(write.source)), write.buffer.dtype)
            offset = self.printer.value(wide_offset(write.buffer, access.offset))
            self.flush(0)
            self.put(f"if ({self.leader}) {scalar_store(write.buffer, offset, value)}")


def _buffers(rows: RowProgram) -> tuple[list[Buffer], list[Buffer]]:
    inputs = list(dict.fromkeys(r.buffer for r in rows.reads.values()))
    writes = [w for p in rows.passes for w in p.writes] + [w for s in rows.stores for w in s]
    if rows.shared is not None:
        writes += [w for s in rows.shared.stores for w in s]
    return inputs, list(dict.fromkeys(w.buffer for w in writes))
