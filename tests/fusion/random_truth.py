"""Inputs of random programs, and what the source makes of them: the yardstick of a trial.

In float64 a variant may differ by what the source itself moves when its inputs change in the
twelfth digit. In float32 its error may be a small factor of what the source's naive evaluations
err, as it stands and with inputs moved by half a unit in the last place, so that no lucky rounding
of the source makes a bound; where something is rounded to a narrow type, also with inputs moved as
far as that. Where an ordinary input (or one masked by -inf) gives NaN or an infinity, a variant may
not be finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nautile.codegen.interpret import run_program
from nautile.codegen.tile import TileProgram
from nautile.dtypes import DTYPES, round_to, storage
from nautile.extract.kernel import Kernel
from nautile.judge import FLOOR, row_rms
from nautile.oracle import arrays_fetch, evaluate, run
from nautile.oracle.programs import stored
from nautile.terms import Buffer, Load, Output, Program, buffers, walk

__all__ = ["CASES", "Truth", "Variant", "draw_inputs", "evaluated", "truths"]

Array = np.ndarray
Arrays = dict[str, Array]
CASES = ("ordinary", "offset", "large", "infinite", "ties")


@dataclass(frozen=True, slots=True)
class Variant:
    """Kernels in order under one schedule, with their tile programs (None: not to be lowered)."""

    label: str
    kernels: tuple[Kernel, ...]
    tiles: tuple[tuple[TileProgram, ...], ...] | None
    terms: bool = True

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(o for k in self.kernels for o in k.outputs)


# ---- inputs ------------------------------------------------------------------------------------


def draw_inputs(program: Program, case: str, rng: np.random.Generator) -> Arrays:
    """Float64 values that each input's type holds exactly; whole numbers and truth values."""
    return {b.name: _input(program, b, case, rng) for b in program.inputs}


