"""What runs while Nsight Compute counts: the third launch of everything, and its kernels' names."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_cupy import Machine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import counters


def test_the_third_launch_is_counted(
    folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    at: dict[str, int] = {}
    driver = SimpleNamespace(
        cuProfilerStart=lambda: at.setdefault("start", len(machine.launches)),
        cuProfilerStop=lambda: at.setdefault("stop", len(machine.launches)),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    case = SimpleNamespace(folder=folder, program="example", name="one")
    counters._child([counters.Wanted(case)])
    assert at == {"start": 4, "stop": 6}
    assert "one: scale shift" in capsys.readouterr().out.splitlines()
