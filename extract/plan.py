"""The choice: candidates of all regions, one integer program, and the kernels of the winner.

Within the model's noise (3%) fewer kernels win. Between kernels a tensor is stored as f32, or
narrower where every reader is a tensor-core contraction that rounds it to that type anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nautile.errors import ExtractionError
from nautile.extract.candidates import NOISE
from nautile.extract.device import Device
from nautile.extract.exact import Exact, runners_up
from nautile.extract.finish import finish
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.pool import Choice, Pool, gathered
from nautile.extract.regions import Region
from nautile.extract.selection import Column, Selection
from nautile.snapshot import Snapshot
from nautile.terms import Buffer, Program

__all__ = ["choose", "decide"]

RUNNERS = 3


def choose(
    regions: Sequence[tuple[Region, Snapshot]],
    program: Program,
    device: Device,
    *,
    numerics: str = "real",
    runners: int = RUNNERS,
    guarded: bool = False,
) -> Plan:
    """The cheapest set of candidate kernels that yields the program's outputs; `guarded`: of such
    that round no value to a type whose range it may leave.

    `regions` pairs each region with its saturated snapshot, in the order of `cut`. The gap is that
    of the choice over all candidates; `pruned` counts what the beam left out. Raises
    ExtractionError when no candidate of some output fits the device.
    """
    pool, counts = gathered(regions, device, numerics, guarded=guarded)
    plan = decide(pool, program, device, numerics=numerics, runners=runners)
    return replace(plan, pruned=counts)


def decide(
    pool: Pool, program: Program, device: Device, *, numerics: str = "real", runners: int = RUNNERS
) -> Plan:
    """The plan that is chosen from a pool of candidates as they are priced there. Raises
    ExtractionError when no set of them yields the program's outputs."""
    best = Exact()(pool.columns, pool.roots)
    if best is None:
        raise ExtractionError(f"program {program.name}: no set of kernels yields its outputs")
    chosen = fewest(pool.columns, pool.roots, best)
    others = runners_up(pool.columns, pool.roots, runners + 1, best=best) if runners > 0 else ()
    different = [s for s in others if set(s.columns) != set(chosen.columns)][:runners]
    plans = [_finished(pool, s, program, device, numerics) for s in (chosen, *different)]
    first = _leading(plans)
    rest = sorted((p for p in plans if p is not first), key=lambda p: p.seconds)
    gap = max(0.0, 1 - best.bound / first.selection.cost)
    gap = gap if gap > 1e-9 else 0.0
    return Plan(
        kernels=first.kernels,
        intermediates=first.intermediates,
        seconds=first.seconds,
        bound=first.seconds * (1 - gap),
        gap=gap,
        runners_up=tuple((p.seconds, p.kernels) for p in rest),
        choice=Choice(pool, best, first.selection, tuple(p.selection for p in rest)),
    )


@dataclass(frozen=True, slots=True)
class _Finished:
    """A selection with its kernels: seconds as finished, and as priced when it was chosen."""

    kernels: tuple[Kernel, ...]
    intermediates: tuple[Buffer, ...]
    seconds: float
    selection: Selection


def _finished(
    pool: Pool, selection: Selection, program: Program, device: Device, numerics: str
) -> _Finished:
    kernels, between = finish(pool.chosen(selection), program, device, numerics=numerics)
    seconds = sum(k.prediction.seconds for k in kernels)
    return _Finished(kernels, between, seconds, selection)


def _leading(plans: Sequence[_Finished]) -> _Finished:
    """The chosen plan, unless the final storage types make another faster beyond the noise."""
    first = plans[0]
    best = min(plans, key=lambda p: (p.seconds, len(p.kernels)))
    fewer = len(best.kernels) <= len(first.kernels)
    return best if best.seconds < first.seconds * (1 if fewer else 1 - NOISE) else first


def fewest(columns: Sequence[Column], roots: Sequence[int], best: Selection) -> Selection:
    """Of the selections within the model's noise of the best, one with fewer kernels if any."""
    if len(best.columns) <= 1 or (len(best.columns) == 2 and not _alone(columns, roots, best)):
        return best
    toll = NOISE * best.cost
    taxed = [Column(c.makes, c.needs, c.cost + toll) for c in columns]
    other = Exact()(taxed, roots)
    if other is None or len(other.columns) >= len(best.columns):
        return best
    cost = sum(columns[k].cost for k in other.columns)
    if cost > best.cost * (1 + NOISE):
        return best
    return Selection(other.columns, other.maker, cost, best.bound, 1 - best.bound / cost)


def _alone(columns: Sequence[Column], roots: Sequence[int], best: Selection) -> bool:
    """Whether one candidate yields everything within the model's noise of the best."""
    wanted, most = frozenset(roots), best.cost * (1 + NOISE)
    return any(wanted <= c.makes and not c.needs and c.cost <= most for c in columns)
