"""Do the chosen kernels mean what the source means? Both in float64, at the same places.

No rounding is compared here, so the tolerance is tight: 1e-9 of the element or its row, and a small
part of the error that the source makes in float32, which tells how ill-conditioned a place is. Cuts
that do not hold (a kernel may compute one stored tensor from another where the source goes back to
its inputs) are given up, and everything is compared from the inputs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.certificate.model import Check
from nautile.certificate.places import Grid, places
from nautile.certificate.shorten import shortened
from nautile.certificate.subject import Subject, Target
from nautile.judge import MOST, row_rms
from nautile.oracle import evaluate
from nautile.oracle.work import READ, work_of
from nautile.terms import Axis, Term

__all__ = [
    "affordable",
    "agreement",
    "check_meaning",
    "check_target",
    "is_costly",
    "look_up_work",
    "positions_for",
]

Array = npt.NDArray[Any]
_TIGHT = 1e-9
_COSTLY = 1 << 30
_LONG = 1 << 26
_LONGEST = 1 << 34
_LENGTHS = (1024, 512, 256, 64, 16)
_MOVED, _PART = 2.0**-20, 2.0**-20
_SHARE = 2.0**-17
"""Of the error in tensor-core precision (2**-9 and more): float64 errs 2**-44 times as much."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How one tensor agreed in one case."""

    passed: bool
    error: float
    samples: int
    detail: str = ""


def check_meaning(subject: Subject, *, samples: int) -> Iterator[Check]:
    """One check for each tensor that the source has a name for."""
    composed: Subject | None = None
    for target in subject.targets:
        if not target.named:
            continue
        check = check_target(subject, target, samples)
        if not check.passed and subject.cut:
            composed = composed or subject.composed()
            check = _again(composed, target, samples)
        yield check


