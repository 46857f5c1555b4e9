"""Tile programs of any shape as CUDA C++."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from nautile.codegen.expression import Level, Printer
from nautile.codegen.general.layout import THREADS, Layout, Micro, fitted
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    comment,
    identifier,
    indented,
    parameters,
    scalar_load,
    scalar_store,
    wide_offset,
)
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.states import combine, merge_lines, start, state_type, update
from nautile.codegen.rows.structure import strided
from nautile.codegen.source import CudaKernel
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
from nautile.codegen.types import CPP, carrier, literal
from nautile.errors import LoweringError
from nautile.terms import Axis, Cast, Index, Term, transform, walk

__all__ = ["emit_general"]


def emit_general(program: TileProgram, name: str, precise: bool) -> CudaKernel:
    """The kernel of any tile program."""
    return _Emitter(fitted(program), name, precise).kernel()


@dataclass(slots=True)
class _Emitter:
    layout: Layout
    name: str
    precise: bool
    body: list[str] = field(default_factory=list)
    depth: int = 1
    names: Counter[str] = field(default_factory=Counter)
    open: list[Axis] = field(default_factory=list)
    printer: Printer | None = None

    @property
    def program(self) -> TileProgram:
        return self.layout.program

    @property
    def statements(self) -> list[Statement]:
        return list(walk_statements(self.program.body))

    # -- text -----------------------------------------------------------------------------------

    def put(self, *lines: str) -> None:
        self.body += [indented(line, self.depth) for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.put(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def sync(self) -> None:
        self.put("__syncthreads();")

    def kernel(self) -> CudaKernel:
        inputs = list(dict.fromkeys(s.buffer for s in self.statements if isinstance(s, Read)))
        outputs = list(dict.fromkeys(s.buffer for s in self.statements if isinstance(s, Write)))
        self._head()
        self._run(self.program.body)
        blocks = prod(-(-a.extent // self.program.tiles[a]) for a in self.program.grid)
        if blocks > 2**31 - 1:
            raise LoweringError(f"{self.name}: {blocks} blocks exceed the grid")
        name = identifier(self.name)
        text = [
            *comment(self.program),
            f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}(',
            f"    {parameters(inputs, outputs)}) {{",
            *self.body,
            "}",
        ]
        source = inline("\n".join(text) + "\n", "scalar.cuh", "rows.cuh", "general.cuh")
        buffers = tuple(b.name for b in (*inputs, *outputs))
        grid, shared = (blocks, 1, 1), self.layout.total
        return CudaKernel(name, source, grid, THREADS, shared, buffers)

    def _head(self) -> None:
        if self.layout.total:
            self.put("extern __shared__ nt_u8 nt_shared[];")
        for tile in self._stored():
            kind = CPP[carrier(tile.dtype)]
            offset = self.layout.offsets[tile.name]
            self.put(f"{kind}* const s_{tile.name} = ({kind}*)(nt_shared + {offset});")
        blocks = prod(-(-a.extent // self.program.tiles[a]) for a in self.program.grid)
        stride = blocks
        for axis in self.program.grid:
            count = -(-axis.extent // self.program.tiles[axis])
            stride //= count
            place = f"(int)(blockIdx.x / {stride} % {count})"
            self.put(f"const int {_origin(axis)} = {place} * {self.program.tiles[axis]};")

    def _stored(self) -> list[Tile]:
        """The tiles that live in shared memory."""
        found: list[Tile] = []
        for s in self.statements:
            if isinstance(s, (Fold, Mma)):
                found.append(s.target)
            if isinstance(s, Fold) and s.before is not None:
                found.append(s.before)
            if isinstance(s, Fold) and s.monoid in ("argmax", "argmin"):
                found.append(_value_of(s))
        return found

    # -- statements -----------------------------------------------------------------------------

    def _run(self, body: tuple[Statement, ...]) -> None:
        for s in body:
            match s:
                case Loop():
                    self._loop(s)
                case Fold():
                    self._fold(s)
                case Mma():
                    self._mma(s)
                case Write():
                    self._write(s)

    def _loop(self, loop: Loop) -> None:
        axis, tile = loop.axis, self.program.tiles[loop.axis]
        blocks = -(-axis.extent // tile)
        carried = [
            s for s in walk_statements(loop.body) if isinstance(s, (Fold, Mma)) and axis in _axes(s)
        ]
        for s in carried:
            self._start(s)
        name = self._fresh(identifier(axis.name))
        self._limits(loop, name, blocks)
        with self.block(f"for (int b_{name} = first_{name}; b_{name} < stop_{name}; b_{name}++)"):
            self.put(f"const int {_origin(axis)} = b_{name} * {tile};")
            self.open.append(axis)
            self._run(loop.body)
            self.open.pop()
        for s in carried:
            if isinstance(s, Mma):
                self._spill(s)

    def _fresh(self, name: str) -> str:
        """The name, numbered from its second use on."""
        self.names[f"loop {name}"] += 1
        count = self.names[f"loop {name}"]
        return name if count == 1 else f"{name}_{count}"

    def _limits(self, loop: Loop, name: str, blocks: int) -> None:
        if loop.bounds.first is None and loop.bounds.stop is None:
            self.put(f"const int first_{name} = 0, stop_{name} = {blocks};")
            return
        first = self._uniform(loop.bounds.first, "0")
        stop = self._uniform(loop.bounds.stop, str(blocks))
        least, most = f"nt_max_int<int>({first}, 0)", f"nt_min_int<int>({stop}, {blocks})"
        self.put(
            f"const int first_{name} = nt_min_int<int>({least}, {blocks - 1});",
            f"const int stop_{name} = nt_max_int<int>({most}, first_{name} + 1);",
        )

    def _uniform(self, term: Term | None, default: str) -> str:
        if term is None:
            return default

        def leaf(node: Term) -> str:
            assert isinstance(node, Index)
            return _origin(node.axis)

        level = Level(frozenset(self.program.tiles), prefix="b_")
        text = Printer([level], leaf, counter=self.names).value(term)
        self.put(*level.lines)
        return text

    def _start(self, s: Fold | Mma) -> None:
        """Identities for what a loop carries."""
        if isinstance(s, Mma):
            m = self.layout.micro[s.target.name]
            kind = CPP[carrier(s.target.dtype)]
            self.put(f"{kind} a_{s.target.name}[{m.row}][{m.column}] = {{}};")
            return
        kind = carrier(s.target.dtype)
        size = self.layout.size(s.target)
        with self.block(f"for (int x = threadIdx.x; x < {size}; x += {THREADS})"):
            if s.monoid in ("argmax", "argmin"):
                source = carrier(s.source.dtype)
                self.put(f"s_{s.target.name}_value[x] = {start(s.monoid, source)};")
                self.put(f"s_{s.target.name}[x] = 0x7fffffff;")
            else:
                self.put(f"s_{s.target.name}[x] = {start(s.monoid, kind)};")
        self.sync()

    def _carries(self, s: Fold | Mma) -> bool:
        return any(a in self.open for a in _axes(s))

    # -- elements -------------------------------------------------------------------------------

    def expand(self, root: Term) -> Term:
        """The term over stored tiles and Reads; Maps are replaced by what they compute."""
        maps = {s.target.name: s.value for s in self.statements if isinstance(s, Map)}

        def step(term: Term) -> Term:
            if isinstance(term, Ref) and term.tile.name in maps:
                return maps[term.tile.name]
            return term

        while True:
            wider = transform(root, step)
            if wider is root:
                return root
            root = wider

    def _leaf(self, term: Term) -> str:
        if isinstance(term, Index):
            return f"i_{identifier(term.axis.name)}"
        if not isinstance(term, Ref):
            raise LoweringError(f"{self.name}: a {type(term).__name__} inside a pointwise value")
        tile = term.tile
        if tile.name in self.layout.offsets:
            return f"(s_{tile.name}[{self._local(tile.axes)}])"
        read = next(s for s in self.statements if isinstance(s, Read) and s.target == tile)
        access = Access.of(read.buffer, tuple(self.expand(c) for c in read.coordinates), _NONE)
        assert self.printer is not None
        guards = [(self.printer.value(c), n) for c, n in access.guards]
        offset = self.printer.value(wide_offset(access.buffer, access.offset))
        return scalar_load(access.buffer, offset, guards)

    def _local(self, axes: Sequence[Axis]) -> str:
        """The element number of the current position in a stored tile."""
        text, stride = [], prod(self.program.tiles[a] for a in axes)
        for axis in axes:
            stride //= self.program.tiles[axis]
            text.append(f"l_{identifier(axis.name)}" + (f" * {stride}" if stride != 1 else ""))
        return " + ".join(text) or "0"

    def _decode(self, axes: Sequence[Axis], number: str) -> None:
        """Local and absolute positions from an element number (last axis fastest)."""
        stride = prod(self.program.tiles[a] for a in axes)
        whole = stride
        for axis in axes:
            tile = self.program.tiles[axis]
            stride //= tile
            text = number if stride == 1 else f"{number} / {stride}"
            text = f"({text}) % {tile}" if stride * tile < whole else text
            self._place(axis, text)

    def _place(self, axis: Axis, local: str) -> None:
        name = identifier(axis.name)
        self.put(f"const int l_{name} = {local};")
        absolute = f"{_origin(axis)} + l_{name}" if self._has_origin(axis) else f"l_{name}"
        if axis.extent % self.program.tiles[axis]:
            absolute = f"nt_min_int({absolute}, {axis.extent - 1})"
        self.put(f"const int i_{name} = {absolute};")

    def _has_origin(self, axis: Axis) -> bool:
        return axis in self.program.grid or axis in self.open

    def _inside(self, axes: Sequence[Axis]) -> str:
        """The condition that the positions lie inside the extents; "" where they always do."""
        parts = []
        for axis in axes:
            if axis.extent % self.program.tiles[axis]:
                name = identifier(axis.name)
                base = f"{_origin(axis)} + " if self._has_origin(axis) else ""
                parts.append(f"{base}l_{name} < {axis.extent}")
        return " && ".join(parts)

    def _value(self, term: Term, dtype: str) -> str:
        """Print a term at the current element; its temporaries go to the body."""
        level = Level(frozenset(self.program.tiles), prefix="v_")
        outer = self.printer
        self.printer = Printer([level], self._leaf, precise=self.precise, counter=self.names)
        text = self.printer.value(self.expand(term), dtype)
        self.put(*level.lines)
        self.printer = outer
        return text

    # -- folds ----------------------------------------------------------------------------------

    def _fold(self, fold: Fold) -> None:
        size = self.layout.size(fold.target)
        refs = (t.tile for t in walk(self.expand(Ref(fold.source))) if isinstance(t, Ref))
        names = {tile.name for tile in refs}
        reads = [s for s in self.statements if isinstance(s, Read) and s.target.name in names]
        if strided(reads, fold.axis) and 16 <= size <= THREADS // 2:
            self._fold_columns(fold, size)
        else:
            self._fold_lanes(fold)
        self.sync()

    def _fold_columns(self, fold: Fold, size: int) -> None:
        """Neighbouring threads take neighbouring results, since memory runs that way; groups of
        threads share the folded axis and meet in shared memory."""
        groups = THREADS // size
        name, tile = fold.target.name, self.program.tiles[fold.axis]
        plain = Fold(fold.target, fold.monoid, fold.axis, fold.source)
        fields = self._fields(fold)
        with self.block(""):
            self.put(*state_type(0, [plain]))
            self.put(f"__shared__ State0 shared_{name}[{size * groups}];")
            self.put(f"const int x = threadIdx.x % {size}, group = threadIdx.x / {size};")
            self._decode(fold.target.axes, "x")
            self._identity(fold)
            with self.block(f"if (group < {groups})"):
                self._gather(fold, f"for (int k = group; k < {tile}; k += {groups})")
                self.put(f"shared_{name}[threadIdx.x] = State0{{{', '.join(fields)}}};")
            self.sync()
            with self.block("if (group == 0)"):
                self.put("auto merge0 = [](const State0& a, const State0& b) {", "  State0 c;")
                self.put(*merge_lines([plain], {}), "  return c;", "};")
                self.put(f"State0 all0 = shared_{name}[x];")
                each = f"all0 = merge0(all0, shared_{name}[g * {size} + x]);"
                self.put(f"for (int g = 1; g < {groups}; g++) {each}")
                self.put(*(f"{n} = all0.{n};" for n in fields))
                self._keep(fold)

    def _fields(self, fold: Fold) -> list[str]:
        name = fold.target.name
        return [f"{name}_value", name] if fold.monoid in ("argmax", "argmin") else [name]

    def _identity(self, fold: Fold) -> None:
        """Declare what a thread folds into."""
        name, kind = fold.target.name, carrier(fold.target.dtype)
        if fold.monoid in ("argmax", "argmin"):
            source = carrier(fold.source.dtype)
            self.put(f"{CPP[source]} {name}_value = {start(fold.monoid, source)};")
            self.put(f"int {name} = 0x7fffffff;")
        else:
            self.put(f"{CPP[kind]} {name} = {start(fold.monoid, kind)};")

    def _gather(self, fold: Fold, loop: str) -> None:
        """Let the elements of a loop over k enter a thread's fold."""
        with self.block(loop):
            self._place(fold.axis, "k")
            inside = self._inside([fold.axis])
            if inside:
                self.put(f"if (!({inside})) break;")
            value = self._value(Ref(fold.source), fold.source.dtype)
            self.put(*update(fold, value, f"i_{identifier(fold.axis.name)}"))

    def _fold_lanes(self, fold: Fold) -> None:
        """Neighbouring threads share a result."""
        size, tile = self.layout.size(fold.target), self.program.tiles[fold.axis]
        lanes = 1
        while lanes < 32 and size * lanes * 2 <= THREADS and lanes * 2 <= tile:
            lanes *= 2
        step = THREADS // lanes
        with self.block(f"for (int x0 = 0; x0 < {size}; x0 += {step})"):
            self.put(f"const int x = nt_min_int(x0 + (int)threadIdx.x / {lanes}, {size - 1});")
            self._decode(fold.target.axes, "x")
            self._identity(fold)
            loop = f"for (int k = threadIdx.x % {lanes}; k < {tile}; k += {lanes})"
            self._gather(fold, loop)
            self._across(fold, lanes)
            condition = f"x0 + (int)threadIdx.x / {lanes} < {size} && threadIdx.x % {lanes} == 0"
            with self.block(f"if ({condition})"):
                self._keep(fold)

    def _across(self, fold: Fold, lanes: int) -> None:
        if lanes == 1:
            return
        plain = Fold(fold.target, fold.monoid, fold.axis, fold.source)
        fields = self._fields(fold)
        self.put(*state_type(0, [plain]))
        self.put("auto merge0 = [](const State0& a, const State0& b) {", "  State0 c;")
        self.put(*merge_lines([plain], {}), "  return c;", "};")
        initial = f"State0{{{', '.join(fields)}}}"
        self.put(f"const State0 all0 = nt_reduce<{lanes}>({initial}, merge0, (State0*)0);")
        self.put(*(f"{n} = all0.{n};" for n in fields))

    def _keep(self, fold: Fold) -> None:
        """Combine a block's fold with what was carried, and store it."""
        name, kind = fold.target.name, carrier(fold.target.dtype)
        if fold.before is not None:
            carried = f"s_{name}[x]" if self._carries(fold) else start(fold.monoid, kind)
            self.put(f"s_{fold.before.name}[x] = {carried};")
        if not self._carries(fold):
            if fold.monoid in ("argmax", "argmin"):
                self.put(f"s_{name}_value[x] = {name}_value;")
            self.put(f"s_{name}[x] = {name};")
            return
        if fold.monoid in ("argmax", "argmin"):
            self.put(*_merge_stored(fold))
            return
        carried = f"s_{name}[x]"
        if fold.repair is not None:
            call = "nt_repair_f64" if kind == "f64" else "nt_repair"
            factor = self._value(Ref(fold.repair), kind)
            carried = f"{call}({carried}, {factor})"
        self.put(f"s_{name}[x] = {combine(fold.monoid, carried, name, kind)};")

    # -- contractions ---------------------------------------------------------------------------

    def _mma(self, mma: Mma) -> None:
        m = self.layout.micro[mma.target.name]
        name, kind = mma.target.name, carrier(mma.target.dtype)
        if not self._carries(mma):
            self.put(f"{CPP[kind]} a_{name}[{m.row}][{m.column}] = {{}};")
        elif mma.repair is not None:
            self._repair(mma, m)
        with self.block(""):
            one, pitches = CPP[kind], m.pitches
            self.put(f"{one}* const left = ({one}*)(nt_shared + {self.layout.stage});")
            self.put(f"{one}* const right = left + {m.depth * m.batch * pitches[0]};")
            left = _Side("left", mma.left, m.row_axes, m.rows, m.row_items * m.row, pitches[0])
            wide = m.column_items * m.column
            right = _Side("right", mma.right, m.column_axes, m.columns, wide, pitches[1])
            (self._ahead if m.prefetched else self._in_turn)(mma, m, (left, right))
        if not self._carries(mma):
            self._spill(mma)

    def _in_turn(self, mma: Mma, m: Micro, sides: tuple[_Side, _Side]) -> None:
        """Stage, multiply, stage, multiply."""
        with self.block(f"for (int k0 = 0; k0 < {m.positions}; k0 += {m.depth})"):
            for side in sides:
                total = m.batch * m.depth * side.padded
                with self.block(f"for (int x = threadIdx.x; x < {total}; x += {THREADS})"):
                    place = self._operand(mma, m, side, "k0")
                    self.put(f"{side.name}[{place}] = value;")
            self.sync()
            self._multiply(mma, m)
            self.sync()

    def _ahead(self, mma: Mma, m: Micro, sides: tuple[_Side, _Side]) -> None:
        """The next stage's elements arrive in registers while this one is multiplied."""
        kind = CPP[carrier(mma.target.dtype)]
        counts = [-(-m.batch * m.depth * side.padded // THREADS) for side in sides]
        for side, count in zip(sides, counts, strict=True):
            self.put(f"{kind} next_{side.name}[{count}];")
        head = f"for (int k0 = {-m.depth}; k0 < {m.positions}; k0 += {m.depth})"
        with self.block(head):
            with self.block(f"if (k0 + {m.depth} < {m.positions})"):
                for side, count in zip(sides, counts, strict=True):
                    with self._share(m, side, count):
                        self._operand(mma, m, side, f"k0 + {m.depth}")
                        self.put(f"next_{side.name}[n] = value;")
            self.put("if (k0 >= 0)")
            with self.block(""):
                self._multiply(mma, m)
            self.sync()
            for side, count in zip(sides, counts, strict=True):
                with self._share(m, side, count):
                    fast, slow = self._stage_order(side, m.depth)
                    place = f"(x / {m.depth * side.padded} * {m.depth} + {slow}) * {side.pitch}"
                    self.put(f"{side.name}[{place} + {fast}] = next_{side.name}[n];")
            self.sync()

    @contextmanager
    def _share(self, m: Micro, side: _Side, count: int) -> Iterator[None]:
        """A loop over this thread's elements x of one operand's stage."""
        total = m.batch * m.depth * side.padded
        self.put("#pragma unroll")
        with self.block(f"for (int n = 0; n < {count}; n++)"):
            self.put(f"const int x = threadIdx.x + n * {THREADS};")
            if total % THREADS:
                self.put(f"if (x >= {total}) break;")
            yield

    def _operand(self, mma: Mma, m: Micro, side: _Side, first: str) -> str:
        """Element x of an operand's stage, as `value`; returns its place there."""
        kind = carrier(mma.target.dtype)
        fast, slow = self._stage_order(side, m.depth)
        self.put(f"const int own = {fast}, place = {slow}, k = {first} + place;")
        self.put(f"const int batch = x / {m.depth * side.padded};")
        self.put(f"{CPP[kind]} value = {literal(0, kind)};")
        guards = [f"own < {side.real}"] if side.padded != side.real else []
        guards += [f"k < {m.positions}"] if m.positions % m.depth else []
        with self.block(f"if ({' && '.join(guards)})" if guards else ""):
            self._decode(m.batch_axes, "batch")
            self._decode(side.axes, "own")
            self._decode(mma.axes, "k")
            inside = self._inside(mma.axes)
            text = self._value(Cast(mma.operand, Ref(side.tile)), kind)
            self.put(f"{f'if ({inside}) ' if inside else ''}value = {text};")
        return f"(batch * {m.depth} + place) * {side.pitch} + own"

    def _stage_order(self, side: _Side, depth: int) -> tuple[str, str]:
        """Neighbouring threads take neighbours in memory where the operand is read from there."""
        reads = (s for s in self.statements if isinstance(s, Read))
        read = next((s for s in reads if s.target == side.tile), None)
        last = read.coordinates[-1].free if read and read.coordinates else frozenset[Axis]()
        if last and not last & set(side.axes):
            return f"x / {depth} % {side.padded}", f"x % {depth}"
        return f"x % {side.padded}", f"x / {side.padded} % {depth}"

    def _item(self, m: Micro) -> None:
        """The part of the results that this thread owns."""
        self.put(
            f"const int item = threadIdx.x, column_item = item % {m.column_items};",
            f"const int row_item = item / {m.column_items} % {m.row_items};",
            f"const int batch = item / {m.column_items * m.row_items};",
        )

    def _multiply(self, mma: Mma, m: Micro) -> None:
        name, kind = mma.target.name, CPP[carrier(mma.target.dtype)]
        rows, columns = m.pitches
        with self.block(f"if (threadIdx.x < {m.items})" if m.items < THREADS else ""):
            self._item(m)
            self.put("#pragma unroll")
            with self.block(f"for (int k = 0; k < {m.depth}; k++)"):
                self.put(f"{kind} l[{m.row}], r[{m.column}];")
                at = f"(batch * {m.depth} + k)"
                self.put(f"nt_take<{m.row}, {m.row_items}>(l, left + {at} * {rows}, row_item);")
                self.put(
                    f"nt_take<{m.column}, {m.column_items}>"
                    f"(r, right + {at} * {columns}, column_item);"
                )
                self.put("#pragma unroll")
                with self.block(f"for (int i = 0; i < {m.row}; i++)"):
                    self.put("#pragma unroll")
                    self.put(f"for (int j = 0; j < {m.column}; j++) a_{name}[i][j] += l[i] * r[j];")

    @contextmanager
    def _results(self, m: Micro) -> Iterator[None]:
        """Loops over the results of a thread, with their positions."""
        with self.block(f"if (threadIdx.x < {m.items})"):
            self._item(m)
            self.put("#pragma unroll")
            with self.block(f"for (int i = 0; i < {m.row}; i++)"):
                self.put("#pragma unroll")
                with self.block(f"for (int j = 0; j < {m.column}; j++)"):
                    self.put(f"const int row = nt_index<{m.row}, {m.row_items}>(row_item, i);")
                    call = f"nt_index<{m.column}, {m.column_items}>(column_item, j)"
                    self.put(f"const int column = {call};")
                    ragged = m.rows % m.row or m.columns % m.column
                    if ragged:
                        self.put(f"if (row >= {m.rows} || column >= {m.columns}) continue;")
                    self._decode(m.batch_axes, "batch")
                    self._decode(m.row_axes, "row")
                    self._decode(m.column_axes, "column")
                    yield

    def _repair(self, mma: Mma, m: Micro) -> None:
        assert mma.repair is not None
        name, kind = mma.target.name, carrier(mma.target.dtype)
        call = "nt_repair_f64" if kind == "f64" else "nt_repair"
        with self._results(m):
            factor = self._value(Ref(mma.repair), kind)
            self.put(f"a_{name}[i][j] = {call}(a_{name}[i][j], {factor});")

    def _spill(self, mma: Mma) -> None:
        """Accumulators to shared memory, where any statement can read them."""
        m, name = self.layout.micro[mma.target.name], mma.target.name
        with self._results(m):
            self.put(f"s_{name}[{self._local(mma.target.axes)}] = a_{name}[i][j];")
        self.sync()

    # -- stores ---------------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        axes = tuple(dict.fromkeys(a for c in write.coordinates for a in sorted(c.free)))
        size = prod(self.program.tiles[a] for a in axes)
        with self.block(f"for (int x = threadIdx.x; x < {size}; x += {THREADS})"):
            self._decode(axes, "x")
            inside = self._inside(axes)
            if inside:
                self.put(f"if (!({inside})) continue;")
            value = self._value(Ref(write.source), write.buffer.dtype)
            access = Access.of(write.buffer, write.coordinates, _NONE)
            offset = self._value(wide_offset(write.buffer, access.offset), "i64")
            self.put(scalar_store(write.buffer, offset, value))
        self.sync()


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand of a contraction: its tile, its own axes with `real` positions, padded to whole
    items, and the elements from one summed position to the next in its stage."""

    name: str
    tile: Tile
    axes: tuple[Axis, ...]
    real: int
    padded: int
    pitch: int


_NONE = Axis("#none", 0, 1)


def _origin(axis: Axis) -> str:
    return f"o_{identifier(axis.name)}"


def _axes(s: Fold | Mma) -> tuple[Axis, ...]:
    return (s.axis,) if isinstance(s, Fold) else s.axes


def _value_of(fold: Fold) -> Tile:
    return Tile(f"{fold.target.name}_value", fold.target.axes, carrier(fold.source.dtype))


def _merge_stored(fold: Fold) -> list[str]:
    """argmax and argmin: the block's extreme replaces the carried one if it is better."""
    name = fold.target.name
    better = "nt_above" if fold.monoid == "argmax" else "nt_below"
    test = f"{better}({name}_value, s_{name}_value[x]) || s_{name}[x] == 0x7fffffff"
    return [f"if ({test}) {{ s_{name}_value[x] = {name}_value; s_{name}[x] = {name}; }}"]
