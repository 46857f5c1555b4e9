"""The choice under other prices: a pool priced again for devices whose rates differ.

A resource of the cost model is made dearer by a factor: its rate is divided by it, or its seconds
multiplied. All tilings of every candidate are priced again, for many devices in one pass (the model
computes entry by entry, so a rate may be a vector: each device's, once for each tiling), and the
choice is solved again over them. Candidates and their splits stay those of the pool.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import networkx as nx
import numpy as np
import numpy.typing as npt

from nautile.extract.body import analyse
from nautile.extract.candidates import NOISE, Candidate
from nautile.extract.chunks import Divided
from nautile.extract.device import Device
from nautile.extract.exact import Exact
from nautile.extract.footprint import Vector
from nautile.extract.pool import Pool
from nautile.extract.priced import Priced
from nautile.extract.roofline import joined, ways
from nautile.extract.selection import Column, Selection
from nautile.extract.split import launches
from nautile.extract.together import CHOICES, combined
from nautile.terms import Output

__all__ = ["SCALED", "Chooser", "at_prices", "costs", "price_each", "repriced", "scaled"]

SCALED = ("dram", "l2", "tensor", "fp32", "special", "launch")

Costs = npt.NDArray[np.float64]


def scaled(device: Device, resource: str, factor: float) -> Device:
    """The device on which work of the resource takes `factor` times as long. "fp32" covers fp64,
    "tensor" all operand types and paths."""
    match resource:
        case "dram":
            return replace(device, memory_bandwidth=device.memory_bandwidth / factor)
        case "l2":
            return replace(device, l2_bandwidth=device.l2_bandwidth / factor)
        case "fp32":
            return replace(device, fp32=device.fp32 / factor, fp64=device.fp64 / factor)
        case "special":
            return replace(device, special=device.special / factor)
        case "launch":
            return replace(device, launch_seconds=device.launch_seconds * factor)
        case "tensor":
            rates = {
                path: {operand: rate / factor for operand, rate in own.items()}
                for path, own in device.tensor.items()
            }
            return replace(device, tensor=rates)
    raise ValueError(f"unknown resource {resource!r}; known: {', '.join(SCALED)}")


# ---- many devices at once ----------------------------------------------------------------------


def price_each(
    outputs: tuple[Output, ...], devices: Sequence[Device], *, numerics: str = "real"
) -> tuple[Priced, ...]:
    """What `price` gives for each of the devices, which differ in rates and seconds alone."""
    body = analyse(outputs, numerics=numerics)
    rows: list[list[Priced]] = [[] for _ in devices]
    for way in ways(body, devices[0]):
        count = len(next(iter(way.tiles.values()), np.ones(1)))
        mixed = _mixed(devices, max(count, 1))
        tiles = {axis: np.tile(sizes, len(devices)) for axis, sizes in way.tiles.items()}
        found = way.price(body, mixed, tiles)
        for row, part in zip(rows, _parts(found, devices), strict=True):
            row.append(part)
    return tuple(joined(row) for row in rows)


def _mixed(devices: Sequence[Device], count: int) -> Device:
    """One device whose rates are vectors: each device's `count` times."""

    def each(values: Sequence[float]) -> float:
        if len(set(values)) == 1:
            return values[0]
        return cast(float, np.repeat(np.array(values, dtype=np.float64), count))

    first = devices[0]
    rates = {
        path: {name: each([d.tensor[path][name] for d in devices]) for name in own}
        for path, own in first.tensor.items()
    }
    return replace(
        first,
        memory_bandwidth=each([d.memory_bandwidth for d in devices]),
        l2_bandwidth=each([d.l2_bandwidth for d in devices]),
        fp32=each([d.fp32 for d in devices]),
        fp64=each([d.fp64 for d in devices]),
        special=each([d.special for d in devices]),
        launch_seconds=each([d.launch_seconds for d in devices]),
        tensor=rates,
    )


def _parts(found: Priced, devices: Sequence[Device]) -> Iterator[Priced]:
    """The entries of each device."""
    count = len(found.seconds) // len(devices)
    for n, device in enumerate(devices):
        own = slice(n * count, (n + 1) * count)
        yield Priced(
            found.body,
            device,
            {axis: sizes[own] for axis, sizes in found.tiles.items()},
            found.seconds[own],
            {name: _entries(v, found.seconds)[own] for name, v in found.demand.items()},
            found.reads[own],
            found.writes,
            found.tensor_flops[own],
            found.vector_flops[own],
            found.special_ops[own],
            found.shared[own],
            found.registers[own],
            found.blocks[own],
            found.wgmma[own],
        )


def _entries(values: Vector, like: Vector) -> Vector:
    return np.broadcast_to(values, like.shape)


# ---- candidates and pools ----------------------------------------------------------------------


def costs(
    pool: Pool,
    devices: Sequence[Device],
    *,
    numerics: str = "real",
    only: Collection[int] | None = None,
) -> Costs:
    """Predicted seconds of every candidate (rows) on every device (columns); inf for all but `only`
    those, where they are named."""
    table = np.full((len(pool.candidates), len(devices)), np.inf)
    for k, (_, candidate) in enumerate(pool.candidates):
        if only is None or k in only:
            table[k] = [way.seconds for way in _each(candidate, devices, numerics)]
    return table


def at_prices(pool: Pool, seconds: Sequence[float]) -> Pool:
    """The pool with other prices; its candidates keep their schedules, which finishing a program
    makes anew."""
    rows = zip(pool.columns, seconds, strict=True)
    return replace(pool, columns=tuple(replace(c, cost=float(s)) for c, s in rows))


