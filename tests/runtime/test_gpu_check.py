"""What the peer harness finds wrong with a kernel. Kernels are torch functions on the CPU here, so
these tests run where torch is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

Fill = Callable[[Any, Any], None]  # (input, output with what lies around it)


class Program:
    """y = 2 x, computed by a function of the input and the output's memory."""

    def __init__(self, fill: Fill) -> None:
        self.fill = fill
        self.head = SimpleNamespace(defaults={}, kinds={"x": "normal"})
        buffer = SimpleNamespace(name="y", shape=(4, 64), dtype="f32", nbytes=1024, role="output")
        self.buffers = {"x": SimpleNamespace(**{**vars(buffer), "name": "x", "role": "input"})}
        self.buffers["y"] = buffer

    def role(self, role: str) -> dict[str, Any]:
        return {n: b for n, b in self.buffers.items() if b.role == role}

    def bind(self, given: Mapping[str, Any], out: Mapping[str, Any], choices: Any) -> Any:
        return SimpleNamespace(
            written=lambda program: list(out.values()),
            launch=lambda stream: self.fill(given["x"], out["y"]),
        )


def right(x: Any, y: Any) -> None:
    y.copy_(2 * x)


def off(x: Any, y: Any) -> None:
    y.copy_(2.001 * x)


def unwritten(x: Any, y: Any) -> None:
    y[:3].copy_(2 * x[:3])


def racing(x: Any, y: Any) -> None:
    y.copy_(2 * x * (1 + 1e-7 * torch.rand(())))


def spilling(x: Any, y: Any) -> None:
    right(x, y)
    torch.as_strided(y, (1,), (1,), y.storage_offset() + y.numel()).fill_(1.0)


def nothing(x: Any, y: Any) -> None:
    y.fill_(torch.nan)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    from gpu import check

    monkeypatch.setattr(check, "DEVICE", "cpu")
    monkeypatch.setattr(check, "first_run", lambda action, limit, give_up: action())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    return check


def verdict(check: Any, fill: Fill) -> tuple[str, float]:
    from gpu.ours import Way
    from gpu.peers import Work

    program = Program(fill)
    work = Work(lambda g: (2 * g["x"].double(),), lambda g: (2 * g["x"],), ())
    given = check.draw(program, work, 3)
    found: tuple[str, float] = check.verdict(
        program, Way("nautile", {}), work, given, check.truth_of(work, given), lambda: None
    )
    return found


def test_a_right_kernel_is_right(check: Any) -> None:
    assert verdict(check, right) == ("", 0.0)


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        (off, "relative error 5.0e-04"),
        (unwritten, "two runs differ, or not all of it is written"),
        (racing, "two runs differ"),
        (spilling, "written beyond its ends"),
        (nothing, "relative error inf"),
    ],
)
def test_what_is_wrong_is_said(check: Any, fill: Fill, said: str) -> None:
    assert said in verdict(check, fill)[0]


def test_inputs_are_drawn_as_the_work_wants_them(check: Any) -> None:
    from gpu.peers import Work

    program = Program(right)
    wide = check.draw(program, Work(tuple, tuple, (), scales={"x": 100.0}), 1)["x"]
    assert 50 < float(wide.std()) < 200
    flat = check.draw(program, Work(tuple, tuple, (), scales={"x": (2.0, 3.0)}), 1)["x"]
    assert 2.0 <= float(flat.min()) < float(flat.max()) < 3.0
    program.buffers["x"].dtype = "i32"
    whole = check.draw(program, Work(tuple, tuple, (), scales={"x": (1, 4)}), 1)["x"]
    assert set(np.unique(whole.numpy())) == {1, 2, 3}
    other = check.draw(program, Work(tuple, tuple, (), scales={"x": (1, 4)}), 2)["x"]
    assert not torch.equal(whole, other)