def _again(composed: Subject, target: Target, samples: int) -> Check:
    """The check of one tensor from the program's inputs on."""
    whole = next(t for t in composed.targets if t.output == target.output)
    return check_target(composed, whole, max(16, samples // 16))


def check_target(subject: Subject, target: Target, samples: int) -> Check:
    """One tensor in every case; over shorter axes where a look-up would take many minutes. Where it
    takes a second, ordinary inputs have the whole axes, and others only if shorter ones differ."""
    subject, target, short = affordable(subject, target)
    long = look_up_work(subject, target) > _LONG
    brief = shorter(subject, target, _LONG)[:2] if long else None
    found: list[tuple[str, Agreement]] = []
    for case in subject.cases:
        limit = samples if case == "ordinary" else max(8, samples // 8)
        result = _compare_first(brief, (subject, target), case, limit)
        found.append((case, result))
        if case == "ordinary" and result.detail == "nan":
            found.append(("positive", _compare(subject, target, "positive", samples)))
    return _merged(target, found, short)


def _compare_first(
    brief: tuple[Subject, Target] | None, whole: tuple[Subject, Target], case: str, limit: int
) -> Agreement:
    """Agreement over the shorter axes where there are such, else over the whole ones. An identity
    may hold for the whole extents only (a sum of ones that became a number)."""
    if brief is not None and case != "ordinary":
        result = _compare(*brief, case, limit)
        if result.passed:
            return result
    return _compare(*whole, case, limit)


def is_costly(subject: Subject, target: Target) -> bool:
    """Whether one look-up takes seconds."""
    return look_up_work(subject, target) > _COSTLY


def affordable(
    subject: Subject, target: Target, most: int = _LONGEST
) -> tuple[Subject, Target, str]:
    """Both sides over the longest axes on which a look-up is affordable (what is drawn for it
    counted, on the side that takes longer), and a note of that."""
    if _whole_work(subject, target) <= most:
        return subject, target, ""
    near, short, longest = _within(subject, target, most, _whole_work)
    return near, short, f", over the first {longest} positions of each axis"


def shorter(subject: Subject, target: Target, most: int) -> tuple[Subject, Target, int]:
    """Both sides over shorter axes, the longest on which a look-up forms at most so many products
    where there are such, and their length."""
    return _within(subject, target, most, look_up_work)


def _within(
    subject: Subject, target: Target, most: int, work: Callable[[Subject, Target], int]
) -> tuple[Subject, Target, int]:
    for longest in _LENGTHS:
        short = shortened(subject, target, longest)
        if work(*short) <= most:
            break
    return *short, longest


def look_up_work(
    subject: Subject, target: Target, case: str = "ties", limit: int = 8, *, read: int = 0
) -> int:
    """Products of a look-up, at the fewest places if not said otherwise; other elements count as
    many, and elements of inputs `read` times (see `work_of`)."""
    grid = positions_for(subject, target, case, limit)
    size = {a: len(p) for a, p in grid.items()}
    side = subject.source if target.named else subject.chosen
    return work_of(target.term, size, side.definitions, read=read)


def _whole_work(subject: Subject, target: Target) -> int:
    """The same for the side that takes longer, and with the elements that are drawn."""
    grid = positions_for(subject, target, "ties", 8)
    theirs = dict(zip(target.output.axes, map(len, grid.values()), strict=True))
    chosen = work_of(target.output.term, theirs, subject.chosen.definitions, read=READ)
    return max(chosen, look_up_work(subject, target, read=READ))


def _merged(target: Target, found: list[tuple[str, Agreement]], short: str) -> Check:
    bad = [f"{case}: {a.detail}" for case, a in found if not a.passed]
    return Check(
        name=f"meaning of {target.output.buffer.name}",
        passed=not bad,
        max_relative_error=max(a.error for _, a in found),
        samples=sum(a.samples for _, a in found),
        detail="; ".join(bad) or "float64, inputs " + ", ".join(c for c, _ in found) + short,
    )


def _compare(subject: Subject, target: Target, case: str, limit: int) -> Agreement:
    drawn = subject.drawn(case)
    grid = positions_for(subject, target, case, limit)
    theirs_at = dict(zip(target.output.axes, grid.values(), strict=True))
    expected = evaluate(target.term, subject.source.fetch(drawn, "f64"), grid)
    fetch = subject.source.fetch(drawn, "mma")
    naive = evaluate(target.term, fetch, grid, precision="mma")
    actual = evaluate(target.output.term, subject.meant.fetch(drawn, "f64"), theirs_at)
    exact, binding = subject.numerics == "exact", subject.binds(case)
    found = agreement(actual, expected, naive, exact=exact, binding=binding)
    if found.passed or expected.dtype.kind != "f":
        return found
    reach = _reach(subject, target, case, grid, expected)
    return agreement(actual, expected, naive, exact=exact, binding=binding, reach=reach)


def _reach(subject: Subject, target: Target, case: str, grid: Grid, expected: Array) -> Array:
    """How far the source's float64 values may be off: what inputs that are moved by a millionth
    move them, divided by a million, or a small part of what float32 loses on those. A sum of
    deviations from their mean is 0 but for roundings, of which one evaluation may have none."""
    far = np.zeros(expected.shape)
    for number in range(2):
        moved = subject.moved(case, number, _MOVED)
        there = evaluate(target.term, subject.source.fetch(moved, "f64"), grid)
        single = evaluate(target.term, subject.source.fetch(moved, "mma"), grid, precision="mma")
        with np.errstate(invalid="ignore"):
            gaps = np.abs(there - expected) * _PART, np.abs(single - there) * _SHARE
        for gap in gaps:
            far = np.fmax(far, np.where(np.isfinite(gap), gap, 0.0))
    return far


def positions_for(subject: Subject, target: Target, case: str, limit: int) -> Grid:
    """Where a target is looked at in a case."""
    rng = np.random.default_rng([subject.seed, *case.encode(), *target.output.buffer.name.encode()])
    terms: tuple[Term, ...] = (target.term, target.output.term)
    tiles = _tiles(subject, target)
    return places(target.axes, terms, tiles, rng, limit=limit, loads=max(1 << 18, limit << 11))


def _tiles(subject: Subject, target: Target) -> dict[Axis, int]:
    """The tiles of the part that makes the target, by the source's axes."""
    for kernel in subject.plan.kernels:
        for part in kernel.parts:
            if target.output in part.outputs:
                pairs = zip(target.axes, target.output.axes, strict=True)
                return {a: part.tiles.get(b, b.extent) for a, b in pairs}
    return {}


def agreement(
    actual: Array,
    expected: Array,
    naive: Array,
    *,
    exact: bool = False,
    binding: bool = True,
    reach: float | Array = 0.0,
) -> Agreement:
    """Whether float64 values agree within the tolerance, or within `reach`. What is NaN in the
    source may be an infinity unless `exact`; without `binding` it may be anything, and so may an
    infinity."""
    x, y, z = (np.asarray(v, dtype=np.float64) for v in (actual, expected, naive))
    x, y, z = (v.reshape(-1, v.shape[-1] if v.ndim else 1) for v in (x, y, z))
    if actual.dtype.kind != "f" or expected.dtype.kind != "f":
        wrong = int((x != y).sum())
        return Agreement(not wrong, MOST if wrong else 0.0, x.size, f"{wrong} of {x.size} differ")
    lost = np.isfinite(y) & np.isfinite(z) & ~np.isfinite(x)
    if binding:
        lost |= np.isnan(y) & np.isnan(z) & (~np.isnan(x) if exact else np.isfinite(x))
        lost |= np.isinf(y) & np.isinf(z) & (x != y)
    if lost.any():
        said = f"{x[lost][0]:.6g} where the source gives {y[lost][0]:.6g}"
        return Agreement(False, MOST, x.size, f"{int(lost.sum())} of {x.size}: {said}")
    return _close(x, y, z, np.broadcast_to(reach, actual.shape).reshape(x.shape))


def _close(x: Array, y: Array, z: Array, reach: Array) -> Agreement:
    usable = np.isfinite(x) & np.isfinite(y)
    if not usable.any():
        return Agreement(True, 0.0, x.size, "nan")
    y0 = np.where(usable, y, 0.0)
    error = np.abs(np.where(usable, x, 0.0) - y0)
    scale = np.maximum(np.abs(y0), row_rms(y0, usable)[:, None])
    known = np.isfinite(z) & usable
    slack = np.where(known, np.abs(np.where(known, z, 0.0) - y0) * _SHARE, scale * 1e-6)
    relative = np.divide(error, scale, out=np.where(error == 0, 0.0, MOST), where=scale > 0)
    worst = float(relative.max())
    wrong = error > scale * _TIGHT + slack + reach
    some_nan = "nan" if np.isnan(y).any() else ""
    if not wrong.any():
        return Agreement(True, worst, x.size, some_nan)
    i = tuple(np.argwhere(wrong)[0])
    said = f"{int(wrong.sum())} of {x.size} differ, such as {x[i]:.9g} for {y[i]:.9g}"
    return Agreement(False, min(worst, MOST), x.size, said)
