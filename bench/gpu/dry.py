"""A machine without a GPU, for tests and for trying a command: every step but the measurement.

Bundles are opened and their implementations listed where they were built; times are drawn from the
case's name, and every record says `dry run` where the GPU's name would stand. Such records are
refused where results are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from nautile.bundle import load_bundle

from .case import Case
from .figures import ratio, summary
from .options import Options
from .ours import OURS, schedule, ways
from .store import Record, head
from .work import flops

__all__ = ["DRY", "Dry"]

DRY = "dry run"
PEERS: Mapping[str, tuple[str, ...]] = {
    "attention": ("cudnn", "flash_attention"),
    "products": ("cublas", "eager"),
    "rows": ("eager",),
}


class Dry:
    """Stands where cuda.Cuda would."""

    def stamp(self) -> Record:
        return {"gpu": DRY, "date": date.today().isoformat(), "versions": {}}

    def dead(self) -> bool:
        return False

    def clean(self) -> None:
        """Nothing is held."""

    def measure(
        self, case: Case, options: Options, until: float, give_up: Callable[[], Any]
    ) -> Record:
        """A record of drawn times, of the shape that a GPU's would have."""
        names = [OURS, *(PEERS.get(case.file, ("eager",)) if options.peers else ())]
        rounds = {n: _drawn(f"{case.name}/{n}", options.rounds) for n in names}
        ours = summary(rounds[OURS])
        work = flops(case)
        return head(case) | {
            "correct": True,
            "nautile": ours | {"kernels": 1, "schedule": _schedules(case)},
            "variants": {},
            "peers": {n: _beside(rounds, n) for n in names[1:]},
            "skipped": {},
            "relative_error": 0.0,
            "naive_error": 0.0,
            "tflops": work / ours["ms"] / 1e9 if work else None,
            "of_copy": _unit(case.name),
        }


def _beside(rounds: Mapping[str, list[float]], name: str) -> Record:
    return summary(rounds[name]) | ratio(rounds[OURS], rounds[name])


def _unit(text: str, number: int = 0) -> float:
    """A number in [0, 1) that belongs to a text."""
    digest = hashlib.blake2b(f"{text}/{number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


def _drawn(text: str, rounds: int) -> list[float]:
    middle = 1.0 + 0.5 * _unit(text)
    return [middle * (1.0 + 0.02 * _unit(text, n + 1)) for n in range(rounds)]


def _schedules(case: Case) -> str:
    """The schedules of the bundle's implementations; empty where it was not built."""
    if not (case.folder / "manifest.json").exists():
        return ""
    manifest = load_bundle(case.folder).manifest
    first = schedule(manifest.launches, [0] * len(manifest.launches))
    return f"{first} ({len(ways(manifest))} ways)"
