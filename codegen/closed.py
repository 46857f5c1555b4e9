"""The text of one result that is computed from stored states: a loop over a group's elements.

A thread takes `RUN` neighbouring elements where the states lie so: one 16-byte read of f32 states.
Folds over the chunks walk them in order, so that a result does not depend on which block closes; as
many states as are unrolled are asked for at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from nautile.codegen.expression import Level, Printer
from nautile.codegen.kernel_text import identifier
from nautile.codegen.memory import Close
from nautile.codegen.schedule.affine import coefficient, divisor, inside, offset, strides
from nautile.codegen.sm80.context import widened
from nautile.codegen.sm80.store import narrowed
from nautile.codegen.tile import Fold, Map, Read, Ref, Tile, Write
from nautile.codegen.types import CPP, carrier, convert, dtype_of
from nautile.dtypes import DTYPES
from nautile.errors import LoweringError
from nautile.terms import Axis, Buffer, Cast, Index, Load, Term, transform, walk

__all__ = ["Names", "Numbers", "result"]

RUN = 4
UNROLLED = 16  # chunks whose states are asked for at once, at most
_FOLDS = {
    "sum": ("0.0f", "{0} + {1}"),
    "prod": ("1.0f", "{0} * {1}"),
    "max": ("(-nt_inf())", "nt_max({0}, {1})"),
    "min": ("nt_inf()", "nt_min({0}, {1})"),
}
_CARRIED = ("f32", "f64", "i32", "i64", "bool")
Names = Callable[[Buffer], str]
Numbers = Mapping[Axis, str]


def result(
    op: Close, write: Write, names: Names, numbers: Numbers, threads: int, thread: str
) -> list[str]:
    """The lines of one result; `numbers` spells the block's tile along each axis of its grid."""
    made = _Result(op, write, names, numbers, _terms(op))
    return made.lines(threads, thread)


def _terms(op: Close) -> dict[str, Term]:
    """Values as terms of loads, positions and folds."""
    known: dict[str, Term] = {}
    for s in op.results.body:
        if isinstance(s, Read):
            value: Term = Load(s.buffer, tuple(_inlined(c, known) for c in s.coordinates))
        elif isinstance(s, Map):
            value = _inlined(s.value, known)
        else:
            continue
        rounds = s.target.dtype not in _CARRIED and dtype_of(value) != s.target.dtype
        known[s.target.name] = Cast(s.target.dtype, value) if rounds else value
    return known


def _inlined(term: Term, known: Mapping[str, Term]) -> Term:
    return transform(term, lambda t: known.get(t.tile.name, t) if isinstance(t, Ref) else t)


def _folds_in(*terms: Term) -> set[str]:
    return {t.tile.name for t in walk(*terms) if isinstance(t, Ref)}


