"""Which implementation of each launch is fastest on the device present: measured, not predicted.

Every launch that has several implementations with machine code for the device is measured alone,
on arrays that the whole program has filled; contestants take turns, so that changing clocks meet
all of them. One that is fastest is picked only if the program still passes the bundle's reference
with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nautile.bundle.manifest import Launch
from nautile.errors import LaunchError
from nautile.runtime.checking import check
from nautile.runtime.device import cupy, device_name
from nautile.runtime.launch import Call, Program
from nautile.runtime.loading import coded_for, unable
from nautile.runtime.record import Pick, sources
from nautile.runtime.timing import calls_of, contest

__all__ = ["Contest", "Tuned", "tune"]

_ROUNDS = 15
_WORTH = 0.995  # an implementation that is tried later must be this much faster


@dataclass(frozen=True, slots=True)
class Contest:
    """The implementations of one launch that were measured: their numbers and milliseconds, and
    the number of the one picked."""

    launch: int
    ms: dict[int, float]
    picked: int

    def as_dict(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """For reports: the launch's name, and each implementation's schedule and time."""
        made = launches[self.launch]
        rows = [
            {"schedule": made.implementations[n].schedule, "ms": t, "picked": n == self.picked}
            for n, t in self.ms.items()
        ]
        return {"launch": made.name, "implementations": rows}

    def pick(self, program: Program) -> Pick:
        """For the record."""
        ways = program.launches[self.launch].implementations
        ms = {f"{n}: {ways[n].schedule}"[:1000]: t for n, t in self.ms.items()}
        return Pick(self.launch, sources(program.bundle, ways[self.picked]), ms)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program with the implementations that are fastest on a device, and how they were found."""

    program: Program
    device: str
    contests: tuple[Contest, ...]

    @property
    def picks(self) -> tuple[Pick, ...]:
        """For the record."""
        return tuple(c.pick(self.program) for c in self.contests)


def tune(program: Program, seed: int = 0) -> Tuned | None:
    """Measure every implementation; None where each launch has only one for the device."""
    plain = replace(program, picks={})
    calls = calls_of(plain, seed)
    wanted = list(_several(plain, calls[0].device))
    if not wanted:
        return None
    stream = cupy().cuda.Stream(non_blocking=True)
    for call in calls:
        call.launch(stream)
    contests = tuple(_contest(plain, calls, number, ways, stream) for number, ways in wanted)
    name = device_name(calls[0].device)
    picks = {**program.picks, name: {c.launch: c.picked for c in contests}}
    return Tuned(replace(program, picks=picks), name, contests)


def _several(program: Program, device: int) -> Iterator[tuple[int, list[int]]]:
    """Launches with more than one implementation that the device has machine code for, and the
    numbers of those."""
    for number, launch in enumerate(program.launches):
        ways = [
            n
            for n, way in enumerate(launch.implementations)
            if coded_for(way, device) and not any(unable(k, device) for k in way.kernels)
        ]
        if len(ways) > 1:
            yield number, ways


def _contest(
    program: Program, calls: Sequence[Call], number: int, ways: Sequence[int], stream: Any
) -> Contest:
    bound: dict[int, list[Call]] = {}
    for way in ways:
        try:
            bound[way] = [program.rebind(c, {number: way}, stream) for c in calls]
        except LaunchError:
            continue  # the driver refused it: no contestant
    actions = [[partial(c.launch, stream, number) for c in row] for row in bound.values()]
    times = contest(actions, stream, _ROUNDS)
    ms = {way: t.median for way, t in zip(bound, times, strict=True)}
    return Contest(number, ms, _fastest(program, calls[0].device, number, ms))


def _fastest(program: Program, device: int, number: int, ms: dict[int, float]) -> int:
    """The fastest that is right; the one that comes first where the gain is noise."""
    first = min(ms)
    for way in sorted(ms, key=lambda n: ms[n]):
        if way == first or (ms[way] < _WORTH * ms[first] and _right(program, device, number, way)):
            return way
    return first


def _right(program: Program, device: int, number: int, way: int) -> bool:
    """Whether the program passes its reference with that implementation; true without one."""
    if program.head.expected is None:
        return True
    tried = replace(program, picks={device_name(device): {number: way}})
    return bool(check(tried)["verdict"] == "pass")
