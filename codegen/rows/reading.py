"""What a row kernel reads: elements by whole vectors, ahead of the pass that needs them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import identifier, indented, pointer, scalar_load, wide_offset
from nautile.codegen.rows.accesses import FIRST, Access
from nautile.codegen.rows.geometry import Geometry
from nautile.codegen.rows.structure import Pass, RowProgram
from nautile.codegen.tile import Ref, Tile
from nautile.errors import LoweringError
from nautile.terms import Apply, Axis, Const, Index, Term, apply, transform, walk

__all__ = ["CHUNK", "WITHIN", "Reader", "row_dependent"]

CHUNK = Axis("#chunk", 0, 1)
WITHIN = Axis("#within", 0, 1)  # the place of an element in its vector
_WIDE = 16  # elements a thread that may stay widened
_EARLY = 16  # registers a thread for what all rows share


@dataclass(slots=True)
class Reader:
    """The state of a row kernel's text: accesses by the reads' names (`keys` gives equal ones one
    name), the lines so far, and which C++ expressions hold what has been loaded or is held."""

    rows: RowProgram
    name: str
    precise: bool
    reads: dict[str, Access]
    keys: dict[str, str]
    shape: Geometry
    body: list[str] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    printer: Printer = field(init=False)
    loaded: dict[str, str] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    staged: dict[str, int] = field(default_factory=dict)
    kept: dict[Term, Ref] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    depth: int = 1

    def put(self, *lines: str) -> None:
        self.body += [indented(line, self.depth) for line in lines]

    def flush(self, level: int) -> None:
        """Write out what the printer has collected for a level."""
        lines = self.printer.levels[level].lines
        self.put(*lines)
        lines.clear()

    def at(self, tile: Tile) -> str:
        """Which of a fold's results: a thread has one."""
        return ""

    def leaf(self, term: Term) -> str:
        if isinstance(term, Index):
            named = {FIRST: "c0", WITHIN: "e"}
            return named.get(term.axis) or f"i_{identifier(term.axis.name)}"
        if isinstance(term, Ref):
            return self._tile(term.tile)
        raise LoweringError(f"{self.name}: a {type(term).__name__} inside a pointwise value")

    def _tile(self, tile: Tile) -> str:
        if tile.name in self.arrays:
            return f"{tile.name}[i * {self.shape.width} + e]"
        if tile.name not in self.rows.reads:
            return tile.name
        key = self.keys[tile.name]
        access = self.reads[key]
        if key in self.loaded:
            return f"(nt_get_{access.buffer.dtype}({self.loaded[key]}, e))"
        offset = wide_offset(access.buffer, transform(access.offset, self._digit))
        guards = [(self.printer.value(c), n) for c, n in access.guards]
        return scalar_load(access.buffer, self.printer.value(offset), guards)

    def term(self, root: Term) -> Term:
        """The term over reads and folds, running values marked as changing with the chunk,
        those that an earlier pass holds read back."""

        def step(term: Term) -> Term:
            if isinstance(term, Ref) and term.tile.name in self.running:
                tile = term.tile
                return Ref(Tile(tile.name, (*tile.axes, CHUNK), tile.dtype))
            return self.kept.get(term) or self._digit(term)

        return transform(self.rows.expand(root), step)

    def _digit(self, term: Term) -> Term:
        """The term; a digit of the column's position that all columns of a vector share, or count
        up from, by the vector's first column."""
        match term:
            case Apply("floordiv" | "mod", (Index(axis), Const(int(n)))) if (
                axis == self.rows.column and self.shape.width > 1 and n % self.shape.width == 0
            ):
                first = Apply(term.operation, (Index(FIRST), Const(n)))
                return first if term.operation == "floordiv" else apply("add", first, Index(WITHIN))
        return term

    def _wanted(self, step: Pass) -> list[str]:
        """Keys of the element reads of a pass, in order."""
        roots = [self.term(Ref(f.source)) for f in step.folds]
        roots += [self.term(Ref(w.source)) for w in step.writes]
        refs = (t.tile.name for t in walk(*roots) if isinstance(t, Ref))
        keys = dict.fromkeys(self.keys[n] for n in refs if n in self.rows.reads)
        return [k for k in keys if self.rows.column in self.reads[k].offset.free]

    def _vector(self, access: Access) -> bool:
        """Whether the access goes by whole vectors."""
        need = min(self.shape.width, max(1, 16 // access.bytes))
        return access.steady and access.width(self.rows.column.extent) >= need

    def _preload(self, wanted: list[str]) -> None:
        """Start the loads of a pass, all vectors of a thread at once."""
        fresh = [
            k
            for k in wanted
            if k not in self.loaded
            and k not in self.staged
            and self._vector(self.reads[k])
            and row_dependent(self.reads[k], self.rows)
        ]
        if fresh and self.shape.staged:
            self._stage(fresh)
            return
        if not fresh:
            return
        self._into_registers(fresh + self._early())

    def _into_registers(self, keys: list[str]) -> None:
        """Load all vectors of a thread."""
        g = self.shape
        lines: list[str] = []
        for key in keys:
            size = self.reads[key].bytes * g.width
            self.put(f"nt_vec<{size}> v_{key}[{g.held}];")
            inside = self.inside if self.ragged else ""
            kept = not row_dependent(self.reads[key], self.rows)
            before, load = self._load(key, kept, inside)
            lines += before
            lines.append(f"v_{key}[i] = {load};")
            self.loaded[key] = f"v_{key}[i]"
        self.flush(0)
        self._vector_loop(lines)

    def _stage(self, keys: list[str]) -> None:
        """Copy all vectors of a thread to shared memory, where it alone reads them."""
        g = self.shape
        lines: list[str] = []
        for key in keys:
            access = self.reads[key]
            if access.bytes * g.width != 16 or access.guards:
                raise LoweringError(f"{self.name}: only whole vectors of 16 bytes are staged")
            before, place = self._first(access)
            copy = f"nt_copy16({self._slot(len(self.staged))}, {place});"
            self.staged[key] = len(self.staged)
            lines += [*before, f"if ({self.inside}) {copy}" if self.ragged else copy]
        self.flush(0)
        self._vector_loop(lines)
        self.put("nt_copy_commit();", "nt_copy_wait<0>();")

    def _slot(self, number: int) -> str:
        """The shared address of vector i of a thread, of a staged tensor."""
        g = self.shape
        return f"stage + ({number * g.held} + i) * {16 * g.threads}"

    def _early(self) -> list[str]:
        """Keys of what all rows share, loaded with the first pass where it is little enough: a
        block waits once then, and the first ones are alone with their wait."""
        g = self.shape
        room = g.early if g.early >= 0 else _EARLY
        if not g.lasting or not room:
            return []
        every = dict.fromkeys(k for step in self.rows.passes for k in self._wanted(step))
        shared = [
            k
            for k in every
            if k not in self.loaded
            and self._vector(self.reads[k])
            and not row_dependent(self.reads[k], self.rows)
        ]
        words = sum(max(1, self.reads[k].bytes * g.width // 4) for k in shared)
        return shared if words * g.held <= room else []

    @property
    def ragged(self) -> bool:
        return self.shape.ragged

    @property
    def alive(self) -> str:
        """What a store stands behind, where threads may have no row."""
        return "if (live) "

    @property
    def inside(self) -> str:
        """True where the vector at column c0 is the thread's to take."""
        return f"c0 < {'end' if self.shape.cluster else self.rows.column.extent}"

    @property
    def leader(self) -> str:
        """True in the one thread that stores a row's values."""
        return "live && t == 0 && first == 0" if self.shape.chunks > 1 else "live && t == 0"

    def _first(self, access: Access) -> tuple[list[str], str]:
        """The address of the vector that starts at column c0, and lines that it needs there."""
        if access.start is not None:
            base = self.printer.assign(wide_offset(access.buffer, access.start))
            return [], f"{pointer(access.buffer)} + {base} + c0"
        levels = [self.printer.levels[0], Level(self.printer.levels[2].axes, prefix="at")]
        printer = Printer(levels, self.leaf, counter=self.names)
        offset = printer.value(wide_offset(access.buffer, access.first))
        return levels[1].lines, f"{pointer(access.buffer)} + {offset}"

    def _load(self, key: str, kept: bool, inside: str = "") -> tuple[list[str], str]:
        """The load of the vector that starts at column c0, after lines that it needs; zeros where
        it is not `inside` the row, or the row not inside the buffer."""
        access = self.reads[key]
        lines, place = self._first(access)
        size = access.bytes * self.shape.width
        load = f"nt_load<{size}, {'true' if kept else 'false'}>({place})"
        conditions = [inside] if inside else []
        for coordinate, extent in access.guards:
            at = self.printer.assign(coordinate)
            conditions.append(f"{at} >= 0 && {at} < {extent}")
        if conditions:
            load = f"{' && '.join(conditions)} ? {load} : nt_zeros<{size}>()"
        return lines, load

    def _vector_loop(self, lines: list[str]) -> None:
        """A loop over the vectors of a thread; c0 is the first column of vector i."""
        g = self.shape
        origin = "" if g.resident and g.chunks == 1 else "first + "
        registers = not self.staged or any("[i" in line for line in lines)
        self.put(
            f"#pragma unroll{'' if registers else ' 2'}", f"for (int i = 0; i < {g.held}; i++) {{"
        )
        self.depth += 1
        self.put(f"const int c0 = ({origin}t + i * {g.row_threads}) * {g.width};", *lines)
        self.depth -= 1
        self.put("}")

    def _narrow(self, loaded: dict[str, str], wanted: list[str]) -> list[str]:
        """Cached vectors of narrow floats that a loop reads: where a thread holds many elements,
        their widened copies must not outlive it."""
        if self.shape.held * self.shape.width <= _WIDE:
            return []
        return [loaded[k] for k in wanted if k in loaded and self.reads[k].bytes < 4]

    def _inner_loads(self, wanted: list[str]) -> list[str]:
        """Vector loads of what all rows share, inside the loop over vectors."""
        lines = []
        for key in wanted:
            if key in self.staged:
                lines.append(
                    f"const nt_vec<16> v_{key} = nt_staged({self._slot(self.staged[key])});"
                )
                self.loaded[key] = f"v_{key}"
                continue
            if key in self.loaded or not self._vector(self.reads[key]):
                continue
            name = f"w_{key}"
            before, load = self._load(key, kept=True)
            lines += [*before, f"const auto {name} = {load};"]
            self.loaded[key] = name
        return lines


def row_dependent(access: Access, rows: RowProgram) -> bool:
    """Whether different rows read different elements."""
    return any(a in access.offset.free for a in rows.rows) or not rows.rows
