"""How wrong the cost model would have to be for another program to be chosen.

```
Margin ::= resource (of the model, or one kernel's total), factor or None, the program that wins
```

A factor says how many times as dear work on the resource has to be: below 1, cheaper. It is the
first one on the way from 1 to `WIDEST` (or its inverse) at which the choice, solved again over all
candidates at their new prices, is another set of kernels; tilings are chosen anew, chunks of splits
are not. Between 1 and the factor the choice is looked at on a grid, so a change that comes and
goes between two of its points is not seen. Candidates are those that were priced when the program
was chosen, also those that were left out of the choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nautile.errors import ExtractionError
from nautile.extract.candidates import Candidate
from nautile.extract.device import Device, device
from nautile.extract.finish import finish
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.plan import choose, decide
from nautile.extract.pool import Pool
from nautile.extract.selection import Selection
from nautile.extract.sensitivity import SCALED, Chooser, Costs, at_prices, costs, scaled
from nautile.retreat import is_guarded
from nautile.stages import Optimization
from nautile.terms import Output

__all__ = [
    "APART",
    "GRID",
    "NEAR",
    "WIDEST",
    "Beaten",
    "Margin",
    "Margins",
    "generated_again",
    "margins",
    "same",
]

WIDEST = 1000.0
GRID = (1.05, 1.15, 1.3, 1.6, 2.2, 3.5, 7.0, 20.0, 100.0, 1000.0)
STEPS = 16  # points into which a bracket is cut at a time
THIRD = 4  # programs that may come between two in turn
NEAR = 0.002  # how far from the factor, relatively, the choice is solved again to check it
APART = 0.02  # the same where candidates are generated again: splits are chosen anew, too
FAR = 30.0  # how dear a resource is where candidates of other prices are generated
AGAIN = 4  # times that candidates of other prices join


@dataclass(frozen=True, slots=True)
class Margin:
    """The factor on a resource ("dram", "l2", "tensor", "fp32", "special", "launch", or "kernel"
    for the total of the kernel named) at which `columns`, the `kernels`, become the choice; None
    where nothing up to `WIDEST` and down to its inverse does. `checked` tells that the whole choice
    (storage of what lies between kernels included), solved again on both sides of the factor, is
    the other program on the far side alone; `how` what was solved again: "candidates" (`NEAR`
    beside the factor), or, for "generated", candidates made anew (`APART` beside it)."""

    resource: str
    factor: float | None
    kernel: str | None = None
    columns: tuple[int, ...] = ()
    chosen_seconds: float = 0.0
    seconds: float = 0.0
    checked: bool = False
    how: str = "candidates"
    kernels: tuple[Kernel, ...] = ()

    @property
    def distance(self) -> float:
        """How far the factor is from 1: 2 for twice as dear and for half."""
        return math.inf if self.factor is None else max(self.factor, 1 / self.factor)


@dataclass(frozen=True, slots=True)
class Beaten:
    """The factor on a resource from which on one runner-up is faster than the chosen program."""

    resource: str
    runner_up: int
    factor: float | None


@dataclass(frozen=True, slots=True)
class Margins:
    """All margins; `closest` is the one of a resource that is nearest to 1, else of a kernel."""

    choice: tuple[Margin, ...]
    runners_up: tuple[Beaten, ...]
    candidates: int

    @property
    def closest(self) -> Margin | None:
        found = [m for m in self.choice if m.factor is not None]
        return min(found, key=lambda m: (m.kernel is not None, m.distance), default=None)


def margins(result: Optimization, *, again: bool = True, thorough: bool = False) -> Margins:
    """The margins of a chosen program. With `again`, the closest one is checked with candidates
    that are generated anew on both sides of it; with `thorough`, candidates that are generated
    where each resource is `FAR` times as dear, and as cheap, take part in the search."""
    search = _Search(result, _generated_far(result) if thorough else ())
    found = [m for resource in SCALED for m in search.resource(resource)]
    found += search.kernels()
    every = Margins(tuple(found), tuple(search.beaten), len(search.pool.columns))
    closest = every.closest
    if not again or closest is None or closest.kernel is not None:
        return every
    new = generated_again(result, closest)
    return replace(every, choice=tuple(new if m is closest else m for m in found))


Program = frozenset[tuple[Any, ...]]


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans of one program are the same kernels, but for tiles and numbers of
    chunks."""
    return _program(a) == _program(b)


