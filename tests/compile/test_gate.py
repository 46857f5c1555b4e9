"""The gate against logs that ptxas really wrote, and against kernels that break one limit each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautile.codegen import gate
from nautile.codegen.gate import Report
from nautile.codegen.source import CudaKernel, Expected
from nautile.errors import CompileError

LOG = """f.cu(2): warning #177-D: variable "unused" was declared but never referenced
  extern "C" __global__ void f(const float* x, float* y) { int unused; }

ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due
ptxas info    : Compiling entry function 'f' for 'sm_90'
ptxas info    : Function properties for f
ptxas         .     800 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 800 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compile time = 160.211 ms
"""
CLEAN = Report(registers=40, spill_stores=0, spill_loads=0, stack=0, shared=400)
KERNEL = CudaKernel("f", "", (4, 1, 1), 256, 1024, ("x", "y"))


def test_reads_every_figure() -> None:
    report = gate.read(LOG)
    figures = (report.registers, report.spill_stores, report.spill_loads, report.stack)
    assert figures == (40, 12, 16, 800)
    assert report.shared == 400
    assert len(report.warnings) == 2


def test_a_log_without_report_is_refused() -> None:
    with pytest.raises(CompileError, match="no ptxas report"):
        gate.read("nothing here")


def test_a_clean_kernel_passes() -> None:
    gate.check(KERNEL, "sm_90", CLEAN)


@pytest.mark.parametrize(
    ("kernel", "report", "reason"),
    [
        (KERNEL, replace(CLEAN, spill_stores=4), "spills"),
        (KERNEL, replace(CLEAN, spill_loads=4), "spills"),
        (KERNEL, replace(CLEAN, warnings=("(C7512) wgmma serialized",)), "C7512"),
        (KERNEL, replace(CLEAN, warnings=("(C7508) wgmma serialized",)), "C7508"),
        (replace(KERNEL, shared_bytes=227 * 1024 - 399), CLEAN, "shared memory"),
        (replace(KERNEL, threads=1025), CLEAN, "1025 threads"),
        (replace(KERNEL, threads=0), CLEAN, "0 threads"),
        (replace(KERNEL, grid=(1, 65536, 1)), CLEAN, "grid"),
        (replace(KERNEL, grid=(0, 1, 1)), CLEAN, "grid"),
        (replace(KERNEL, threads=1024), replace(CLEAN, registers=65), "registers"),
        (replace(KERNEL, expected=Expected(0, registers=41)), CLEAN, "would wait for ever"),
    ],
)
def test_what_must_not_be_launched(kernel: CudaKernel, report: Report, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as caught:
        gate.check(kernel, "sm_90", report)
    assert "kernel f for sm_90" in str(caught.value)
    assert caught.value.code == "gate"


def test_the_last_byte_of_shared_memory_is_allowed() -> None:
    gate.check(replace(KERNEL, shared_bytes=227 * 1024 - 400), "sm_90", CLEAN)
    with pytest.raises(CompileError, match="shared memory"):
        gate.check(replace(KERNEL, shared_bytes=227 * 1024 - 400), "sm_120", CLEAN)


@pytest.mark.parametrize("name", ["sm_9", "compute_90", "90", "sm_90b", "", "sm_90 -I/"])
def test_what_is_no_architecture(name: str) -> None:
    with pytest.raises(CompileError, match="no architecture"):
        gate.architecture_number(name)
