"""Folds of a general kernel: threads share a result, or neighbours take neighbouring results."""

from __future__ import annotations

from dataclasses import dataclass

from nautile.codegen.general.block import Block
from nautile.codegen.general.layout import THREADS
from nautile.codegen.kernel_text import (
    identifier,
)
from nautile.codegen.rows.states import (
    combine,
    declared,
    fields,
    merge_lines,
    moved,
    start,
    state_type,
    update,
)
from nautile.codegen.rows.structure import strided
from nautile.codegen.tile import (
    Fold,
    Read,
    Ref,
)
from nautile.codegen.types import carrier
from nautile.terms import walk

__all__ = ["Folds"]


@dataclass(slots=True)
class Folds(Block):
    """Prints Fold statements."""

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
        names = fields(fold)
        with self.block(""):
            self.put(state_type(0, [plain]))
            self.put(f"__shared__ State0 shared_{name}[{size * groups}];")
            self.put(f"const int x = threadIdx.x % {size}, group = threadIdx.x / {size};")
            self._decode(fold.target.axes, "x")
            self._identity(fold)
            with self.block(f"if (group < {groups})"):
                self._gather(fold, f"for (int k = group; k < {tile}; k += {groups})")
                self.put(f"shared_{name}[threadIdx.x] = State0{{{', '.join(names)}}};")
            self.sync()
            with self.block("if (group == 0)"):
                self.put("auto merge0 = [](const State0& a, const State0& b) {", "  State0 c;")
                self.put(*(f"  {line}" for line in merge_lines([plain], {})), "  return c;", "};")
                self.put(f"State0 all0 = shared_{name}[x];")
                each = f"all0 = merge0(all0, shared_{name}[g * {size} + x]);"
                self.put(f"for (int g = 1; g < {groups}; g++) {each}")
                self.put(*(f"{n} = all0.{n};" for n in names))
                self._keep(fold)

    def _identity(self, fold: Fold) -> None:
        """Declare what a thread folds into."""
        self.put(*(f"{kind} {name} = {first};" for kind, name, first in declared(fold)))

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
        names = fields(fold)
        self.put(state_type(0, [plain]))
        self.put("auto merge0 = [](const State0& a, const State0& b) {", "  State0 c;")
        self.put(*(f"  {line}" for line in merge_lines([plain], {})), "  return c;", "};")
        initial = f"State0{{{', '.join(names)}}}"
        self.put(f"const State0 all0 = nt_reduce<{lanes}>({initial}, merge0, (State0*)0);")
        self.put(*(f"{n} = all0.{n};" for n in names))

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
        repair, offset = (
            None if t is None else self._value(Ref(t), kind) for t in (fold.repair, fold.offset)
        )
        carried = moved(carried, repair, offset, kind)
        self.put(f"s_{name}[x] = {combine(fold.monoid, carried, name, kind)};")


def _merge_stored(fold: Fold) -> list[str]:
    """argmax and argmin: the block's extreme replaces the carried one if it is better."""
    name = fold.target.name
    better = "nt_above" if fold.monoid == "argmax" else "nt_below"
    test = f"{better}({name}_value, s_{name}_value[x]) || s_{name}[x] == 0x7fffffff"
    return [f"if ({test}) {{ s_{name}_value[x] = {name}_value; s_{name}[x] = {name}; }}"]
