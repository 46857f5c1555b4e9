"""The text of a general kernel as it grows: scopes, positions, and values at a position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from nautile.codegen.expression import Level, Printer
from nautile.codegen.general.layout import Layout
from nautile.codegen.kernel_text import (
    identifier,
    indented,
    scalar_load,
    wide_offset,
)
from nautile.codegen.rows.accesses import Access
from nautile.codegen.tile import (
    Fold,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    TileProgram,
    walk_statements,
)
from nautile.errors import LoweringError
from nautile.terms import Axis, Index, Term, transform

__all__ = ["NOWHERE", "Block", "axes_of", "origin"]


@dataclass(slots=True)
class Block:
    """The text of one kernel, and where its tiles and positions are."""

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

    def _carries(self, s: Fold | Mma) -> bool:
        return any(a in self.open for a in axes_of(s))

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
        access = Access.of(read.buffer, tuple(self.expand(c) for c in read.coordinates), NOWHERE)
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
        absolute = f"{origin(axis)} + l_{name}" if self._has_origin(axis) else f"l_{name}"
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
                base = f"{origin(axis)} + " if self._has_origin(axis) else ""
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


NOWHERE = Axis("#none", 0, 1)


def origin(axis: Axis) -> str:
    return f"o_{identifier(axis.name)}"


def axes_of(s: Fold | Mma) -> tuple[Axis, ...]:
    return (s.axis,) if isinstance(s, Fold) else s.axes
