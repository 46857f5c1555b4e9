"""Random small kernels: reductions of all kinds, masks, choices, casts, gathers, online sums, over
one or two axes, in random schedules.

Values stay of ordinary size, and what is discontinuous (comparisons, floor, places of extremes) is
only asked of what was loaded, so that two correct computations differ by rounding alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from online_kernels import mixed_moment, moments
from sample_kernels import INF, ax, kernel, op

from nautile.extract.kernel import Kernel
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    walk,
)

__all__ = ["random_kernel"]

_FLOATS = ("f32", "f32", "bf16", "f16", "f8e4m3")
_ROWS = (1, 2, 3, 4, 5, 8, 12)
_COLUMNS = (1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 32, 48, 65, 96, 130)


@dataclass(slots=True)
class _Draw:
    """One kernel in the making."""

    rng: random.Random
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    streams: tuple[Axis, ...]
    chained: bool = False
    loads: list[Load] = field(default_factory=list)

    # -- elements -------------------------------------------------------------------------------

    def load(self, axes: tuple[Axis, ...], dtype: str | None = None) -> Term:
        """An element of a tensor over most of the axes, in any order."""
        rng = self.rng
        fitting = [t for t in self.loads if t.free <= set(axes) and t.buffer.dtype == dtype]
        if fitting and rng.random() < 0.3:
            return rng.choice(fitting)
        chosen = [a for a in axes if rng.random() < 0.8] or list(axes[-1:])
        if rng.random() < 0.3:
            rng.shuffle(chosen)
        places = [self._coordinate(a, axes) for a in chosen]
        dtype = dtype or rng.choice(_FLOATS)
        buffer = Buffer(f"x{len(self.loads)}", tuple(n for _, n in places), dtype)
        made = Load(buffer, tuple(p for p, _ in places))
        self.loads.append(made)
        return made

    def _coordinate(self, axis: Axis, axes: tuple[Axis, ...]) -> tuple[Term, int]:
        rng, n = self.rng, axis.extent
        match rng.randrange(14):
            case 0:
                return op("sub", n - 1, Index(axis)), n
            case 1:
                return op("floordiv", Index(axis), 2), -(-n // 2)
            case 2:
                return op("mod", Index(axis), 3), 3
            case 3:
                return op("add", Index(axis), 2), n + 2
            case 4:
                return op("sub", Index(axis), 1), n  # the first position leaves the tensor
            case 5 if len(self.loads) < 6:
                return self.load(axes, "i32"), 9
        return Index(axis), n

    def condition(self, axes: tuple[Axis, ...]) -> Term:
        rng = self.rng
        axis = rng.choice(axes)
        match rng.randrange(5):
            case 0:
                return op(rng.choice(("lt", "ge")), Index(axis), rng.randrange(axis.extent + 1))
            case 1:
                other = rng.choice(axes)
                return op("le", Index(axis), op("add", Index(other), rng.randrange(4)))
            case 2:
                return op("eq", op("mod", Index(axis), 2), 0)
            case 3:
                return op("ne", self.load(axes, "bool"), Const(False))
        return op("gt", self.load(axes), 0.25)

    def value(self, axes: tuple[Axis, ...], depth: int, bound: tuple[Axis, ...] = ()) -> Term:
        """A number of ordinary size; `bound` are axes that may be reduced inside."""
        rng = self.rng
        if depth == 0:
            return self.load(axes) if axes else Const(rng.uniform(-2, 2))
        inner = lambda: self.value(axes, depth - 1, bound)  # noqa: E731
        match rng.randrange(13):
            case 0 | 1:
                return op("add", inner(), inner())
            case 2:
                return op("sub", inner(), inner())
            case 3 | 4:
                return op("mul", inner(), op("tanh", inner()))
            case 5:
                return op("div", inner(), op("add", op("abs", inner()), 1.5))
            case 6 if axes:
                return op("where", self.condition(axes), inner(), inner())
            case 7:
                return op(rng.choice(("max", "min")), inner(), inner())
            case 8:
                return op(rng.choice(("sigmoid", "tanh", "sin", "abs", "neg")), inner())
            case 9:
                return op("exp", op("min", inner(), 1.0))
            case 10:
                exact = op(rng.choice(("max", "min")), self.load(axes), self.load(axes))
                return Cast(rng.choice(("bf16", "f16", "f32")), exact)
            case 11 if axes:
                return op("mul", op("add", Index(rng.choice(axes)), 1), 0.03125)
            case _ if bound:
                return self.reduction(axes, depth - 1, bound)
        return op("mul", inner(), rng.uniform(-1.5, 1.5))

    # -- reductions -----------------------------------------------------------------------------

    def reduction(self, axes: tuple[Axis, ...], depth: int, bound: tuple[Axis, ...]) -> Term:
        rng = self.rng
        axis = rng.choice(bound)
        rest = tuple(a for a in bound if a != axis)
        inside = (*axes, axis)
        if self.chained:
            return self.chain((*axes, bound[0]), bound[1:], depth)
        if axis in self.streams and rng.random() < 0.45:
            return self.online(inside, axis, depth)
        match rng.randrange(12):
            case 0 | 1 | 2:
                return Reduce("sum", axis, self.value(inside, depth, rest))
            case 3:
                return Reduce(rng.choice(("max", "min")), axis, self.value(inside, depth, rest))
            case 4:
                small = op("mul", op("tanh", self.value(inside, depth, rest)), 0.01)
                return Reduce("prod", axis, op("add", small, 1.0))
            case 5:
                place = Reduce(rng.choice(("argmax", "argmin")), axis, self.load(inside))
                return op("mul", place, 0.0625)
            case 6:
                found = Reduce(rng.choice(("any", "all")), axis, self.condition(inside))
                return op("where", found, 1.0, -1.0)
            case 7:
                kept = op("where", self.condition(inside), self.load(inside), -INF)
                return op("max", Reduce("max", axis, kept), -3.0)
            case 8:
                count = Reduce("sum", axis, op("where", self.condition(inside), 1, 0))
                return op("mul", count, 0.125)
            case 9 if rest:
                return self.chain(inside, rest, depth)
        x = self.value(inside, depth, rest)
        m = Reduce("max", axis, x)
        return op("log", Reduce("sum", axis, op("exp", op("sub", x, m))))

    def chain(self, inside: tuple[Axis, ...], rest: tuple[Axis, ...], depth: int) -> Term:
        """One monoid over several axes; a shifted sum of exponentials, in one pass where the outer
        axis is streamed; or a variance."""
        outer = inside[-1]

        def over(monoid: str, term: Term) -> Term:
            for axis in (*rest, outer):
                term = Reduce(monoid, axis, term)
            return term

        kind = self.rng.choice(("sum", "max", "min", "shifted", "moments"))
        x = self.value((*inside, *rest), depth)
        if kind == "shifted":
            m = over("max", x)
            if outer not in self.streams or len(rest) != 1:
                return op("log", over("sum", op("exp", op("sub", x, m))))
            repair = op("exp", op("sub", Before(m), Running(m)))
            power = Reduce("sum", rest[0], op("exp", op("sub", x, Running(m))))
            return op("log", Online(outer, repair, power))
        if kind == "moments":
            size = float(outer.extent)
            for axis in rest:
                size *= axis.extent
            d = op("sub", x, op("div", over("sum", x), size))
            return op("div", over("sum", op("mul", d, d)), size)
        return over(kind, x)

    def online(self, inside: tuple[Axis, ...], axis: Axis, depth: int) -> Term:
        x = self.load(inside, self.rng.choice(("f32", "bf16")))
        if axis not in x.free:
            x = op("add", x, op("mul", Index(axis), 0.0625))
        match self.rng.randrange(4):
            case 0:
                keep = self.condition(inside) if self.rng.random() < 0.4 else None
                count, _, squares = moments(x, axis, keep)
                return op("div", squares, op("max", count, 1))
            case 1:
                return op("div", mixed_moment(x, self.value(inside, min(depth, 1)), axis), 8.0)
        if self.rng.random() < 0.4:
            x = op("where", self.condition(inside), x, -INF)
        m = Reduce("max", axis, x)
        power = op("exp", op("sub", x, Running(m)))
        repair = op("exp", op("sub", Before(m), Running(m)))
        factor = self.value(inside, min(depth, 1))
        total = Online(axis, repair, power)
        return op("div", Online(axis, repair, op("mul", power, factor)), total)


def random_kernel(seed: int) -> Kernel:
    """The kernel of a seed."""
    rng = random.Random(seed)
    rows = tuple(ax(name, rng.choice(_ROWS)) for name in ("n", "m")[: rng.choice((1, 1, 2))])
    columns = tuple(ax(name, rng.choice(_COLUMNS)) for name in ("c", "s")[: rng.choice((1, 1, 2))])
    if len(columns) == 2:
        columns = (ax("c", rng.choice(_ROWS)), columns[1])
    streams = tuple(a for a in columns if rng.random() < 0.5)
    chained = len(columns) == 2 and rng.random() < 0.5
    draw = _Draw(rng, rows, columns, streams, chained)
    outputs = [_output(draw, number) for number in range(rng.choice((1, 1, 2, 3)))]
    tiles = {a: rng.choice((1, 2, 4, 8)) for a in rows}
    tiles |= {a: rng.choice((4, 8, 32)) if a in streams else a.extent for a in columns}
    stored = {a for o in outputs for a in o.axes}
    used = {a for o in outputs for a in _mentioned(o.term)} | stored
    return kernel(f"fuzz{seed}", outputs, tiles, tuple(a for a in streams if a in used))


def _mentioned(root: Term) -> set[Axis]:
    found = {a for t in walk(root) for a in t.free}
    return found | {t.axis for t in walk(root) if isinstance(t, (Reduce, Online))}


def _output(draw: _Draw, number: int) -> Output:
    rng = draw.rng
    axes = list(draw.rows)
    element = rng.random() < 0.4
    if element:
        axes += draw.columns
    if rng.random() < 0.2:
        rng.shuffle(axes)
    term = draw.reduction(draw.rows, rng.choice((1, 1, 2)), draw.columns)
    if element:
        term = op("add", term, draw.value(tuple(axes), rng.choice((0, 1, 2)), ()))
    dtype = rng.choice(("f32", "f32", "bf16", "f16"))
    return Output(Buffer(f"y{number}", tuple(a.extent for a in axes), dtype), tuple(axes), term)