def _program(plan: Plan) -> Program:
    assert plan.choice is not None
    return _signature(plan.choice.pool, plan.choice.taken.columns)


def _signature(pool: Pool, columns: Sequence[int]) -> Program:
    return frozenset(_identity(pool.candidates[k]) for k in columns)


def _identity(candidate: tuple[int, Candidate]) -> tuple[Any, ...]:
    """What a candidate of a region computes, whatever its tiles and the number of its chunks."""
    number, c = candidate
    split = c.division.split.axis if c.division else None
    return number, c.needs, frozenset(c.groups), split


def _launched(kernels: Sequence[Kernel]) -> tuple[int, frozenset[tuple[Output, ...]]]:
    """What finished kernels store: a joint candidate that is launched part by part adds nothing."""
    return len(kernels), frozenset(p.outputs for k in kernels for p in k.parts)


def _generated_far(result: Optimization) -> list[tuple[int, Candidate]]:
    """Candidates that are worth their place at other prices."""
    found: list[tuple[int, Candidate]] = []
    for resource in SCALED:
        for factor in (FAR, 1 / FAR):
            choice = _generated(result, resource, factor).choice
            assert choice is not None
            found += (*choice.pool.candidates, *choice.pool.dropped)
    return found


def generated_again(result: Optimization, margin: Margin) -> Margin:
    """The margin, checked by a whole choice just short of it, with candidates made anew for its
    prices: beyond it, that another program is faster is known. Where one is faster before it,
    too, the factor is where that one overtakes, and is checked in turn."""
    more: list[tuple[int, Candidate]] = []
    for _ in range(AGAIN):
        assert margin.factor is not None
        nearer, _ = _sides(margin.factor, APART)
        plan = _generated(result, margin.resource, nearer)
        assert result.plan is not None
        if same(plan, result.plan):
            return replace(margin, checked=True, how="generated")
        assert plan.choice is not None
        more += (plan.choice.pool.candidates[k] for k in plan.choice.taken.columns)
        closer = _Search(result, more).overtaken(margin.resource, nearer)
        if closer is None:
            break
        margin = closer
    return replace(margin, checked=False)


def _generated(result: Optimization, resource: str, factor: float) -> Plan:
    """What is chosen with all candidates generated for the scaled device."""
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    target = scaled(device(result.options.target), resource, factor)
    guarded = is_guarded(result.plan)
    return choose(pairs, result.work, target, numerics=result.options.numerics, guarded=guarded)


def _sides(factor: float, apart: float = NEAR) -> tuple[float, float]:
    """Factors just short of this one and just beyond it, seen from 1."""
    step = 1 + apart if factor > 1 else 1 / (1 + apart)
    return factor / step, factor * step


