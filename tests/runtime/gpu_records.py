"""Records of the peer harness whose figures are given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu import store
from gpu.case import Case
from gpu.groups import cases

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
__all__ = ["BENCH", "ROOT", "record", "square"]


def record(case: Case, peers: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A record whose ratios are given."""
    timed = {"ms": 1.0, "low": 1.0, "high": 1.0, "spread": 0.0}
    found = {n: timed | {"ratio": r, "ratio_low": r, "ratio_high": r} for n, r in peers.items()}
    return store.head(case) | {
        "correct": True, "nautile": timed | {"kernels": 1}, "variants": {}, "peers": found,
        "skipped": {}, "relative_error": 1e-3, "naive_error": 2e-3, "tflops": 500.0,
        "of_copy": 0.9, "gpu": "G", "date": "2026-01-02", "versions": {"torch": "2"}, **changes,
    }  # fmt: skip


def square(program: str, tokens: int, group: str = "attention", width: int = 128) -> Case:
    """The case of a group at some length."""
    found = [c for c in cases([group]) if c.program == program and c.sizes["S"] == tokens]
    (case,) = [c for c in found if c.sizes["D"] == width]
    return case
