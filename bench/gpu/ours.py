"""The generated program as contestants: as the launcher takes it, and its other implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["OURS", "PORTABLE", "Way", "schedule", "ways"]

OURS, PORTABLE = "nautile", "nautile-portable"
MOST = 8  # implementations timed of one program


@dataclass(frozen=True, slots=True)
class Way:
    """A choice of implementations for a program's launches (empty: the launcher's own)."""

    name: str
    choices: Mapping[int, int]


def ways(program: Any) -> list[Way]:
    """The launcher's own choice on a device that runs them all; the portable kernels, where others
    stand before them; and, of a program of one launch, each other implementation."""
    launches = program.launches
    best = dict.fromkeys(range(len(launches)), 0)
    plain = {i: _portable(launch) for i, launch in enumerate(launches)}
    found = [Way(OURS, {})]
    if plain != best:
        found.append(Way(PORTABLE, plain))
    if len(launches) == 1:
        others = range(1, min(MOST, len(launches[0].implementations)))
        rest = [{0: n} for n in others if {0: n} != plain]
        found += [Way(f"{OURS}-{c[0] + 1}", c) for c in rest]
    return found


def _portable(launch: Any) -> int:
    """The number of the first implementation that needs no architecture of its own."""
    plain = (
        number
        for number, way in enumerate(launch.implementations)
        if not any(k.architecture[-1] in "af" for k in way.kernels)
    )
    return next(plain, 0)


def schedule(launches: Sequence[Any], choices: Sequence[int]) -> str:
    """What the implementations say of themselves that were taken, one for each launch."""
    taken = (x.implementations[n] for x, n in zip(launches, choices, strict=True))
    return "; ".join(way.schedule for way in taken)