class _Search:
    """One search over a pool: prices by resource and factor, and what is chosen at them. `more` are
    candidates beside those of the choice and those that were left out of it."""

    def __init__(self, result: Optimization, more: Sequence[tuple[int, Candidate]] = ()) -> None:
        assert result.plan is not None
        assert result.plan.choice is not None
        self.plan, self.choice = result.plan, result.plan.choice
        self.target = device(result.options.target)
        self.work, self.numerics = result.work, result.options.numerics
        self.taken = frozenset(self.choice.taken.columns)
        self.beaten: list[Beaten] = []
        own = self.choice.pool
        known = {_identity(c) for c in (*own.candidates, *own.dropped)}
        new = {_identity(c): c for c in more if _identity(c) not in known}
        self._over(replace(own, dropped=(*own.dropped, *new.values())).widened)
        if self.other(self.base) is not None:
            self._over(own)
        self.settled = self.other(self.base) is None

    def _over(self, pool: Pool) -> None:
        """Search the pool. Added candidates were priced for other devices: the base is not."""
        own = len(self.choice.pool.columns) + len(self.choice.pool.dropped)
        self.pool, self.chooser = pool, Chooser(pool)
        added = range(own, len(pool.columns))
        new = costs(pool, [self.target], numerics=self.numerics, only=added)[:, 0]
        self.base = np.array([new[k] if k in added else c.cost for k, c in enumerate(pool.columns)])

    def other(self, seconds: Costs) -> Selection | None:
        """What is chosen at these prices, if the chosen program is not as good."""
        found = self.chooser([float(s) for s in seconds])
        if found is None or frozenset(found.columns) == self.taken:
            return None
        own = sum(float(seconds[k]) for k in self.taken)
        good = own <= found.cost * (1 + 1e-9) and len(self.taken) <= len(found.columns)
        return None if good else found

    def prices(self, resource: str, factors: Sequence[float]) -> Costs:
        devices = [scaled(self.target, resource, f) for f in factors]
        return costs(self.pool, devices, numerics=self.numerics)

    def resource(self, resource: str) -> list[Margin]:
        """The margins of a resource: dearer, cheaper, or one that says that there is none."""
        factors = [1 / f for f in reversed(GRID)] + [1.0, *GRID]
        table = self.prices(resource, factors)
        self.beaten += [
            Beaten(resource, n, self.crossing(resource, factors, table, other))
            for n, other in enumerate(self.choice.others)
        ]
        if not self.settled:
            return [Margin(resource, None)]
        middle = len(GRID)
        ways = (range(middle + 1, len(factors)), range(middle - 1, -1, -1))
        found = [self.first(resource, factors, table, way) for way in ways]
        return [m for m in found if m is not None] or [Margin(resource, None)]

    def first(
        self, resource: str, factors: Sequence[float], table: Costs, way: range
    ) -> Margin | None:
        """The first change of the choice on the way, pinned down."""
        before = 1.0
        for n in way:
            if self.alike(table[:, n]):
                continue
            other = self.other(table[:, n])
            if other is not None:
                margin = self.pinned(resource, before, factors[n], other)
                if _launched(margin.kernels) != _launched(self.plan.kernels):
                    return margin
            before = factors[n]
        return None

    def overtaken(self, resource: str, factor: float) -> Margin | None:
        """The first change between 1 and a factor at which one of the candidates that were added
        is worth its place."""
        other = self.other(self.prices(resource, [factor])[:, 0])
        return None if other is None else self.pinned(resource, 1.0, factor, other, check=False)

    def alike(self, seconds: Costs) -> bool:
        """Whether no price differs from what it was."""
        return bool(np.allclose(seconds, self.base, rtol=1e-12, atol=0.0))

    def pinned(
        self, resource: str, start: float, high: float, other: Selection, *, check: bool = True
    ) -> Margin:
        """The change between two factors, to within `NEAR`: first between the chosen program and
        the other one alone, then, if all candidates together have a third one before that, with
        it."""
        for _ in range(THIRD):
            high, other = self.between(resource, start, high, other)
            nearer, further = _sides(high)
            table = self.prices(resource, [nearer, high, further])
            before = self.other(table[:, 0])
            if before is None or max(nearer, 1 / nearer) <= max(start, 1 / start):
                break
            high, other = nearer, before
        seconds = table[:, 1]
        now = self.other(seconds) or other
        target = scaled(self.target, resource, high)
        chosen = float(sum(seconds[k] for k in self.taken))
        kernels = self.finished(now, target)
        margin = Margin(resource, high, None, now.columns, chosen, now.cost, kernels=kernels)
        checked = check and self.checked(resource, (nearer, further), table)
        return replace(margin, checked=checked)

    def between(
        self, resource: str, low: float, high: float, other: Selection
    ) -> tuple[float, Selection]:
        """The factor at which the choice between two programs changes, and what it is there."""
        both = self.taken | frozenset(other.columns)
        while max(high / low, low / high) > 1 + NEAR / 4:
            points = [float(p) for p in np.geomspace(low, high, STEPS + 1)[1:-1]]
            devices = [scaled(self.target, resource, f) for f in points]
            table = costs(self.pool, devices, numerics=self.numerics, only=both)
            inside = list(zip(points, table.T, strict=True))
            while inside:
                middle = len(inside) // 2
                factor, seconds = inside[middle]
                found = self.other(seconds)
                if found is None:
                    low, inside = factor, inside[middle + 1 :]
                else:
                    high, other, inside = factor, found, inside[:middle]
        return high, other

    def checked(self, resource: str, factors: tuple[float, float], table: Costs) -> bool:
        """Whether whole choices over the candidates change between both factors (the outer columns
        of the table of prices)."""
        rows = zip(factors, (table[:, 0], table[:, -1]), strict=True)
        try:
            found = [self.decided(resource, f, seconds) == self.taken for f, seconds in rows]
        except ExtractionError:
            return False
        return found == [True, False]

    def decided(self, resource: str, factor: float, seconds: Costs) -> frozenset[int]:
        target = scaled(self.target, resource, factor)
        pool = at_prices(self.pool, [float(s) for s in seconds])
        plan = decide(pool, self.work, target, numerics=self.numerics)
        assert plan.choice is not None
        return frozenset(plan.choice.taken.columns)

    def kernels(self) -> list[Margin]:
        """How much dearer each of the chosen candidates may be than it is priced."""
        if not self.settled:
            return []
        names: dict[int, list[str]] = {}
        for kernel in self.plan.kernels:
            for column in kernel.columns:
                names.setdefault(column, []).append(kernel.name)
        return [self.kernel(k, ", ".join(names[k])) for k in sorted(self.taken) if k in names]

    def kernel(self, column: int, name: str) -> Margin:
        def prices(factor: float) -> Costs:
            seconds = self.base.copy()
            seconds[column] *= factor
            return seconds

        without = self.other(prices(math.inf))
        if without is None:
            return Margin("kernel", None, name)
        rest = float(sum(self.base[k] for k in self.taken) - self.base[column])
        low, high = 1.0, max(1.0, (without.cost - rest) / float(self.base[column]))
        low, high = max(low, high / (1 + NEAR)), high * (1 + NEAR)
        if self.other(prices(low)) is not None:
            low = 1.0
        while (other := self.other(prices(high))) is None:
            low, high = high, high * 1.03  # fewer kernels win within the noise
        while high > low * (1 + NEAR):
            middle = math.sqrt(low * high)
            found = self.other(prices(middle))
            low, high = (middle, high) if found is None else (low, middle)
            other = found or other
        chosen = float(rest + high * self.base[column])
        seconds = sum(float(prices(high)[k]) for k in other.columns)
        kernels = self.finished(other, self.target)
        return Margin("kernel", high, name, other.columns, chosen, seconds, True, kernels=kernels)

    def finished(self, selection: Selection, target: Device) -> tuple[Kernel, ...]:
        """The selection's kernels on a device; none where they have no schedule on it."""
        try:
            return finish(self.pool.chosen(selection), self.work, target, numerics=self.numerics)[0]
        except ExtractionError:
            return ()

    def crossing(
        self, resource: str, factors: Sequence[float], table: Costs, other: Selection
    ) -> float | None:
        """The factor nearest to 1 from which on the selection is faster than the chosen one."""

        def behind(seconds: Costs) -> bool:
            own = sum(seconds[k] for k in self.taken)
            return bool(sum(seconds[k] for k in other.columns) >= own)

        if not behind(self.base):
            return 1.0
        wins = [n for n, f in enumerate(factors) if f != 1.0 and not behind(table[:, n])]
        if not wins:
            return None
        n = min(wins, key=lambda n: max(factors[n], 1 / factors[n]))
        near = factors[n - 1] if factors[n] > 1 else factors[n + 1]
        points = [float(p) for p in np.geomspace(near, factors[n], STEPS + 1)]
        fine = self.prices(resource, points)
        return next(p for p, s in zip(points, fine.T, strict=True) if not behind(s))
