"""Does the device compute what the source computes?

The bundle holds, for each case, how inputs are drawn and the values of sampled output elements: a
float64 reference, and the source's own naive evaluation, which sets how close is close enough
(judge.py). Outputs and intermediates are filled with NaN patterns before the program runs, and with
another pattern before a second run: an element that nobody wrote, and a race, differ between them.

```
Reference ::= {"version": 1, "seed", "cases": [{"case", "kinds": {input: kind}, "outputs":
                [{"buffer", "dtype", "positions": [[..] an axis], "reference", "naive", "floor"}]}]
               [, "drawn_as": {input: name}]}
```

Samples depend on the names of tensors. Where a bundle was made of one whose tensors are called
otherwise, `drawn_as` gives the names that its samples are drawn by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nautile import samples
from nautile.bundle.manifest import Buffer
from nautile.errors import BundleError, LaunchError
from nautile.judge import Verdict, from_json, judge
from nautile.runtime.device import cupy
from nautile.runtime.draw import POISONS, inputs, kinds_of, poison
from nautile.runtime.launch import Call, Program

__all__ = ["check", "drawn_as", "twice", "verdicts"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Sampled:
    """What one output must hold over a grid of positions."""

    buffer: Buffer
    positions: tuple[tuple[int, ...], ...]
    reference: Any
    naive: Any
    floor: float


def check(program: Program) -> dict[str, Any]:
    """Run every case of the bundle's reference: {"verdict": "pass" or "fail", "checks": [..],
    "max_relative_error", "samples"}. LaunchError where the bundle holds no reference."""
    if program.head.expected is None:
        raise LaunchError(f"{program.name}: the bundle holds no reference", code="no-reference")
    reference = program.bundle.json(program.head.expected)
    cases, called = _cases(program, reference), drawn_as(reference)
    checks = [c for case in cases for c in _check_case(program, called, *case)]
    return {
        "verdict": "pass" if checks and all(c["passed"] for c in checks) else "fail",
        "checks": checks,
        "max_relative_error": max((c["max_relative_error"] for c in checks), default=0.0),
        "samples": sum(c["samples"] for c in checks),
    }


def verdicts(
    program: Program, run: Callable[[Mapping[str, Any]], Call]
) -> Iterator[tuple[str, Verdict]]:
    """For each case of the bundle's reference, what is to be said of each output after `run` has
    launched the program on the case's inputs. LaunchError where the bundle holds no reference."""
    if program.head.expected is None:
        raise LaunchError(f"{program.name}: the bundle holds no reference", code="no-reference")
    reference = program.bundle.json(program.head.expected)
    for name, seed, kinds, outputs in _cases(program, reference):
        call = run(inputs(program, seed, kinds, drawn_as(reference)))
        for wanted in outputs:
            verdict = _judge(call.outputs[wanted.buffer.name], wanted)
            yield f"{name}: {wanted.buffer.name}", verdict


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


def drawn_as(reference: Any) -> dict[str, str]:
    """The names by which inputs are drawn, where they are not their own. BundleError for a
    reference that is damaged."""
    found = reference.get("drawn_as", {}) if isinstance(reference, dict) else {}
    if not isinstance(found, dict) or not all(isinstance(n, str) for n in found.values()):
        raise BundleError("the reference is damaged: drawn_as is no table of names")
    return found


def _check_case(
    program: Program,
    called: Mapping[str, str],
    name: str,
    seed: int,
    kinds: Mapping[str, str],
    outputs: list[_Sampled],
) -> Iterator[dict[str, Any]]:
    call, differing = twice(program, inputs(program, seed, kinds, called))
    for buffer, count in differing.items():
        detail = f"{count} bytes differ between two runs: unwritten, or a race" if count else ""
        yield _row(f"{name}: {buffer} is written", Verdict(count == 0, 0.0, 0.0, 0, detail))
    for wanted in outputs:
        verdict = _judge(call.outputs[wanted.buffer.name], wanted)
        yield _row(f"{name}: {wanted.buffer.name} is right", verdict)


def _judge(array: Any, wanted: _Sampled) -> Verdict:
    xp = cupy()
    grid = xp.ix_(*(xp.asarray(np.array(p, dtype=np.int64)) for p in wanted.positions))
    found = xp.asnumpy(array[grid] if wanted.positions else array)
    values = samples.decode(found, wanted.buffer.dtype)
    return judge(values, wanted.reference, wanted.naive, wanted.buffer.dtype, floor=wanted.floor)


def _row(name: str, verdict: Verdict) -> dict[str, Any]:
    return {"name": name, **asdict(verdict)}


def _cases(
    program: Program, reference: Any
) -> list[tuple[str, int, Mapping[str, str], list[_Sampled]]]:
    """The cases of a reference. BundleError for anything that is none."""
    try:
        if reference["version"] != _VERSION:
            raise BundleError(
                f"{program.name}: reference version {reference['version']!r} is unknown",
                code="bundle-version",
            )
        return [
            (
                str(case["case"]),
                int(reference["seed"]),
                kinds_of(program, {str(n): str(k) for n, k in case["kinds"].items()}),
                [_sampled(program, row) for row in case["outputs"]],
            )
            for case in reference["cases"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BundleError(f"{program.name}: the reference is damaged: {error!r}") from error


def _sampled(program: Program, row: Mapping[str, Any]) -> _Sampled:
    buffer = program.role("output")[row["buffer"]]
    positions = tuple(tuple(int(i) for i in axis) for axis in row["positions"])
    inside = len(positions) == len(buffer.shape) and all(
        0 <= i < n for axis, n in zip(positions, buffer.shape, strict=True) for i in axis
    )
    shape = tuple(len(axis) for axis in positions)
    if not inside or row["dtype"] != buffer.dtype or math.prod(shape) == 0:
        raise ValueError(f"positions or type of {buffer.name} do not fit")
    reference, naive = (from_json(row[key], shape) for key in ("reference", "naive"))
    return _Sampled(buffer, positions, reference, naive, float(row["floor"]))