@dataclass(slots=True)
class _Result:
    op: Close
    write: Write
    names: Names
    numbers: Numbers
    known: Mapping[str, Term]
    out: list[str] = field(default_factory=list)
    counter: Counter[str] = field(default_factory=Counter)

    def lines(self, threads: int, thread: str) -> list[str]:
        """Several elements' states are asked for before the first of them is stored."""
        items = prod(map(self._count, self.write.source.axes))
        turns = -(-items // threads)
        once = next(n for n in range(self._together(), 0, -1) if turns % n == 0)
        term = self._term(self.write.source)
        kind = CPP[carrier(dtype_of(term))]
        self.out += [_loop("turn", turns, once), f"{kind} made[{once}][{self.run}];"]
        for work in (self._compute, self._store):
            self.out += ["#pragma unroll", _loop("u", once)]
            self.out.append(f"const int item = (turn + u) * {threads} + {thread};")
            tests = [f"item < {items}"] if items % threads else []
            tests += self._positions()
            self.out += [f"if ({' && '.join(tests)}) {{"] * bool(tests)
            work(term)
            self.out += ["}"] * (1 + bool(tests))
        self.out.append("}")
        return self.out

    def _together(self) -> int:
        """Turns of a thread whose states are asked for at once."""
        chunks = max((f.axis.extent for f in self._needed()), default=1)
        return max(1, UNROLLED // chunks)

    # -- positions ------------------------------------------------------------------------------

    @property
    def last(self) -> Axis | None:
        """The axis along which elements lie side by side."""
        place = self.write.coordinates[-1] if self.write.coordinates else None
        return place.axis if isinstance(place, Index) else None

    @property
    def run(self) -> int:
        """Elements of a thread along it."""
        if self.last is None:
            return 1
        box = self.op.closing.boxes[self.last]
        sizes = (box.width, self.last.extent, *box.steps.values())
        return RUN if all(n % RUN == 0 for n in sizes) else 1

    def _count(self, axis: Axis) -> int:
        width = self.op.closing.boxes[axis].width
        return width // self.run if axis == self.last else width

    def _positions(self) -> list[str]:
        """The thread's place along every axis, the last fastest; what must hold of it."""
        rest, tests = "item", []
        for axis in reversed(self.write.source.axes):
            count, box = self._count(axis), self.op.closing.boxes[axis]
            parts = [
                f"{self.numbers[a]} * {step}"
                for a, step in box.steps.items()
                if step and self.numbers[a] != "0"
            ]
            if count > 1:
                own = rest if axis == self.write.source.axes[0] else f"{rest} % {count}"
                parts.append(f"({own}) * {self.run}" if axis == self.last else f"({own})")
                rest = f"({rest} / {count})"
            self.out.append(f"const int {_at(axis)} = {' + '.join(parts) or '0'};")
            if axis.extent % box.width:
                tests.append(f"{_at(axis)} < {axis.extent}")
        return tests

    # -- folds ----------------------------------------------------------------------------------

    def _needed(self) -> list[Fold]:
        """The folds that the result needs, in order."""
        names = _folds_in(self._term(self.write.source))
        found: list[Fold] = []
        for s in reversed(self.op.results.body):
            if isinstance(s, Fold) and s.target.name in names:
                found.insert(0, s)
                names |= _folds_in(self._term(s.source))
                if not set(s.target.axes) <= set(self.write.source.axes):
                    raise LoweringError(f"{s.target.name} is folded inside another fold")
                if s.axis in self.write.source.axes:  # other elements' values are other threads'
                    raise LoweringError(f"{s.target.name} folds what the result is made along")
        return found

    def _groups(self) -> list[list[Fold]]:
        """Folds over one axis of which none reads another share a loop."""
        groups: list[list[Fold]] = []
        for s in self._needed():
            own = {f.target.name for f in groups[-1]} if groups else set()
            joins = bool(groups) and groups[-1][0].axis == s.axis
            if joins and not own & _folds_in(self._term(s.source)):
                groups[-1].append(s)
            else:
                groups.append([s])
        return groups

    def _fold(self, folds: Sequence[Fold]) -> None:
        axis = folds[0].axis
        printer, levels = self._printer(axis)
        kinds = [(f, *_FOLDS[f.monoid], _name(f.target)) for f in folds]
        single: list[str] = []
        several: list[str] = []
        for f, start, combine, name in kinds:
            value = printer.value(self._term(f.source), "f32")
            many = self._several(f.target)
            starts = ", ".join([start] * self.run)
            begins = f"[{self.run}] = {{{starts}}}" if many else f" = {start}"
            self.out.append(f"float {name}{begins};")
            element = f"{name}[v]" if many else name
            (several if many else single).append(f"{element} = {combine.format(element, value)};")
        self.out += levels[0].lines
        unroll = min(UNROLLED, axis.extent)
        self.out += [f"#pragma unroll {unroll}", _loop(_at(axis), axis.extent), *levels[1].lines]
        self.out += single
        self._each(levels[2].lines, several)
        self.out.append("}")

    def _each(self, lines: list[str], body: list[str]) -> None:
        """What is done for each of a thread's elements."""
        if lines or body:
            if self.run > 1:
                self.out += ["#pragma unroll", _loop("v", self.run), *lines, *body, "}"]
            else:
                self.out += [*lines, *body]

    def _compute(self, term: Term) -> None:
        for group in self._groups():
            self._fold(group)
        printer, levels = self._printer(None)
        value = printer.value(term)
        self.out += [*levels[0].lines, *levels[1].lines]
        self._each(levels[2].lines, [f"made[u][{'v' if self.run > 1 else '0'}] = {value};"])

    def _store(self, term: Term) -> None:
        buffer, kind = self.write.buffer, dtype_of(term)
        to = f"{self.names(buffer)} + {self._place()}"
        if self._whole():
            made = [convert(f"made[u][{n}]", kind, "f32") for n in range(RUN)]
            if buffer.dtype == "f32":
                self.out.append(f"*(float4*)({to}) = make_float4({', '.join(made)});")
            else:
                pair = f"nt_{buffer.dtype}x2_of_f32"
                words = [f"{pair}({a}, {b})" for a, b in (made[:2], made[2:])]
                self.out.append(f"*(uint2*)({to}) = make_uint2({', '.join(words)});")
            return
        for n in range(self.run):
            value = narrowed(f"made[u][{n}]", kind, buffer.dtype)
            self.out.append(f"({to})[{n}] = {value};")

    def _whole(self) -> bool:
        """Whether a thread's elements are stored at once."""
        written = Load(self.write.buffer, self.write.coordinates)
        kinds = ("f32", "bf16", "f16")
        return self.write.buffer.dtype in kinds and self._side_by_side(written)

    def _place(self) -> str:
        """Where the first of a thread's elements is stored."""

        def leaf(term: Term) -> str:
            assert isinstance(term, Index)
            return _at(term.axis)

        every = Level(frozenset(self.write.source.axes), self.out, "c")
        plain = Printer([every], leaf, precise=True, counter=self.counter)
        return self._address(self.write.buffer, self.write.coordinates, plain)

    # -- terms ----------------------------------------------------------------------------------

    def _term(self, tile: Tile | Term) -> Term:
        return _inlined(Ref(tile) if isinstance(tile, Tile) else tile, self.known)

    def _several(self, tile: Tile) -> bool:
        return self.run > 1 and self.last in tile.axes

    def _printer(self, axis: Axis | None) -> tuple[Printer, list[Level]]:
        """Levels: of the item, of a chunk, of each of the thread's elements."""
        item = frozenset(self.write.source.axes) - {self.last}
        chunk = item | ({axis} if axis else frozenset())
        every = chunk | ({self.last} if self.last else frozenset())
        levels = [Level(item, prefix="a"), Level(chunk, prefix="b"), Level(every, prefix="d")]
        digits = DTYPES[self.write.buffer.dtype]
        precise = digits.digits > 11 or digits.kind != "float"
        read: dict[Load, str] = {}

        def leaf(term: Term) -> str:
            if isinstance(term, Index):
                moved = term.axis == self.last and self.run > 1
                return f"({_at(term.axis)} + v)" if moved else _at(term.axis)
            if isinstance(term, Ref):
                return f"{_name(term.tile)}{'[v]' * self._several(term.tile)}"
            assert isinstance(term, Load)
            return self._load(term, printer, levels, read)

        printer = Printer(levels, leaf, precise=precise, counter=self.counter)
        return printer, levels

    def _load(
        self, load: Load, printer: Printer, levels: list[Level], read: dict[Load, str]
    ) -> str:
        if not inside(load):
            raise LoweringError(f"{load.buffer.name} is read where it may end")
        if self._vector(load):
            if load not in read:
                outer = load.free - {self.last} <= levels[0].axes
                read[load] = self._run_of(load, levels[0 if outer else 1])
            return f"{read[load]}[v]"
        at = self._address(load.buffer, load.coordinates, printer)
        element = f"{self.names(load.buffer)}[{at}]"
        if load.buffer in self.op.states:
            element = f"nt_stored({self.names(load.buffer)} + {at})"
        text = widened(load.buffer.dtype, element)
        return text if text.startswith("(") else f"({text})"

    def _vector(self, load: Load) -> bool:
        """Whether a thread's elements are one aligned run."""
        return load.buffer.dtype == "f32" and self._side_by_side(load)

    def _side_by_side(self, load: Load) -> bool:
        if self.run == 1 or self.last is None:
            return False
        form = offset(load)
        return coefficient(form, self.last) == 1 and divisor(form, self.last, RUN) == RUN

    def _run_of(self, load: Load, level: Level) -> str:
        """An array that a level reads before its elements are walked."""
        self.counter["q"] += 1
        name = f"q{self.counter['q'] - 1}"

        def leaf(term: Term) -> str:
            assert isinstance(term, Index)
            return _at(term.axis)

        level_of = [Level(load.free, level.lines, "c")]
        plain = Printer(level_of, leaf, precise=True, counter=self.counter)
        at = self._address(load.buffer, load.coordinates, plain)
        level.lines.append(f"float {name}[{self.run}];")
        level.lines.append(f"nt_stored4({name}, {self.names(load.buffer)} + {at});")
        return name

    def _address(self, buffer: Buffer, coordinates: Sequence[Term], printer: Printer) -> str:
        """The element's offset, in parentheses."""
        wide = "(nt_i64)" if buffer.size >= 2**31 else ""
        parts = []
        for term, stride in zip(coordinates, strides(buffer.shape), strict=True):
            text = convert(printer.value(term), dtype_of(term), "i32")
            if text != "0":
                parts.append(f"{wide}{text}" + f" * {stride}" * (stride > 1))
        return f"({' + '.join(parts) or '0'})"


def _at(axis: Axis) -> str:
    return f"p_{identifier(axis.name)}"


def _name(tile: Tile) -> str:
    return f"c_{identifier(tile.name)}"


def _loop(name: str, count: int, step: int = 1) -> str:
    return f"for (int {name} = 0; {name} < {count}; {name} += {step}) {{"
