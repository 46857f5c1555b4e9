"""A peer whose graph gives another result in the race than when it was checked has no figure. Peers
are torch functions on the CPU here, so this runs where torch is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))


def replay(*results: Any) -> Any:
    return SimpleNamespace(results=results)


def test_what_was_spoiled_in_the_race_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    from gpu.check import Truth
    from gpu.cuda import _spoiled
    from gpu.peers import Work

    exact = torch.arange(1.0, 9.0, dtype=torch.float64)
    truth = Truth((exact,), (1e-3,))
    work = Work(lambda given: (exact,), lambda given: (exact,), ())
    peers = {
        "right": replay((exact.float(),), (exact.float() * 2,)),  # the first set's is the truth's
        "spoiled": replay((exact.float() * 1.01,)),
        "nothing": replay((torch.full((8,), torch.nan),)),
        "launched": replay(),
    }
    found = _spoiled(peers, work, truth)
    assert set(found) == {"spoiled", "nothing"}
    assert found["spoiled"] == "in the race its relative error was 1.0e-02"
