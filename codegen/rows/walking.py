"""Rows that blocks walk over, while the copy engine brings those that follow (sm_90).

A block, or a cluster, stays on its multiprocessors and takes every `walkers`-th row. Its ring in
shared memory has a slot for each of the rows ahead; a slot is a barrier's phase full when the
engine has brought the row, and free as soon as all threads have the row in registers, which the
first merge across them tells. So the loads of later rows run under the merges and stores of this
one; and what all rows share is read once, where a thread has registers for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import identifier, pointer, wide_offset
from nautile.codegen.rows.accesses import Access
from nautile.codegen.rows.emitter import RowEmitter
from nautile.codegen.rows.geometry import RowOptions
from nautile.codegen.rows.reading import row_dependent
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import Write
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError

__all__ = ["emit_rows_walked"]

_MOST = 2**30  # rows, so that the number of one ahead is an int
_UNIT = 16  # bytes: what the copy engine's addresses and lengths are multiples of


def emit_rows_walked(
    program: RowProgram, name: str, precise: bool, options: RowOptions
) -> CudaKernel:
    """The kernel of a row program that is folded, with a ring of `options.ring` rows. Raises
    LoweringError where the rows do not lie in memory one by one, or a block has no room."""
    if program.lane is not None or program.shared is not None:
        raise LoweringError(f"{name}: a ring holds rows that lie along memory, and nothing else")
    made = _Walking.of(program, name, precise, options)
    if options.ring < 1 + options.taken or made.shape.rows > _MOST:
        raise LoweringError(f"{name}: no ring of {options.ring} for {made.shape.rows} rows")
    made.place()
    return made.kernel()


@dataclass(slots=True)
class _Walking(RowEmitter):
    """`places` gives the byte in a slot at which each tensor's part of a row starts."""

    places: dict[str, int] | None = None
    leaving: dict[Write, int] = field(default_factory=dict)
    merges: int = 0
    released: bool = False

    def place(self) -> None:
        """Give each tensor its place in a slot. LoweringError where the copy engine cannot bring
        one."""
        g, offset, places = self.shape, 0, dict[str, int]()
        for key in self._every():
            access = self.reads[key]
            size = access.bytes * g.width
            if not row_dependent(access, self.rows) or not self._vector(access):
                continue
            if access.base is None or size % _UNIT:
                raise LoweringError(
                    f"{self.name}: rows of {access.buffer.name} lie not in units of 16 bytes"
                )
            places[key] = offset
            offset += size * g.part
        if not places or offset != g.slot:
            raise LoweringError(f"{self.name}: other rows than those of the ring are read")
        self.places = places
        if g.taken:
            self._leave()

    def _leave(self) -> None:
        """Give results that may leave by the ring the places of tensors of their size."""
        g = self.shape
        free = {p: self.reads[k].bytes for k, p in (self.places or {}).items()}
        for write in (w for step in self.rows.passes for w in step.writes):
            access = Access.of(write.buffer, write.coordinates, self.rows.column)
            place = next((p for p, n in free.items() if n == access.bytes), None)
            whole = access.base is not None and self._vector(access)
            if place is not None and whole and access.bytes * g.width % _UNIT == 0:
                self.leaving[write] = place
                del free[place]

    def _every(self) -> list[str]:
        """Keys of the element reads of all passes."""
        return list(dict.fromkeys(k for step in self.rows.passes for k in self._wanted(step)))

    # -- text -----------------------------------------------------------------------------------

    @property
    def alive(self) -> str:
        return ""

    @property
    def leader(self) -> str:
        return "t == 0 && first == 0" if self.shape.chunks > 1 else "t == 0"

    def _head(self) -> None:
        g = self.shape
        beside = g.block_rows > 1
        self.put(f"const int t = threadIdx.x{f' % {g.row_threads}' if beside else ''};")
        if g.chunks > 1:
            self.put(f"const int first = (int)(blockIdx.x % {g.chunks}) * {g.part};")
        if g.cluster and g.ragged:
            total = g.vectors * g.width
            end = f"(first + {g.part}) * {g.width}"
            last = f"first + {g.part} > {g.vectors} ? {total} : "
            self.put(f"const int end = {'' if g.part * g.chunks == g.vectors else last}{end};")
        own = f" + threadIdx.x / {g.row_threads} * " if beside else ""
        self.put(
            "extern __shared__ __align__(16) nt_u8 staged[];",
            f"__shared__ nt_u64 full[{g.ring * g.block_rows}];",
            f"const nt_u32 ring = nt_shared(staged){f'{own}{g.ring * g.slot}' if own else ''};",
            f"const nt_u32 arrived = nt_shared(full){f'{own}{g.ring * 8}' if own else ''};",
        )
        folding = [n for n, step in enumerate(self.rows.passes) if step.folds]
        if g.cluster:
            self.put(f"__shared__ nt_u64 counted[{2 * len(folding)}];")
            self.put("const nt_u32 met = nt_shared(counted);")
        self.put("if (t == 0) {")
        self.put(f"  for (int n = 0; n < {g.ring}; n++) nt_barrier_init(arrived + 8 * n, 1);")
        if g.cluster:
            count = 2 * len(folding)
            self.put(f"  for (int n = 0; n < {count}; n++) nt_barrier_init(met + 8 * n, 1);")
        self.put("  nt_barrier_init_done();", "}", "__syncthreads();")
        if g.cluster:
            self.put("nt_cluster_arrive();")
        self._fetcher()
        block = "(int)blockIdx.x" if g.chunks == 1 else f"(int)blockIdx.x / {g.chunks}"
        place = (
            f"{block} * {g.block_rows} + (int)threadIdx.x / {g.row_threads}" if beside else block
        )
        self._overlap()
        self.put(f"int row = {place};", "if (t == 0) {")
        self.put(f"  for (int n = 0; n < {g.ring}; n++) fetch(row + n * {self._step}, n);", "}")
        if g.cluster:
            self.put("nt_cluster_wait();")
            self.met = True

    @property
    def _step(self) -> int:
        """From a row to the next that the same threads take."""
        g = self.shape
        return g.blocks // g.chunks * g.block_rows

    def _fetcher(self) -> None:
        """The function by which one thread asks for a row."""
        g = self.shape
        assert self.places is not None
        printer = Printer([Level(frozenset(self.rows.rows), prefix="at")], self.leaf)
        lines = []
        for key, place in self.places.items():
            access = self.reads[key]
            assert access.base is not None
            start = printer.value(wide_offset(access.buffer, access.base))
            origin = f" + first * {g.width}" if g.chunks > 1 else ""
            part = self._size(access)
            source = f"{pointer(access.buffer)} + {start}{origin}"
            lines.append((f"nt_bulk_load(to + {place}, {source}, {part}, barrier);", part))
        self.put(
            "// the copy engine brings a row into a slot, and tells by its barrier",
            "auto fetch = [&](const int row, const int slot) {",
            f"  if (row >= {g.rows}) return;",
        )
        self.depth += 1
        self._digits()
        self.put(
            f"const nt_u32 barrier = arrived + 8 * slot, to = ring + slot * {g.slot};",
            f"nt_barrier_expect(barrier, {' + '.join(part for _, part in lines)});",
            *printer.levels[0].lines,
            *(line for line, _ in lines),
        )
        self.depth -= 1
        self.put("};")

    def _work(self) -> None:
        """The walk: a row in each trip."""
        g = self.shape
        self._factors()
        self.put("int slot = 0, turn = 0;", "nt_u32 phase = 0;")
        self.put(f"for (; row < {g.rows}; row += {self._step}, turn++) {{")
        self.depth += 1
        self._digits()
        self.put("nt_barrier_wait(arrived + 8 * slot, phase);")
        self.put(f"const nt_u32 at = ring + slot * {g.slot};")
        self._preload(list(self.places or ()))
        RowEmitter._work(self)
        self._take_away()
        self.put(f"if (++slot == {g.ring}) slot = 0, phase ^= 1;")
        self.depth -= 1
        self.put("}")
        if self.leaving:
            self.put("if (t == 0) nt_bulk_wait<0>();")

    def _take_away(self) -> None:
        """Let the copy engine store the results that wait in this row's slot."""
        if not self.leaving:
            return
        g = self.shape
        self.put(
            "nt_async_fence();", "__syncwarp();" if g.row_threads == 32 else "__syncthreads();"
        )
        self.put("if (t == 0) {")
        self.depth += 1
        for write, place in self.leaving.items():
            access = Access.of(write.buffer, write.coordinates, self.rows.column)
            target, size = self._part(access)
            self.flush(0)
            self.put(f"nt_bulk_store({target}, at + {place}, {size});")
        self.put("nt_bulk_commit();")
        self.depth -= 1
        self.put("}")

    def _part(self, access: Access) -> tuple[str, str]:
        """Where a block's part of this row lies in memory, and its bytes."""
        g = self.shape
        assert access.base is not None
        start = self.printer.assign(wide_offset(access.buffer, access.base))
        origin = f" + first * {g.width}" if g.chunks > 1 else ""
        return f"{pointer(access.buffer)} + {start}{origin}", self._size(access)

    def _size(self, access: Access) -> str:
        g = self.shape
        if g.chunks > 1 and g.part * g.chunks != g.vectors:
            return f"(nt_u32)(end - first * {g.width}) * {access.bytes}"
        return f"{access.bytes * g.width * g.part}"

    def _element_store(self, write: Write) -> tuple[list[str], list[str], list[str]]:
        inner, before, after = RowEmitter._element_store(self, write)
        if write in self.leaving:
            g, size = self.shape, write.buffer.dtype
            width = DTYPES[size].bytes * g.width
            place = f"at + {self.leaving[write]} + {width} * (t + i * {g.row_threads})"
            name = f"o_{identifier(write.buffer.name)}"
            after = [f"nt_leave<{width}>({place}, nt_pack_{size}<{g.width}>({name}));"]
        return inner, before, after

    def _factors(self) -> None:
        """Read what all rows share once, where registers are left for it."""
        g = self.shape
        keys = [
            k
            for k in self._every()
            if not row_dependent(self.reads[k], self.rows) and self._vector(self.reads[k])
        ]
        words = sum(max(1, self.reads[k].bytes * g.width // 4) for k in keys) * g.held
        if keys and words <= g.early:
            self._into_registers(keys)

    def _load(self, key: str, kept: bool, inside: str = "") -> tuple[list[str], str]:
        """A row's vector from its slot; what all rows share from memory."""
        assert self.places is not None
        if key not in self.places:
            return RowEmitter._load(self, key, kept, inside)
        g = self.shape
        size = self.reads[key].bytes * g.width
        place = self.places[key]
        load = f"nt_landed<{size}>(at + {place} + {size} * (t + i * {g.row_threads}))"
        return [], f"{inside} ? {load} : nt_zeros<{size}>()" if inside else load

    def _early(self) -> list[str]:
        return []

    def _reduced(self, number: int, states: str) -> str:
        """States of two rows in turn: a thread may be a row ahead of another."""
        g = self.shape
        warps = max(1, g.threads // 32) * g.chunks
        self.put(f"__shared__ State{number} shared{number}[{2 * warps}];")
        shared = f"shared{number} + turn % 2 * {warps}"
        if not g.cluster:
            return f"nt_reduce<{g.row_threads}>({states}, {shared})"
        met = f"met + {16 * self.merges} + turn % 2 * 8, turn / 2 % 2"
        self.merges += 1
        return f"nt_reduce_counted<{g.chunks}, {g.row_threads}>({states}, {shared}, {met})"

    def _merge(self, number: int, step: Pass) -> None:
        RowEmitter._merge(self, number, step)
        if step.folds and not self.released:
            self._release()

    def _release(self) -> None:
        """All threads have this row's elements: the slot is for the row a ring ahead; where results
        leave by it, the last row's slot, which they have left by now."""
        g = self.shape
        self.released = True
        if self.leaving:
            self.put("// the last row's results have left its slot, or will soon")
            self.put("if (t == 0 && turn) {", "  nt_bulk_wait_read<0>();")
            ahead, last = (g.ring - 1) * self._step, g.ring - 1
            self.put(f"  fetch(row + {ahead}, slot ? slot - 1 : {last});", "}")
            return
        if g.row_threads == 32 and not g.cluster:
            self.put("__syncwarp();")
        self.put("// every thread has this row in registers")
        self.put(f"if (t == 0) fetch(row + {g.ring * self._step}, slot);")