def repriced(pool: Pool, device: Device, *, numerics: str = "real") -> Pool:
    """The pool with every candidate on its best tiles for the device."""
    made = []
    for number, candidate in pool.candidates:
        (way,) = _each(candidate, [device], numerics)
        division = way.division
        parts, prediction = (candidate.parts, candidate.prediction)
        if way.schedule is not None:
            parts, prediction = way.schedule
        new = replace(candidate, parts=parts, prediction=prediction, division=division)
        made.append((number, new))
    columns = tuple(
        Column(old.makes, old.needs, c.seconds)
        for old, (_, c) in zip(pool.columns, made, strict=True)
    )
    return replace(pool, candidates=tuple(made), columns=columns)


@dataclass(frozen=True, slots=True)
class _Way:
    """A candidate on one device: its best schedule as a whole, if any fits, its split where that is
    faster, and the seconds of the better."""

    seconds: float
    schedule: tuple[tuple[Any, ...], Any] | None
    division: Divided | None


def _each(candidate: Candidate, devices: Sequence[Device], numerics: str) -> list[_Way]:
    tables = [price_each(p.outputs, devices, numerics=numerics) for p in candidate.parts]
    wholes = [_whole([table[n] for table in tables], device) for n, device in enumerate(devices)]
    if candidate.division is None:
        return [_Way(_seconds(whole), whole, None) for whole in wholes]
    splits = _divided(candidate, devices, numerics)
    return [_better(whole, split) for whole, split in zip(wholes, splits, strict=True)]


def _better(whole: tuple[tuple[Any, ...], Any] | None, split: Divided | None) -> _Way:
    if split is not None and split.seconds < _seconds(whole):
        return _Way(split.seconds, whole, split)
    return _Way(_seconds(whole), whole, None)


def _seconds(whole: tuple[tuple[Any, ...], Any] | None) -> float:
    return float("inf") if whole is None else float(whole[1].seconds)


def _whole(rows: Sequence[Priced], device: Device) -> tuple[tuple[Any, ...], Any] | None:
    """The best schedule of the parts in one launch; None where no tiling fits."""
    if len(rows) == 1:
        best = rows[0].ranked(1)
        return ((best[0][0],), best[0][1]) if best else None
    return combined([r.ranked(CHOICES, "portable") for r in rows], device)


def _divided(
    candidate: Candidate, devices: Sequence[Device], numerics: str
) -> list[Divided | None]:
    """The candidate's split on each device; None where a launch of it has no schedule."""
    assert candidate.division is not None
    split, (part,) = candidate.division.split, candidate.parts
    count = itertools.count()
    parts = launches(part.outputs, split, lambda: f"~state{next(count)}")
    tables = [price_each(outputs, devices, numerics=numerics) for outputs in parts]
    found: list[Divided | None] = []
    for n in range(len(devices)):
        rows = [table[n].ranked(1) for table in tables]
        whole = all(rows)
        found.append(Divided(split, tuple(r[0] for r in rows)) if whole else None)
    return found


class Chooser:
    """The choice over a pool at other prices than its own: the cheapest columns, or fewer of them
    within the model's noise; before storage between the kernels is settled. Columns that share no
    item, directly or through others, are solved apart: the pool's regions, and their parts."""

    def __init__(self, pool: Pool) -> None:
        self.columns, self.roots = pool.columns, frozenset(pool.roots)
        graph: Any = nx.Graph()
        for k, column in enumerate(pool.columns):
            graph.add_node(("column", k))
            graph.add_edges_from((("column", k), n) for n in column.makes | column.needs)
        parts = (sorted(n[1] for n in part if isinstance(n, tuple)) for part in _parts_of(graph))
        self.parts = [part for part in sorted(parts) if self._wanted(part)]

    def _wanted(self, part: Sequence[int]) -> list[int]:
        made = frozenset[int]().union(*(self.columns[k].makes for k in part))
        return sorted(made & self.roots)

    def __call__(self, seconds: Sequence[float]) -> Selection | None:
        """What is chosen; columns of infinite price are left out. None where some output cannot be
        made."""
        best = self._cheapest(seconds)
        if best is None:
            return None
        if len(best.columns) <= 1 or (len(best.columns) == 2 and not self._alone(seconds, best)):
            return best
        toll = NOISE * best.cost
        other = self._cheapest([s + toll for s in seconds])
        if other is None or len(other.columns) >= len(best.columns):
            return best
        cost = sum(seconds[k] for k in other.columns)
        if cost > best.cost * (1 + NOISE):
            return best
        return Selection(other.columns, other.maker, cost, best.bound, 1 - best.bound / cost)

    def _alone(self, seconds: Sequence[float], best: Selection) -> bool:
        """Whether one column yields everything within the noise, as `plan.fewest` asks."""
        most = best.cost * (1 + NOISE)
        rows = zip(self.columns, seconds, strict=True)
        return any(self.roots <= c.makes and not c.needs and s <= most for c, s in rows)

    def _cheapest(self, seconds: Sequence[float]) -> Selection | None:
        maker: dict[int, int] = {}
        found: list[int] = []
        bound = 0.0
        for part in self.parts:
            kept = [k for k in part if np.isfinite(seconds[k])]
            columns = [replace(self.columns[k], cost=float(seconds[k])) for k in kept]
            own = Exact()(columns, self._wanted(part))
            if own is None:
                return None
            found += (kept[k] for k in own.columns)
            maker |= {item: kept[k] for item, k in own.maker.items()}
            bound += own.bound
        cost = float(sum(seconds[k] for k in found))
        return Selection(tuple(found), maker, cost, min(bound, cost), 1 - min(bound, cost) / cost)


def _parts_of(graph: Any) -> Any:
    return nx.connected_components(graph)
