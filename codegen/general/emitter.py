"""Tile programs of any shape as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nautile.codegen.expression import Level, Printer
from nautile.codegen.general.block import NOWHERE, axes_of, origin
from nautile.codegen.general.folds import Folds
from nautile.codegen.general.layout import THREADS, fitted
from nautile.codegen.general.sums import Sums
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    comment,
    identifier,
    parameters,
    pruned,
    scalar_store,
    wide_offset,
)
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.states import start
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import (
    Fold,
    Loop,
    Mma,
    Read,
    Ref,
    Statement,
    Tile,
    TileProgram,
    Write,
    walk_statements,
)
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Index, Term, walk

__all__ = ["emit_general"]


def emit_general(program: TileProgram, name: str, precise: bool) -> CudaKernel:
    """The kernel of any tile program."""
    return _Emitter(fitted(program), name, precise).kernel()


@dataclass(slots=True)
class _Emitter(Folds, Sums):
    """Prints whole programs."""

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
            *pruned(self.body),
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
            self.put(f"const int {origin(axis)} = {place} * {self.program.tiles[axis]};")

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
            s
            for s in walk_statements(loop.body)
            if isinstance(s, (Fold, Mma)) and axis in axes_of(s)
        ]
        for s in carried:
            self._start(s)
        name = self._fresh(identifier(axis.name))
        self._limits(loop, name, blocks)
        with self.block(f"for (int b_{name} = first_{name}; b_{name} < stop_{name}; b_{name}++)"):
            self.put(f"const int {origin(axis)} = b_{name} * {tile};")
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
        """A bound; one that a tile gives is left to the mask itself."""
        if term is None or any(isinstance(t, Ref) for t in walk(term)):
            return default

        def leaf(node: Term) -> str:
            assert isinstance(node, Index)
            return origin(node.axis)

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

    def _write(self, write: Write) -> None:
        axes = tuple(dict.fromkeys(a for c in write.coordinates for a in sorted(c.free)))
        size = prod(self.program.tiles[a] for a in axes)
        with self.block(f"for (int x = threadIdx.x; x < {size}; x += {THREADS})"):
            self._decode(axes, "x")
            inside = self._inside(axes)
            if inside:
                self.put(f"if (!({inside})) continue;")
            value = self._value(Ref(write.source), write.buffer.dtype)
            access = Access.of(write.buffer, write.coordinates, NOWHERE)
            offset = self._value(wide_offset(write.buffer, access.offset), "i64")
            self.put(scalar_store(write.buffer, offset, value))
        self.sync()


def _value_of(fold: Fold) -> Tile:
    return Tile(f"{fold.target.name}_value", fold.target.axes, carrier(fold.source.dtype))
