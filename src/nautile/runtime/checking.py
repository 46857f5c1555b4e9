"""Does the device compute what the source computes?

Outputs and intermediates are filled with NaN patterns before the program runs on sample inputs, and
again with another pattern before a second run: an element that nobody wrote, and a race, differ
between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nautile.runtime.device import cupy
from nautile.runtime.draw import POISONS, inputs, poison
from nautile.runtime.launch import Call, Program

__all__ = ["check", "twice"]


def twice(program: Program, given: Mapping[str, Any]) -> tuple[Call, dict[str, int]]:
    """Run on poisoned memory two times; the call, and how many bytes of each output differ."""
    call = program.bind(given)
    kept: dict[str, Any] = {}
    differing: dict[str, int] = {}
    for byte in POISONS:
        for array in call.written(program):
            poison(array, byte)
        for name, array in call.launch().items():
            raw = array.reshape(-1).view("uint8")
            if name in kept:
                differing[name] = int((kept[name] != raw).sum())
            kept[name] = raw.copy()
    return call, differing


def check(
    program: Program, seed: int | None = None, kinds: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run twice and compare."""
    _, differing = twice(program, inputs(program, seed or 0, kinds))
    cupy().cuda.Device().synchronize()
    return {"verdict": "fail" if any(differing.values()) else "pass", "differing": differing}
