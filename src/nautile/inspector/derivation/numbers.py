"""Each intermediate program in numbers: the oracle's float64 values against the source's.

Random and adversarial inputs (large numbers, ties, zeros, extremes at the ends of axes, masked
rows) as a certificate has them, at chosen positions; over whole axes where that is cheap, else over
their first positions, and over the whole ones after all where the shorter ones differ (an identity
may hold for the whole extents only). Errors are relative to the element or its row; beside them
stands what the source's own evaluation in its stated types loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nautile.certificate.drawing import Array
from nautile.certificate.meaning import agreement, check_target, look_up_work
from nautile.certificate.places import places
from nautile.certificate.recipes import float_kind, is_positive
from nautile.certificate.shorten import shortened
from nautile.certificate.subject import Side, Subject, Target
from nautile.dtypes import is_float
from nautile.extract.kernel import Plan
from nautile.inline import Definitions
from nautile.judge import MOST, judge, row_rms
from nautile.oracle import evaluate
from nautile.terms import Buffer, Output, Program, Term, buffers

__all__ = ["Numbers", "Tried", "loss"]

_PLACES, _FEW, _MANY = 48, 24, 1024
_CHEAP, _LENGTH, _LOADS = 1 << 20, 48, 1 << 20
_NOTHING = Plan((), (), 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """How an intermediate program compares with the source: the largest relative error in float64,
    what the source itself loses in its stated types, elements compared, and what is wrong."""

    error: float
    naive: float
    samples: int
    wrong: str = ""


@dataclass(slots=True)
class Numbers:
    """The outputs of one region, evaluated at the same places in the source's form and others."""

    outputs: tuple[Output, ...]
    work: Program
    numerics: str
    seed: int = 0
    _subject: Subject = field(init=False)
    _expected: dict[Any, tuple[Array, Array, Any]] = field(default_factory=dict, init=False)
    _known: dict[tuple[int, Term, bool], Tried] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        read = buffers(*(o.term for o in self.outputs))
        inputs = {b.name: b for b in self.work.inputs}
        program = Program(
            self.work.name,
            tuple(inputs.get(b.name, b) for b in read),
            (),
            self.outputs,
            defaults={n: v for n, v in self.work.defaults.items() if n in {b.name for b in read}},
        )
        side = Side({})
        self._subject = Subject(
            program,
            _NOTHING,
            self.seed,
            frozenset(),
            side,
            side,
            side,
            frozenset(),
            (),
            self.numerics,
        )
        self._draw_stored(read)

    def _draw_stored(self, read: Sequence[Buffer]) -> None:
        """Tensors of other regions are drawn as certificates draw them."""
        defined = {d.name: d for d in self.work.definitions}
        for case in (*self._subject.cases, "positive"):
            kinds = self._subject.kinds(case)
            for b in read:
                if b.name in defined and is_float(b.dtype):
                    positive = case == "positive" or is_positive(defined[b.name].body, self.work)
                    kinds[b.name] = "uniform:0.5:1.5" if positive else float_kind(case, b)

    def tried(
        self, terms: Sequence[Term], *, rounds: bool = False, between: Definitions | None = None
    ) -> Tried:
        """The outputs in another form, one term for each; one that `rounds` is judged as kernels
        are: by what the source itself loses. `between` are tensors that the terms read."""
        side = Side(between or {})
        found = [self._tried(i, term, rounds, side) for i, term in enumerate(terms)]
        wrong = "; ".join(t.wrong for t in found if t.wrong)
        worst = max((t.error for t in found), default=0.0)
        naive = max((t.naive for t in found), default=0.0)
        return Tried(worst, naive, sum(t.samples for t in found), wrong)

    def _tried(self, place: int, term: Term, rounds: bool, side: Side) -> Tried:
        if side.definitions:
            return self._compared(place, term, rounds, side)
        key = (place, term, rounds)
        if key not in self._known:
            self._known[key] = self._compared(place, term, rounds, side)
        return self._known[key]

    def _compared(self, place: int, term: Term, rounds: bool, side: Side) -> Tried:
        output = self.outputs[place]
        made = Output(output.buffer, output.axes, term)
        target = Target("", output.axes, output.term, made, True)
        whole = replace(self._subject, chosen=side, meant=side)
        subject, near = whole, target
        if look_up_work(subject, target, "ordinary", _PLACES) > _CHEAP:
            subject, near = shortened(subject, target, _LENGTH)
        cases = self._subject.cases
        found = [self._case(subject, near, c, rounds, _places(c, _PLACES)) for c in cases]
        wrong = [case for case, t in zip(cases, found, strict=True) if t.wrong]
        if not wrong:
            return _worst(found)
        cases = tuple(dict.fromkeys(("ordinary", *wrong[:1])))
        found = [self._case(whole, target, case, rounds, _PLACES) for case in cases]
        if rounds or not any(t.wrong for t in found):
            return _worst(found)
        check = check_target(whole, target, _MANY)  # with what inputs leave undetermined
        said = "" if check.passed else check.detail
        return Tried(check.max_relative_error, _worst(found).naive, check.samples, said)

    def _case(self, subject: Subject, target: Target, case: str, rounds: bool, limit: int) -> Tried:
        drawn = subject.drawn(case)
        expected, naive, grid = self._source(subject, target, case, limit)
        at = dict(zip(target.output.axes, grid.values(), strict=True))
        actual = evaluate(target.output.term, subject.meant.fetch(drawn, "f64"), at)
        if rounds:
            verdict = judge(actual, expected, naive, target.output.buffer.dtype)
            wrong = "" if verdict.passed or not subject.binds(case) else f"{case}: {verdict.detail}"
            error = verdict.max_relative_error
            return Tried(error, loss(naive, expected), verdict.samples, wrong)
        exact, binding = subject.numerics == "exact", subject.binds(case)
        found = agreement(actual, expected, naive, exact=exact, binding=binding)
        wrong = "" if found.passed else f"{case}: {found.detail}"
        return Tried(found.error, loss(naive, expected), found.samples, wrong)

    def _source(
        self, subject: Subject, target: Target, case: str, limit: int
    ) -> tuple[Array, Array, Mapping[Any, Any]]:
        key = (target.term, target.axes, case, limit)
        if key not in self._expected:
            drawn = subject.drawn(case)
            rng = np.random.default_rng([subject.seed, *case.encode()])
            grid = places(target.axes, (target.term,), {}, rng, limit=limit, loads=_LOADS)
            expected = evaluate(target.term, subject.source.fetch(drawn, "f64"), grid)
            fetch = subject.source.fetch(drawn, "mma")
            naive = evaluate(target.term, fetch, grid, precision="mma")
            self._expected[key] = expected, naive, grid
        return self._expected[key]


def _places(case: str, most: int) -> int:
    """How many places are looked at: fewer of adversarial inputs."""
    return most if case == "ordinary" else min(most, _FEW)


def _worst(found: Sequence[Tried]) -> Tried:
    """All cases as one."""
    return Tried(
        max(t.error for t in found),
        max(t.naive for t in found),
        sum(t.samples for t in found),
        "; ".join(t.wrong for t in found if t.wrong),
    )


def loss(naive: Array, expected: Array) -> float:
    """The largest relative error of the source's own evaluation, where both are finite."""
    z, y = (np.asarray(v, dtype=np.float64).reshape(-1, v.shape[-1] if v.ndim else 1)
            for v in (naive, expected))  # fmt: skip
    usable = np.isfinite(z) & np.isfinite(y)
    y0, z0 = np.where(usable, y, 0.0), np.where(usable, z, 0.0)
    scale = np.maximum(np.abs(y0), row_rms(y0, usable)[:, None])
    relative = np.divide(np.abs(z0 - y0), scale, out=np.zeros_like(y0), where=scale > 0)
    return min(float(relative.max(initial=0.0)), MOST)