def _input(program: Program, buffer: Buffer, case: str, rng: np.random.Generator) -> Array:
    shape = buffer.shape
    if buffer.dtype == "bool":
        chance = rng.choice([0.0, 0.5, 0.5, 0.8, 1.0], size=shape[:1] + (1,) * (len(shape) - 1))
        return np.asarray(rng.random(shape) < chance)
    if DTYPES[buffer.dtype].kind == "integer":
        return rng.integers(0, _limit(program, buffer.name) + 1, shape)
    x = np.asarray(rng.standard_normal(shape))
    if case == "offset":
        x = x + 1000.0
    if case == "large":
        x = x * min(1e4, DTYPES[buffer.dtype].largest / 8)
    if case == "ties":
        x = np.rint(x * 2) * 0.5
    if case == "infinite" and buffer.name.startswith("y"):
        lost = rng.random(shape) < 0.3
        lost[: 1 + shape[0] // 4] |= rng.random() < 0.4
        x = np.where(lost, -np.inf, x)
    return np.asarray(round_to(x, buffer.dtype), dtype=np.float64)


def _limit(program: Program, name: str) -> int:
    """The largest whole number that makes sense for an input: a position where it is a coordinate,
    else a length (one more than there are positions, at times)."""
    for d in program.definitions:
        for load in (t for t in walk(d.body) if isinstance(t, Load)):
            for coordinate, extent in zip(load.coordinates, load.buffer.shape, strict=True):
                if any(b.name == name for b in buffers(coordinate)):
                    return extent - 1
    return max((n for b in program.inputs for n in b.shape), default=1)


# ---- comparison --------------------------------------------------------------------------------


@dataclass(slots=True)
class Truth:
    """One set of inputs: the source in float64 and how far it moves with its inputs, and the source
    in float32, as it stands and with inputs moved in their last place. What is moved only loosens
    bounds, so it is evaluated where something would fail without it."""

    case: str
    numerics: str
    program: Program
    inputs: Arrays
    exact: Arrays
    naive: list[Arrays]
    seed: int
    moved: list[Arrays] = field(default_factory=list)

    @property
    def binding(self) -> bool:
        """Whether a NaN or an infinity of the source is more than an overflow or a zero divisor,
        which rules of the class `real` may well avoid. Which of them it is (0/0 and 1/0, 1/-0) is
        no question of real numbers."""
        return self.case in ("ordinary", "infinite") or self.numerics == "exact"

    def compare(self, variant: Variant) -> list[str]:
        """What is wrong with the variant; empty if nothing."""
        said = self._compared(variant)
        if said and not self.moved:
            self._move()
            said = self._compared(variant)
        return said

    def _move(self) -> None:
        """Evaluate the source on inputs that are moved a little."""
        rng = np.random.default_rng(self.seed)
        program, inputs = self.program, self.inputs
        near = [_moved(inputs, 2.0**-22, rng) for _ in range(3)]
        self.naive += [_unrounded(program, m) for m in near]
        coarse = _unrounded(program, _moved(inputs, 2.0**-8, rng))
        single, third = run(program, near[0], storage=False, precision="f32"), self.naive[2]
        rounds = {n for n in coarse if not np.array_equal(single[n], third[n], equal_nan=True)}
        self.naive.append({n: x if n in rounds else self.naive[0][n] for n, x in coarse.items()})
        by = [_moved(inputs, 1e-12, rng) for _ in range(2)]
        self.moved += [run(program, m, storage=False) for m in by]

    def _compared(self, variant: Variant) -> list[str]:
        said = []
        if variant.terms:
            said += self._meaning(variant) + self._single(variant)
        if variant.tiles is not None:
            said += self._interpreted(variant)
        return [f"{variant.label}, {self.case}: {s}" for s in said]

    def _meaning(self, variant: Variant) -> list[str]:
        found = evaluated(variant.outputs, self.inputs, "f64", casts=False)
        return self._each(lambda n, o: self._differs(found[n], n), "float64")

    def _differs(self, found: Array, name: str) -> str:
        return _differs(found, self.exact[name], self._range(name), binding=self.binding)

    def _range(self, name: str) -> Array:
        """How far the float64 value moves, for an input moved in the twelfth digit."""
        if self.exact[name].dtype.kind != "f":
            return np.zeros(self.exact[name].shape)
        with np.errstate(all="ignore"):
            gaps = [np.abs(m[name] - self.exact[name]) for m in self.moved]
            single = np.abs(self.naive[0][name] - self.exact[name]) * 2.0**-24
        return np.nan_to_num(np.max([*gaps, single], axis=0), nan=0.0, posinf=0.0)

    def _single(self, variant: Variant) -> list[str]:
        found = evaluated(variant.outputs, self.inputs, "f32", casts=True)
        return self._each(lambda n, o: self._errs(found[n], o), "float32 terms")

    def _interpreted(self, variant: Variant) -> list[str]:
        assert variant.tiles is not None
        arrays = {b.name: self.inputs[b.name].astype(storage(b.dtype)) for b in self.program.inputs}
        for programs in variant.tiles:
            run_program(programs, arrays)
        wide = {o.buffer.name: _wide(arrays[o.buffer.name]) for o in self.program.outputs}
        return self._each(lambda n, o: self._errs(wide[n], o), "tile programs")

    def _errs(self, found: Array, output: Output) -> str:
        name, dtype = output.buffer.name, output.buffer.dtype
        naive = [z[name] for z in self.naive]
        return _errs(found, self.exact[name], naive, dtype, binding=self.binding)

    def _each(self, judged: Callable[[str, Output], str], how: str) -> list[str]:
        said = ((o.buffer.name, judged(o.buffer.name, o)) for o in self.program.outputs)
        return [f"{how}: {name}: {s}" for name, s in said if s]


def truths(program: Program, numerics: str, rng: np.random.Generator) -> Iterator[Truth]:
    """Ordinary inputs, and for two programs of three another kind. Rules of the class `fast` assume
    ordinary ones."""
    other = str(rng.choice(CASES[1:]))
    cases = ("ordinary", "ties" if numerics == "fast" else other)
    for case in cases[: 2 if rng.integers(0, 3) else 1]:
        inputs = draw_inputs(program, case, rng)
        naive = [run(program, inputs, precision=p) for p in ("mma", "f32")]
        exact = run(program, inputs, storage=False)
        yield Truth(case, numerics, program, inputs, exact, naive, int(rng.integers(1 << 31)))


def _unrounded(program: Program, inputs: Arrays) -> Arrays:
    """The naive evaluation on inputs between the values that their types hold."""
    wide = replace(
        program,
        inputs=tuple(
            replace(b, dtype="f32") if b.dtype in ("bf16", "f16") else b for b in program.inputs
        ),
    )
    return run(wide, inputs, precision="mma")


def _moved(inputs: Arrays, by: float, rng: np.random.Generator) -> Arrays:
    return {
        n: x * (1 + by * rng.uniform(-1, 1, x.shape)) if x.dtype.kind == "f" else x
        for n, x in inputs.items()
    }


def evaluated(outputs: Sequence[Output], inputs: Arrays, precision: str, *, casts: bool) -> Arrays:
    """The kernels' terms in the oracle, one after the other, each stored in its type (`casts`)."""
    known: Arrays = dict(inputs)
    for o in outputs:
        at = {a: np.arange(a.extent) for a in o.axes}
        array = evaluate(o.term, arrays_fetch(known), at, precision=precision, casts=casts)
        known[o.buffer.name] = stored(array, o.buffer.dtype) if casts else array
    return known


def _wide(array: Array) -> Array:
    return array if array.dtype.kind in "bi" else np.asarray(array.astype(np.float64))


def _differs(x: Array, y: Array, reach: Array, *, binding: bool) -> str:
    """What float64 values differ in, beyond `reach`; empty if in nothing."""
    if y.dtype.kind != "f":
        wrong = int((x != y).sum())
        return f"{wrong} of {y.size} differ" if wrong else ""
    x, y, reach = (
        np.asarray(v, np.float64).reshape(-1, y.shape[-1] if y.ndim else 1) for v in (x, y, reach)
    )
    finite = np.isfinite(y)
    lost = finite & ~np.isfinite(x)
    if binding:
        lost |= ~finite & np.isfinite(x)
    if lost.any():
        return f"{x[lost][0]:.6g} for {y[lost][0]:.6g} at {_at(lost)}"
    y0 = np.where(finite, y, 0.0)
    scale = np.maximum(np.abs(y0), row_rms(y0, finite)[:, None])
    error = np.where(finite, np.abs(np.where(finite, x, 0.0) - y0), 0.0)
    wrong = error > 1e-11 * scale + 8 * reach
    return f"{x[wrong][0]:.12g} for {y[wrong][0]:.12g} at {_at(wrong)}" if wrong.any() else ""


def _at(where: Array) -> str:
    return f"{np.argwhere(where)[0].tolist()} ({int(where.sum())} of {where.size})"


def _errs(x: Array, y: Array, naive: Sequence[Array], dtype: str, *, binding: bool) -> str:
    """What a stored result has lost beyond the source's own naive evaluations."""
    if dtype not in FLOOR:
        wrong, own = int((x != y).sum()), max(int((z != y).sum()) for z in naive)
        return f"{wrong} of {y.size} differ, naive {own}" if wrong > 2 * own else ""
    shape = (-1, y.shape[-1] if y.ndim else 1)
    x, y, *zs = (np.asarray(v, np.float64).reshape(shape) for v in (x, y, *naive))
    limit = DTYPES[dtype].largest * (1 - FLOOR[dtype])
    fits = (np.abs(y) <= limit) & np.all([np.isfinite(z) for z in zs], axis=0)
    lost = fits & ~np.isfinite(x)
    if binding:
        lost |= np.all([~np.isfinite(z) for z in (y, *zs)], axis=0) & np.isfinite(x)
    if lost.any():
        return f"{x[lost][0]:.6g} for {y[lost][0]:.6g} at {_at(lost)}"
    return _loses(x, y, zs, fits, FLOOR[dtype])


def _loses(x: Array, y: Array, zs: Sequence[Array], fits: Array, floor: float) -> str:
    y0, error = (
        np.where(fits, y, 0.0),
        np.where(fits, np.abs(np.where(fits, x, 0.0) - np.where(fits, y, 0.0)), 0.0),
    )
    own = np.max([np.where(fits, np.abs(np.where(fits, z, 0.0) - y0), 0.0) for z in zs], axis=0)
    scale = row_rms(y0, fits)
    typical = np.divide(row_rms(own, fits), scale, out=np.zeros_like(scale), where=scale > 0)
    pooled = float(np.sqrt(np.mean(typical**2)))
    bound = 6 * (row_rms(own, fits) + max(floor, pooled) * scale)
    rows = row_rms(error, fits) > bound
    if not rows.any():
        return ""
    row = int(np.argmax(rows))
    return (
        f"row {row} of {len(rows)}: error {row_rms(error, fits)[row]:.3g}, bound {bound[row]:.3g}"
    )
