"""What all parts of the printer share: names, the text so far, positions of axes, and Loads.

Identifiers from the program get a prefix (`g_` buffers, `o_` origins, `p_` positions, `t_` values),
so that no name of a user's can collide with C++.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.memory import Fragment, MemoryProgram
from nautile.codegen.schedule.affine import coefficient, divisor, inside, offset, strides
from nautile.codegen.tile import Ref
from nautile.codegen.types import interval
from nautile.dtypes import DTYPES
from nautile.terms import Axis, Buffer, Index, Load, Term

__all__ = ["Context", "Place", "safe"]

STORED = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "bf16": "nt_u16",
    "f16": "nt_u16",
    "f8e4m3": "nt_u8",
    "f8e5m2": "nt_u8",
    "i64": "nt_i64",
    "i32": "int",
    "i8": "signed char",
    "bool": "bool",
}


def safe(name: str) -> str:
    """The name with everything but ASCII letters, digits and _ replaced."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def widened(dtype: str, bits: str) -> str:
    """A stored element as its arithmetic type."""
    if dtype in ("bf16", "f16", "f8e4m3", "f8e5m2"):
        return f"(nt_f32_of_{dtype}({bits}))"
    return f"((int){bits})" if dtype == "i8" else bits


@dataclass(slots=True)
class Place:
    """Where a term is evaluated: the C++ text of each varying axis' position, which of them may lie
    outside its extent, and the axis along which `run` consecutive elements are read at once (their
    number is the variable `step`; `chunk` holds the lines that read them, at step 0). With
    `pieces`, reads along all positions are made for that many pieces beforehand: `early` holds
    their lines, for piece i, and `arrays` what they fill. `known` spells Loads that are at hand."""

    positions: Mapping[Axis, str]
    ragged: frozenset[Axis]
    vector: Axis | None = None
    run: int = 1
    step: str = ""
    start: str = ""
    chunk: list[str] = field(default_factory=list)
    read: dict[Term, str] = field(default_factory=dict)
    pieces: int = 0
    early: list[str] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)
    known: dict[Term, str] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """The kernel being printed."""

    program: MemoryProgram
    buffers: dict[Buffer, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    counter: Counter[str] = field(default_factory=Counter)
    origins: dict[Axis, str] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    loops: frozenset[Axis] = frozenset()
    gathered: dict[str, tuple[Place, list[Level], str]] = field(default_factory=dict)

    # -- text ---------------------------------------------------------------------------------

    def emit(self, *lines: str) -> None:
        """Append lines, indented by the braces that they open and close."""
        for line in lines:
            closing = line.startswith("}")
            self.lines.append("  " * (self.depth - closing) + line)
            self.depth += line.count("{") - line.count("}")

    def unroll(self, header: str, most: int = 0) -> None:
        """A loop that is unrolled, wholly or (`most` > 0) by that many."""
        self.emit(f"#pragma unroll{f' {most}' if most else ''}", header)

    def fresh(self, prefix: str) -> str:
        self.counter[prefix] += 1
        return f"{prefix}{self.counter[prefix] - 1}"

    # -- names --------------------------------------------------------------------------------

    def buffer(self, buffer: Buffer) -> str:
        return self.buffers[buffer]

    def value(self, fragment: Fragment | str) -> str:
        """The register array of a fragment."""
        name = fragment if isinstance(fragment, str) else fragment.name
        if name not in self.named:
            text = f"t_{safe(name)}"
            taken = set(self.named.values())
            self.named[name] = text if text not in taken else f"{text}_{len(taken)}"
        return self.named[name]

    def origin(self, axis: Axis) -> str:
        return self.origins.get(axis, "0")

    def tile(self, axis: Axis) -> int:
        return dict(self.program.tiles)[axis]

    def width(self, axis: Axis) -> int:
        return -(-self.tile(axis) // 16) * 16

    def ragged(self, axis: Axis) -> bool:
        """Whether positions of a padded tile can lie outside the extent."""
        return axis.extent % self.width(axis) != 0

    # -- terms --------------------------------------------------------------------------------

    def printer(self, levels: Sequence[Level], place: Place, *, precise: bool) -> Printer:
        """A printer whose leaves are positions, fragments and guarded reads."""

        def leaf(term: Term) -> str:
            if isinstance(term, Index):
                return place.positions.get(term.axis) or self.origin(term.axis)
            if isinstance(term, Ref):
                return self.element(self.fragment(term.tile.name))
            assert isinstance(term, Load)
            return place.known.get(term) or self._load(term, place, printer)

        printer = Printer(levels, leaf, precise=precise, counter=self.counter)
        return printer

    def fragment(self, name: str) -> Fragment:
        return next(f for f in self.program.fragments if f.name == name)

    def element(self, fragment: Fragment) -> str:
        """A fragment's element in the loops over i, h, j and q."""
        name = self.value(fragment)
        return f"{name}[i][j][2 * h + q]" if fragment.column else f"{name}[i][h]"

    def levels(self, *axes: Iterable[Axis]) -> list[Level]:
        """Nested levels: uniform, then each group of axes added to the last."""
        seen = frozenset(a for a, _ in self.program.tiles) - frozenset(a for g in axes for a in g)
        result = [Level(seen, prefix="u")]
        for number, group in enumerate(axes):
            seen = seen | frozenset(group)
            result.append(Level(seen, prefix="rxy"[number]))
        return result

    def integer(self, term: Term, positions: Mapping[Axis, str] | None = None) -> str:
        """A uniform integer term as text, with nothing hoisted."""
        place = Place(positions or {}, frozenset())
        everywhere = Level(frozenset(a for a, _ in self.program.tiles))
        text = self.printer([everywhere], place, precise=True).value(term)
        if everywhere.lines:
            self.emit(*everywhere.lines)
        return text

    # -- reads --------------------------------------------------------------------------------

    def _load(self, load: Load, place: Place, printer: Printer) -> str:
        if self._vector(load, place):
            return self._from_chunk(load, place, printer)
        at = self.address(load, printer)
        text = widened(load.buffer.dtype, f"{self.buffer(load.buffer)}[{at}]")
        guard = self._guard(load, place, printer)
        if guard:
            zero = "false" if load.buffer.dtype == "bool" else "0"
            text = f"({guard} ? {text} : {zero})"
        return text if text.startswith("(") else f"({text})"

    def address(self, load: Load, printer: Printer) -> str:
        """The element offset of a Load, in 32 bits where the buffer allows it."""
        wide = "(nt_i64)" if load.buffer.size >= 2**31 else ""
        parts = []
        for term, stride in zip(load.coordinates, strides(load.buffer.shape), strict=True):
            text = printer.value(term)
            if text != "0":
                parts.append(f"{wide}{text}" if stride == 1 else f"{wide}{text} * {stride}")
        return " + ".join(parts) or "0"

    def _guard(self, load: Load, place: Place, printer: Printer) -> str:
        """The condition under which an element is inside; empty where it always is."""
        tests = [f"{place.positions[a]} < {a.extent}" for a in sorted(load.free & place.ragged)]
        for term, extent in zip(load.coordinates, load.buffer.shape, strict=True):
            bounds = interval(term)
            if bounds is None or bounds[0] < 0 or bounds[1] >= extent:
                text = printer.value(term)
                tests.append(f"(unsigned long long){text} < {extent}ull")
        return " && ".join(tests)

    def _vector(self, load: Load, place: Place) -> bool:
        """Whether a run of elements can be read at once: contiguous, aligned, wholly inside."""
        axis = place.vector
        if axis is None or load.buffer.dtype not in ("bf16", "f16", "f32", "tf32"):
            return False
        form = offset(load)
        if coefficient(form, axis) != 1 or divisor(form, axis, place.run) != place.run:
            return False
        return inside(load) and (axis not in place.ragged or axis.extent % place.run == 0)

    def _from_chunk(self, load: Load, place: Place, printer: Printer) -> str:
        """One element of a run that `place.chunk` reads."""
        if load not in place.read:
            words = place.run * DTYPES[load.buffer.dtype].bytes // 4
            name = place.read[load] = self.fresh("w")
            assert place.vector is not None
            first = dict(place.positions) | {place.vector: place.start}
            early = place.pieces > 0 and load.free >= set(place.positions)
            lines = place.early if early else place.chunk
            plain = self._plain(first, lines)
            at = self.address(load, plain)
            guard = self._guard(load, Place(first, place.ragged), plain)
            if early:
                place.arrays.append(f"nt_u32 {name}[{place.pieces}][{words}];")
                name = place.read[load] = f"{name}[i]"
            else:
                lines.append(f"nt_u32 {name}[{words}];")
            read = f"nt_read({name}, {self.buffer(load.buffer)} + ({at}));"
            lines.append(f"if ({guard}) {read} else nt_zero({name});" if guard else read)
        name, step = place.read[load], place.step
        if DTYPES[load.buffer.dtype].bytes == 4:
            return f"(__uint_as_float({name}[{step}]))"
        half = f"(nt_u16)({name}[({step}) >> 1] >> (({step}) & 1) * 16)"
        return widened(load.buffer.dtype, half)

    def _plain(self, positions: Mapping[Axis, str], lines: list[str]) -> Printer:
        """A printer of integer coordinates whose temporaries join `lines`."""
        everywhere = Level(frozenset(a for a, _ in self.program.tiles), lines, prefix="c")
        return self.printer([everywhere], Place(positions, frozenset()), precise=True)
