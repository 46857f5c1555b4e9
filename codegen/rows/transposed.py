"""Elementwise programs whose inputs and outputs are contiguous along different axes.

A block owns a square of the output's contiguous axis (the column) and of the other one (the cross
axis). Inputs that are contiguous along the cross axis pass through padded shared memory, so that
both sides move whole vectors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import gcd, prod

from nautile.codegen.expression import Level, Printer
from nautile.codegen.headers import inline
from nautile.codegen.kernel_text import (
    ELEMENT,
    comment,
    identifier,
    indented,
    parameters,
    pointer,
    pruned,
    scalar_load,
    scalar_store,
    wide_offset,
    widen,
)
from nautile.codegen.rows.accesses import Access, split_axis
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Ref, Tile, Write
from nautile.codegen.types import CPP, carrier
from nautile.errors import LoweringError
from nautile.terms import Axis, Index, Term, walk

__all__ = ["cross_axis", "emit_transposed"]

_THREADS = 256


def cross_axis(rows: RowProgram) -> Axis | None:
    """The axis along which some inputs are contiguous and the column is not, where it is the same
    for all of them and nothing is folded."""
    if any(p.folds for p in rows.passes) or not rows.passes:
        return None
    found = {a for r in rows.reads.values() if (a := _contiguous(rows, r.coordinates))}
    return found.pop() if len(found) == 1 else None


def _contiguous(rows: RowProgram, coordinates: tuple[Term, ...]) -> Axis | None:
    """The row axis of slope 1 of a read that strides along the column."""
    last = coordinates[-1] if coordinates else None
    if last is None or any(isinstance(t, Ref) for c in coordinates for t in walk(c)):
        return None
    outer = frozenset[Axis]().union(*(c.free for c in coordinates[:-1]))
    if rows.column in last.free or rows.column not in outer:
        return None
    for axis in sorted(last.free):
        split = split_axis(last, axis)
        if split is not None and split[0] == 1 and axis not in outer and axis.extent > 1:
            return axis
    return None


def emit_transposed(
    rows: RowProgram, cross: Axis, name: str, precise: bool, overlaps: bool = False
) -> CudaKernel:
    """The kernel of such a program. With `overlaps` it may begin while the kernel before it
    drains."""
    made = _Emitter.of(rows, cross, name, precise)
    made.overlaps = overlaps
    return made.kernel()


@dataclass(slots=True)
class _Emitter:
    rows: RowProgram
    cross: Axis
    name: str
    side: int
    width: int
    direct: dict[str, Access]
    staged: dict[str, Access]
    printer: Printer = field(init=False)
    body: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    overlaps: bool = False

    @classmethod
    def of(cls, rows: RowProgram, cross: Axis, name: str, precise: bool) -> _Emitter:
        staged: dict[str, Access] = {}
        direct: dict[str, Access] = {}
        for key, read in rows.reads.items():
            transposed = _contiguous(rows, read.coordinates) == cross
            axis = cross if transposed else rows.column
            coordinates = tuple(rows.expand(c) for c in read.coordinates)
            access = Access.of(read.buffer, coordinates, axis)
            (staged if transposed and access.base is not None else direct)[key] = access
        side = 64 if sum(a.bytes for a in staged.values()) <= 4 else 32
        widths = [16 // a.bytes for a in (*staged.values(), *direct.values())]
        width = gcd(rows.column.extent, min(side, max(widths, default=1)))
        made = cls(rows, cross, name, side, width, direct, staged)
        outer = frozenset(rows.rows) - {cross}
        levels = [
            Level(outer, prefix="ru"),
            Level(outer | {cross}, prefix="ck"),
            Level(outer | {cross, rows.column}, prefix="el"),
        ]
        made.printer = Printer(levels, made.leaf, precise=precise, counter=Counter())
        return made

    def put(self, depth: int, *lines: str) -> None:
        self.body += [indented(line, depth) for line in lines]

    def take(self, level: int) -> list[str]:
        lines = list(self.printer.levels[level].lines)
        self.printer.levels[level].lines.clear()
        return lines

    def kernel(self) -> CudaKernel:
        writes = [w for p in self.rows.passes for w in p.writes]
        inputs = list(dict.fromkeys(r.buffer for r in self.rows.reads.values()))
        outputs = list(dict.fromkeys(w.buffer for w in writes))
        blocks = self._head()
        for key, access in self.staged.items():
            self._stage(key, access)
        self.put(1, "__syncthreads();")
        self._elements(writes)
        name = identifier(self.name)
        text = [
            *comment(self.rows.program),
            f'extern "C" __global__ void __launch_bounds__({_THREADS}) {name}(',
            f"    {parameters(inputs, outputs)}) {{",
            *pruned(self.body),
            "}",
        ]
        source = inline("\n".join(text) + "\n", "scalar.cuh", "rows.cuh")
        buffers = tuple(b.name for b in (*inputs, *outputs))
        return CudaKernel(
            name, source, (blocks, 1, 1), _THREADS, 0, buffers, overlaps=self.overlaps
        )

    def _head(self) -> int:
        """Declare shared memory and the block's place; the number of blocks."""
        if self.overlaps:
            self.put(1, "nt_overlap();")
        for key, access in self.staged.items():
            kind = ELEMENT[access.buffer.dtype]
            pitch = self.side + max(1, 4 // access.bytes)
            self.put(1, f"__shared__ __align__(16) {kind} s_{key}[{self.side}][{pitch}];")
        outer = [a for a in self.rows.rows if a != self.cross]
        counts = [a.extent for a in outer]
        counts += [-(-a.extent // self.side) for a in (self.cross, self.rows.column)]
        blocks = stride = prod(counts)
        if blocks > 2**31 - 1:
            raise LoweringError(f"{self.name}: {blocks} blocks exceed the grid")
        for axis, count in zip([*outer, self.cross, self.rows.column], counts, strict=True):
            stride //= count
            place = f"(int)(blockIdx.x / {stride}u % {count}u)"
            tiled = axis in (self.cross, self.rows.column)
            name = identifier(axis.name)
            self.put(
                1, f"const int {'o' if tiled else 'i'}_{name} = {place}{f' * {self.side}' * tiled};"
            )
        return blocks

    def _stage(self, key: str, access: Access) -> None:
        """Copy one input's square, its own contiguous axis fastest."""
        assert access.base is not None
        width = gcd(access.width(self.cross.extent), self.side)
        size, lines = width * access.bytes, self.side // width
        q, c = identifier(self.cross.name), identifier(self.rows.column.name)
        offset = self.printer.value(wide_offset(access.buffer, access.base))
        inner = self.take(1) + self.take(2)
        self.put(1, *self.take(0), "#pragma unroll")
        total = self.side * lines
        self.put(1, f"for (int x = threadIdx.x; x < {total}; x += {_THREADS}) {{")
        self.put(2, f"const int l_c = x / {lines}, l_q = x % {lines} * {width};")
        self.put(2, f"const int i_{c} = o_{c} + l_c, q0 = o_{q} + l_q;")
        self.put(2, f"if (i_{c} < {self.rows.column.extent} && q0 < {self.cross.extent}) {{")
        load = f"nt_load<{size}, false>({pointer(access.buffer)} + {offset} + q0)"
        self.put(3, *inner, f"const auto v = {load};")
        self.put(3, *_scatter(key, access, width))
        self.put(2, "}")
        self.put(1, "}")
        self.printer.close(1)

    def _elements(self, writes: list[Write]) -> None:
        lanes = self.side // self.width
        q, c = identifier(self.cross.name), identifier(self.rows.column.name)
        loads = self._loads()
        stored = [self._store(w) for w in writes]
        element = self.take(2) + [line for inner, _, _ in stored for line in inner]
        self.put(1, *self.take(0), "#pragma unroll")
        total = self.side * lanes
        self.put(1, f"for (int x = threadIdx.x; x < {total}; x += {_THREADS}) {{")
        self.put(2, f"const int l_q = x / {lanes}, l_c = x % {lanes} * {self.width};")
        self.put(2, f"const int i_{q} = o_{q} + l_q, c0 = o_{c} + l_c;")
        self.put(2, f"if (i_{q} < {self.cross.extent} && c0 < {self.rows.column.extent}) {{")
        self.put(3, *self.take(1), *loads, *(line for _, before, _ in stored for line in before))
        self.put(3, "#pragma unroll", f"for (int e = 0; e < {self.width}; e++) {{")
        if any(f"i_{c}" in line for line in element):
            self.put(4, f"const int i_{c} = c0 + e;")
        self.put(4, *element)
        self.put(3, "}", *(line for _, _, after in stored for line in after))
        self.put(2, "}")
        self.put(1, "}")

    def _vector(self, access: Access) -> bool:
        need = min(self.width, max(1, 16 // access.bytes))
        return access.base is not None and access.width(self.rows.column.extent) >= need

    def _loads(self) -> list[str]:
        lines = []
        for key, access in self.direct.items():
            if self._vector(access) and self.rows.column in access.offset.free:
                assert access.base is not None
                base = self.printer.assign(wide_offset(access.buffer, access.base))
                size = access.bytes * self.width
                place = f"{pointer(access.buffer)} + {base} + c0"
                lines.append(f"const auto v_{key} = nt_load<{size}, true>({place});")
                self.loaded.add(key)
        return lines

    def _store(self, write: Write) -> tuple[list[str], list[str], list[str]]:
        access = Access.of(write.buffer, write.coordinates, self.rows.column)
        dtype = write.buffer.dtype
        value = self.printer.value(self.rows.expand(Ref(write.source)), dtype)
        if not self._vector(access):
            offset = self.printer.value(wide_offset(write.buffer, access.offset))
            return [scalar_store(write.buffer, offset, value)], [], []
        assert access.base is not None
        name = f"o_{identifier(write.buffer.name)}_"
        base = self.printer.assign(wide_offset(write.buffer, access.base))
        place = f"{pointer(write.buffer)} + {base} + c0"
        pack = f"nt_pack_{dtype}<{self.width}>({name})"
        after = f"nt_store<{self.width * access.bytes}>({place}, {pack});"
        return [f"{name}[e] = {value};"], [f"{CPP[carrier(dtype)]} {name}[{self.width}];"], [after]

    def leaf(self, term: Term) -> str:
        if isinstance(term, Index):
            return f"i_{identifier(term.axis.name)}"
        if not isinstance(term, Ref):
            raise LoweringError(f"{self.name}: a {type(term).__name__} inside a pointwise value")
        return self._tile(term.tile)

    def _tile(self, tile: Tile) -> str:
        if tile.name in self.staged:
            dtype = self.staged[tile.name].buffer.dtype
            return f"({widen(dtype, f's_{tile.name}[l_c + e][l_q]')})"
        access = self.direct[tile.name]
        if tile.name in self.loaded:
            return f"(nt_get_{access.buffer.dtype}(v_{tile.name}, e))"
        guards = [(self.printer.value(c), n) for c, n in access.guards]
        offset = self.printer.value(wide_offset(access.buffer, access.offset))
        return scalar_load(access.buffer, offset, guards)


def _scatter(key: str, access: Access, width: int) -> list[str]:
    """Raw elements of a vector into shared memory, by words where they fill some."""
    if width * access.bytes >= 4:
        words = width * access.bytes // 4
        step = f"(nt_u32*)&s_{key}[l_c][l_q]"
        return ["#pragma unroll", f"for (int k = 0; k < {words}; k++) ({step})[k] = v.x[k];"]
    return [f"s_{key}[l_c][l_q] = ({ELEMENT[access.buffer.dtype]})v.x[0];"]
