"""Emission costs little beside compilation, and the benchmark of both counts what it says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import emission
from emission import Kind, many, measured, spent
from gpu.case import PROGRAMS

from nautile.worker import Worker

pytest.importorskip("cuda.bindings.nvrtc")
SIZES = {"M": 4096, "N": 2048, "K": 1024}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def test_seconds_of_processor_are_those_of_work_and_of_children() -> None:
    _, idle = spent(lambda: time.sleep(0.2))
    assert idle.wall >= 0.2
    assert idle.cpu < 0.1
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    _, busy = spent(lambda: subprocess.run([sys.executable, "-c", burn], check=True))
    assert busy.cpu > 0.2  # the child counts more finely than the system does


@pytest.mark.parametrize("target", ["h200", "a100"])
def test_emission_takes_less_than_compilation(target: str, worker: Worker) -> None:
    kind = Kind("product", "products", "gemm", SIZES, target)
    measured(kind, worker)  # imports and caches
    row = measured(kind, worker)
    compiled = sum(s["cpu_s"] for s in row["compile"])
    assert ("sm_90a" in row["schedule"]) == (target == "h200")
    assert 0 < row["emit"]["cpu_s"] < compiled
    assert row["whole"]["cpu_s"] == pytest.approx(row["emit"]["cpu_s"] + compiled, abs=2e-3)


def test_another_schedule_costs_no_more_than_the_first(worker: Worker) -> None:
    kind = Kind("product", "products", "gemm", SIZES, "a100")
    one, four = (many(kind, worker, count, threads=2) for count in (1, 4))
    assert (one["kernels"], four["kernels"]) == (1, 4)
    assert four["whole"]["cpu_s"] < 4 * 3 * one["whole"]["cpu_s"]


def test_the_kinds_are_programs_of_the_harness() -> None:
    names = [k.name for k in emission.KINDS]
    assert len(set(names)) == len(names)
    assert sum(k.many for k in emission.KINDS) == 2
    for kind in emission.KINDS:
        assert f"def {kind.program}(" in (PROGRAMS / f"{kind.file}.nau").read_text()
