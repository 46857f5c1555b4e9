"""Launches that follow one another closely: which kernels tell, and which wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautile.codegen.compile import compile_kernel
from nautile.codegen.overlapping import overlapping
from nautile.codegen.source import CudaKernel
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel, Prediction
from nautile.terms import Axis

TEXT = """extern "C" __global__ void __launch_bounds__(32) k(float* __restrict__ x) {
  x[0] = 1.f;
}
"""
CUDA = CudaKernel("k", TEXT, (1, 1, 1), 32, 0, ("x",))
NONE = Prediction(0.0, "dram", 0, 0, 0, 0, 0, 0, 0, 0)
PLAIN = Kernel("k", (), NONE)
STATES = replace(PLAIN, split={Axis("s", 0, 64): 4})
MERGES = replace(PLAIN, follows=True)


def test_a_kernel_that_makes_states_lets_the_next_one_begin() -> None:
    made = overlapping(STATES, CUDA)
    body = made.text.split("{\n", 1)[1]
    assert (
        body.splitlines()[1].strip().startswith('asm volatile("griddepcontrol.launch_dependents;')
    )
    assert not made.overlaps


def test_the_kernel_that_merges_them_waits_before_anything_else() -> None:
    made = overlapping(MERGES, CUDA)
    body = made.text.split("{\n", 1)[1]
    assert body.splitlines()[1].strip().startswith('asm volatile("griddepcontrol.wait;')
    assert made.overlaps


def test_others_stay_as_they_are() -> None:
    waits = replace(CUDA, overlaps=True)
    assert overlapping(PLAIN, CUDA) == CUDA
    assert overlapping(replace(STATES, closing=True), CUDA) == CUDA
    assert overlapping(MERGES, waits) == waits
    zeroed = replace(CUDA, zeroed=("x",))
    assert overlapping(MERGES, zeroed) == zeroed


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_both_compile_where_launches_overlap_and_where_not(architecture: str) -> None:
    for kernel in (STATES, MERGES):
        assert compile_kernel(overlapping(kernel, CUDA), architecture).cubin


def test_a_kernel_without_a_head_is_refused() -> None:
    with pytest.raises(LoweringError, match="head"):
        overlapping(MERGES, replace(CUDA, text="// nothing"))
