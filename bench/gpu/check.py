"""Correctness on the device: poisoned memory, guard bands, two runs, float64 and the peers.

An output lies between two guard bands. It is filled with one pattern and then another before two
runs: an element that nobody writes, and a race, differ between them. The error against float64 may
be twice that of torch in the same types (`plain` of the work), and a floor for its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from interleaved import first_run

from nautile.runtime.draw import POISONS, poison

from .ours import Way
from .peers.contestant import Outputs, Tensors, Work

__all__ = ["FLOORS", "TYPES", "Truth", "draw", "relative", "truth_of", "verdict"]

DEVICE = "cuda"
GUARD = 1 << 20  # bytes on either side of an output
HANG_SECONDS = 10.0
TYPES = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
    "f16": torch.float16, "i64": torch.int64, "i32": torch.int32, "i8": torch.int8,
    "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}  # fmt: skip
FLOORS = {"bf16": 1e-4, "f16": 2e-5, "f32": 1e-6, "i8": 1e-3}


@dataclass(frozen=True, slots=True)
class Truth:
    """Float64 results on sampled places, and torch's own error there, output by output."""

    exact: Outputs
    naive: tuple[float, ...]


def truth_of(work: Work, given: Tensors) -> Truth:
    exact = work.exact(given)
    plain = work.plain(given)
    return Truth(exact, tuple(relative(p, e) for p, e in zip(plain, exact, strict=True)))


def relative(got: torch.Tensor, true: torch.Tensor) -> float:
    """The norm of the difference over that of the truth; infinite for NaN and infinities."""
    error = float(torch.linalg.norm(got.double() - true) / torch.linalg.norm(true))
    return error if math.isfinite(error) else math.inf


def verdict(
    program: Any, way: Way, work: Work, given: Tensors, truth: Truth, give_up: Callable[[], Any]
) -> tuple[str, float]:
    """What is wrong with an implementation (empty if nothing), and its greatest error."""
    outputs, said = _twice(program, way, given, give_up)
    buffers = list(program.role("output").values())
    worst = 0.0
    rows = zip(buffers, work.sample(tuple(outputs.values())), truth.exact, truth.naive, strict=True)
    for buffer, got, exact, naive in rows:
        error = relative(got, exact)
        worst = max(worst, error)
        bound = 2.0 * naive + FLOORS.get(buffer.dtype, 0.0)
        if not error <= bound:
            said.append(f"{buffer.name}: relative error {error:.1e}, torch's own {naive:.1e}")
    return "; ".join(said), worst


def _twice(
    program: Any, way: Way, given: Tensors, give_up: Callable[[], Any]
) -> tuple[Mapping[str, torch.Tensor], list[str]]:
    """The outputs, and which are not the same bytes twice or spill over their ends."""
    bands = {n: _Band(b) for n, b in program.role("output").items()}
    call = program.bind(given, out={n: b.tensor for n, b in bands.items()}, choices=way.choices)
    kept: dict[str, torch.Tensor] = {}
    said = []
    for byte in POISONS:
        for band in bands.values():
            band.raw.fill_(byte)
        for array in call.written(program):
            if not isinstance(array, torch.Tensor):
                poison(array, byte)
        torch.cuda.synchronize()
        first_run(partial(call.launch, torch.cuda.current_stream()), HANG_SECONDS, give_up)
        torch.cuda.synchronize()
        for name, band in bands.items():
            if band.spilled(byte):
                said.append(f"{name}: written beyond its ends")
            if name in kept and not torch.equal(kept[name], band.bytes):
                said.append(f"{name}: two runs differ, or not all of it is written")
            kept[name] = band.bytes.clone()
    return {n: b.tensor for n, b in bands.items()}, said


class _Band:
    """An output between two guard bands."""

    def __init__(self, buffer: Any) -> None:
        self.raw = torch.empty(buffer.nbytes + 2 * GUARD, dtype=torch.uint8, device=DEVICE)
        self.bytes = self.raw[GUARD : GUARD + buffer.nbytes]
        self.tensor = self.bytes.view(TYPES[buffer.dtype]).view(buffer.shape)

    def spilled(self, byte: int) -> bool:
        ends = (self.raw[:GUARD], self.raw[-GUARD:])
        return not all(bool((end == byte).all()) for end in ends)


def draw(program: Any, work: Work, seed: int) -> dict[str, torch.Tensor]:
    """Fresh inputs by name: as the work wants them, else as the bundle says."""
    made, generator = {}, torch.Generator(DEVICE).manual_seed(seed)
    for name, buffer in program.role("input").items():
        if name in program.head.defaults:
            value = program.head.defaults[name]
            made[name] = torch.tensor(value, device=DEVICE, dtype=TYPES[buffer.dtype])
            continue
        tensor = torch.empty(buffer.shape, dtype=TYPES[buffer.dtype], device=DEVICE)
        kind = _kind(work.scales.get(name), program.head.kinds.get(name, "normal"), buffer.dtype)
        flat = tensor.view(-1)
        for part in flat.split(1 << 26):  # bounds what the generator needs besides
            part.copy_(_random(kind, part.shape, generator))
        made[name] = tensor
    return made


def _kind(wanted: Any, recorded: str, dtype: str) -> tuple[str, float, float]:
    """normal, uniform or integers, and two parameters."""
    whole = dtype in ("i64", "i32", "i8", "bool")
    if isinstance(wanted, tuple):
        return ("integers" if whole else "uniform"), wanted[0], wanted[1]
    if wanted is not None:
        return "normal", float(wanted), 0.0
    word, *rest = recorded.split(":")
    if word in ("integers", "ends"):
        return "integers", float(rest[0]), float(rest[1])
    if word == "uniform":
        return "uniform", float(rest[0]), float(rest[1])
    if whole:
        return "integers", 0.0, 2.0
    return "normal", float(rest[0]) if word == "normal" and rest else 1.0, 0.0


def _random(kind: tuple[str, float, float], shape: Any, generator: Any) -> torch.Tensor:
    word, first, second = kind
    if word == "integers":
        return torch.randint(
            int(first), max(int(first) + 1, int(second)), shape, device=DEVICE, generator=generator
        )
    if word == "uniform":
        drawn = torch.rand(shape, device=DEVICE, generator=generator)
        return first + (second - first) * drawn
    return torch.randn(shape, device=DEVICE, generator=generator) * first
