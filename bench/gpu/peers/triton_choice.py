"""Tiles of a Triton kernel, and the fastest of a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Choice", "fastest"]


@dataclass(frozen=True, slots=True)
class Choice:
    tiles: Mapping[str, int]
    warps: int
    stages: int


def fastest(choices: Sequence[Choice], run: Callable[[Choice], Any]) -> Choice:
    """The choice with the least median time; those that do not compile or fit are left out.
    RuntimeError where none does."""
    import triton.testing

    times: dict[int, float] = {}
    said: list[str] = []
    for number, choice in enumerate(choices):
        try:
            ms = triton.testing.do_bench(
                lambda c=choice: run(c), warmup=5, rep=20, return_mode="median"
            )
            times[number] = float(ms)
        except Exception as error:  # Triton's errors of resources have no common class
            said.append(str(error)[:80])
    if not times:
        raise RuntimeError(f"no tiles run: {'; '.join(said)}")
    return choices[min(times, key=lambda n: times[n])]
