"""Contractions of a general kernel: operands staged in shared memory, results in registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nautile.codegen.general.block import Block
from nautile.codegen.general.layout import THREADS, Micro, followed
from nautile.codegen.rows.states import moved
from nautile.codegen.tile import (
    Mma,
    Read,
    Ref,
    Tile,
)
from nautile.codegen.types import CPP, carrier, literal
from nautile.terms import Axis, Cast

__all__ = ["Sums"]


@dataclass(slots=True)
class Sums(Block):
    """Prints Mma statements."""

    def _mma(self, mma: Mma) -> None:
        m = self.layout.micro[mma.target.name]
        name, kind = mma.target.name, carrier(mma.target.dtype)
        if not self._carries(mma):
            self.put(f"{CPP[kind]} a_{name}[{m.row}][{m.column}] = {{}};")
        elif mma.repair is not None or mma.offset is not None:
            self._move(mma, m)
        with self.block(""):
            one, pitches = CPP[kind], m.pitches
            self.put(f"{one}* const left = ({one}*)(nt_shared + {self.layout.stage});")
            self.put(f"{one}* const right = left + {m.depth * m.batch * pitches[0]};")
            left = _Side("left", mma.left, m.row_axes, m.rows, m.row_items * m.row, pitches[0])
            wide = m.column_items * m.column
            right = _Side("right", mma.right, m.column_axes, m.columns, wide, pitches[1])
            (self._ahead if m.prefetched else self._in_turn)(mma, m, (left, right))
        if not self._carries(mma) or followed(self.program, mma):
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

    def _move(self, mma: Mma, m: Micro) -> None:
        """Bring the accumulators to the running values of this iteration."""
        name, kind = f"a_{mma.target.name}[i][j]", carrier(mma.target.dtype)
        with self._results(m):
            repair, offset = (
                None if t is None else self._value(Ref(t), kind) for t in (mma.repair, mma.offset)
            )
            self.put(f"{name} = {moved(name, repair, offset, kind)};")

    def _spill(self, mma: Mma) -> None:
        """Accumulators to shared memory, where any statement can read them."""
        m, name = self.layout.micro[mma.target.name], mma.target.name
        with self._results(m):
            self.put(f"s_{name}[{self._local(mma.target.axes)}] = a_{name}[i][j];")
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
