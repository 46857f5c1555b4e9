"""Device profiles: the figures that the roofline divides by, one JSON file a device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nautile.errors import InputError

__all__ = ["PORTABLE", "Device", "device", "device_names"]

PORTABLE = "mma.sync"
_FOLDER = Path(__file__).parent / "devices"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. Rates are sustained, a second: bytes of `memory_bandwidth` and `l2_bandwidth`,
    operations of `fp32`, `fp64` (a fused multiply-add counts two) and `special` (exp, log, ...);
    `tensor` maps an instruction path ("mma.sync", "wgmma") to flop/s by operand type; schedules are
    made for `path`, and for PORTABLE, which every device has. `shared_bytes` a block may use,
    `registers` an SM has; `memory_sms` is how many SMs saturate the memory; `step_seconds` is what
    one trip of a block's main loop costs besides its work."""

    name: str
    architecture: str
    description: str
    sms: int
    clock: float
    memory_bandwidth: float
    l2_bandwidth: float
    l2_bytes: int
    shared_bytes: int
    registers: int
    fp32: float
    fp64: float
    special: float
    tensor: Mapping[str, Mapping[str, float]]
    path: str
    launch_seconds: float
    step_seconds: float
    memory_sms: int

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can share their memory, and kernels are made that do (sm_90)."""
        return self.architecture == "sm_90"

    def tensor_rate(self, operand: str) -> float:
        """flop/s of the tensor cores on `operand` along the fastest path; 0 where they lack it."""
        return self.rate(operand, self.path) or self.rate(operand, PORTABLE)

    def rate(self, operand: str, path: str) -> float:
        """flop/s of the tensor cores on `operand` along a path; 0 where it lacks it."""
        return self.tensor.get(path, {}).get(operand, 0.0)


def device_names() -> tuple[str, ...]:
    """The profiles that ship with the package."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.json")))


@cache
def device(name: str) -> Device:
    """The profile called `name`; InputError lists the known ones."""
    if name not in device_names():
        known = ", ".join(device_names())
        raise InputError(f"unknown device {name!r}; known: {known}", code="unknown-device")
    return Device(**json.loads((_FOLDER / f"{name}.json").read_text()))
