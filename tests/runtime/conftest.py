"""A bundle of two kernels, written by the real writer, and a machine to launch it on."""

from __future__ import annotations

import sys
from pathlib import Path

import fake_cupy
import numpy as np
import pytest

from nautile.bundle import Entry, write_entries
from nautile.codegen.compile import Compiled
from nautile.codegen.gate import Report
from nautile.codegen.source import CudaKernel
from nautile.runtime import timing
from nautile.terms import Buffer

ROWS, COLUMNS = 6, 40
X = Buffer("x", (ROWS, COLUMNS), "f32")
W = Buffer("w", (COLUMNS,), "bf16")
EPS = Buffer("eps", (), "f32")
Y = Buffer("y", (ROWS, COLUMNS), "f32")
H = Buffer("h", (ROWS, COLUMNS), "f32")
REPORT = Report(16, 0, 0, 0, 0)


def compiled(architecture: str, cubin: bytes) -> Compiled:
    return Compiled(cubin, REPORT, architecture, (f"-arch={architecture}",))


def entry() -> Entry:
    """h = x * w, then y = h + eps, as two kernels."""
    first = CudaKernel(
        "scale", "// h = x * w\n", (ROWS, 1, 1), 64, 50_000, ("x", "w", "h"), zeroed=("h",)
    )
    second = CudaKernel("shift", "// y = h + eps\n", (1, 2, 1), 128, 0, ("h", "eps", "y"))
    cubins = {"sm_80": compiled("sm_80", b"\x7fELF80"), "sm_90": compiled("sm_90", b"\x7fELF90")}
    return Entry(
        name="example", key="0" * 32, inputs=(X, W, EPS), outputs=(Y,), intermediates=(H,),
        kernels=((first, cubins), (second, cubins)), defaults={"eps": 0.5},
        certificate={"verdict": "pass", "checks": [{"name": "c"}], "max_relative_error": 1e-7,
                     "samples": 5},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_entries(tmp_path / "bundle", [entry()], target="h200")


def _scale(x: int, w: int, h: int) -> None:
    bits = fake_cupy.at(w, (COLUMNS,), "uint16").astype(np.uint32) << 16
    left = fake_cupy.at(x, X.shape, "float32")
    fake_cupy.at(h, H.shape, "float32")[...] += left * bits.view(np.float32)


def _shift(h: int, eps: int, y: int) -> None:
    total = fake_cupy.at(h, H.shape, "float32") + fake_cupy.at(eps, (), "float32")
    fake_cupy.at(y, Y.shape, "float32")[...] = total


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> fake_cupy.Machine:
    made = fake_cupy.Machine()
    made.kernels |= {"scale": _scale, "shift": _shift}
    monkeypatch.setitem(sys.modules, "cupy", made.module())
    monkeypatch.setattr(timing, "_COPY_BYTES", 1 << 16)
    monkeypatch.setattr(timing, "_WARM_SECONDS", 0.0)
    return made
