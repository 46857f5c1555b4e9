"""What the parts of the printer share: names, the text so far, and where values lie in registers.

A thread of a warpgroup has rows `row0 + 8 e` of a 64-row fragment, e = 0, 1 (of a second fragment,
64 further, e = 2, 3), and two of every eight columns: an accumulator's element is
`[4 j + 2 e + q]`, column 8 j + 2 (lane % 4) + q of its tile. A value of rows alone is `[e]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nautile.codegen.kernel_text import identifier
from nautile.codegen.memory import Fragment, MemoryProgram
from nautile.codegen.memory import Geometry as Warps
from nautile.codegen.sm80.context import Context as Common
from nautile.codegen.sm90.memory import Box, Ring, RoleProgram
from nautile.codegen.sm90.wgmma import Product, Waiting
from nautile.codegen.source import TensorMap
from nautile.terms import Axis, Buffer, Term

__all__ = ["Context", "context_of"]


@dataclass(frozen=True, slots=True)
class Early:
    """An array of pieces of a Load that came ahead; an element of it once words are exchanged."""

    name: str
    pieces: int
    element: str


@dataclass(slots=True)
class Context(Common):
    """The kernel being printed."""

    roles: RoleProgram = field(kw_only=True)
    maps: dict[TensorMap, str] = field(kw_only=True)
    where: Mapping[str, tuple[str, int]] = field(kw_only=True)
    products: dict[str, Product] = field(default_factory=dict)
    waits: dict[str, Waiting] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    leaves: dict[str, Fragment] = field(default_factory=dict)
    ahead: dict[Term, Early] = field(default_factory=dict)
    exchanged: set[str] = field(default_factory=set)
    total: int = 0
    block: str = ""
    first: str = ""
    whole: str = ""
    ends: Callable[[], list[str]] = list

    # -- names --------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows of a thread."""
        return 2 * self.roles.geometry.fragments

    def array(self, name: str) -> str:
        """The array of an accumulator, a packed operand or a value of the row."""
        return f"t_{identifier(name)}"

    def pieces(self, name: str) -> list[str]:
        """The array of each 64-row fragment."""
        count = self.roles.geometry.fragments
        return [f"{self.array(name)}[{i}]" * (count > 1) or self.array(name) for i in range(count)]

    def element(self, fragment: Fragment) -> str:
        """A fragment's element in the loops over e, j and q."""
        if fragment.name in self.spelled:
            return self.spelled[fragment.name]
        if fragment.column is None:
            return f"{self.array(fragment.name)}[e]"
        name, start = self.where[fragment.name]
        at = f"{start} + " * (start > 0)
        if self.roles.geometry.fragments == 1:
            return f"{self.array(name)}[{at}4 * j + 2 * e + q]"
        return f"{self.array(name)}[e >> 1][{at}4 * j + 2 * (e & 1) + q]"

    def fragment(self, name: str) -> Fragment:
        return self.leaves.get(name) or Common.fragment(self, name)

    def row_step(self) -> str:
        """From the thread's first row to row e."""
        return "e * 8" if self.roles.geometry.fragments == 1 else "(e >> 1) * 64 + (e & 1) * 8"

    # -- rings --------------------------------------------------------------------------------

    def slot(self, ring: Ring) -> str:
        """Bytes from the ring's begin to the slot at its cursor."""
        return "0" if ring.stages == 1 else f"slot_{ring.name} * {ring.slot_bytes}"

    def barrier(self, ring: Ring, kind: str, slot: str = "") -> str:
        """A barrier of the slot at the cursor."""
        name = f"{kind}_{ring.name}"
        return name if ring.stages == 1 else f"{name} + 8 * {slot or f'slot_{ring.name}'}"

    def parity(self, ring: Ring) -> str:
        return f"parity_{ring.name}"

    def lies(self, box: Box, ring: Ring) -> str:
        """Where a box lies in the slot at the cursor."""
        parts = [f"in_{ring.name}"] + ([self.slot(ring)] if ring.stages > 1 else [])
        return " + ".join(parts + [str(box.offset)] * (box.offset > 0))


def context_of(
    program: RoleProgram, buffers: dict[Buffer, str], maps: dict[TensorMap, str]
) -> Context:
    """An empty kernel."""
    row: Axis = program.geometry.row
    shell = MemoryProgram(
        program.name,
        Warps(row, program.geometry.rows, 1, 1),
        program.grid,
        program.tiles,
        (),
        program.fragments,
        (),
        program.shared_bytes,
    )
    where = {n: (a.name, start) for a in program.accumulators for n, start in a.parts}
    return Context(shell, buffers, roles=program, maps=maps, where=where)
