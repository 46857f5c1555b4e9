"""Launches that follow one another closely: programmatic dependent launch (sm_90 and later).

A kernel that makes states tells, where it begins, that the next one may be launched; that one waits
on the device, where it begins, until what the first one has stored is there. Its blocks are then on
the multiprocessors when the first one ends. Elsewhere both lines do nothing. (PTX ISA,
"griddepcontrol".)
"""

from __future__ import annotations

import re
from dataclasses import replace

from nautile.codegen.source import CudaKernel
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel

__all__ = ["overlapping"]


def overlapping(kernel: Kernel, cuda: CudaKernel) -> CudaKernel:
    """The CUDA of a kernel with what its place among the launches allows."""
    if kernel.follows and not cuda.zeroed and not cuda.overlaps:
        return replace(_begun(cuda, "wait"), overlaps=True)
    if kernel.split and not kernel.closing:
        return _begun(cuda, "launch_dependents")
    return cuda


def _begun(cuda: CudaKernel, instruction: str) -> CudaKernel:
    """With an instruction at the begin of the kernel."""
    head = re.search(rf'extern "C" __global__ [^;{{]*?\b{cuda.name}\([^{{]*\{{\n', cuda.text)
    if head is None:
        raise LoweringError(f"{cuda.name}: the kernel's head was not recognised")
    lines = (
        "#if __CUDA_ARCH__ >= 900\n"
        f'  asm volatile("griddepcontrol.{instruction};" ::: "memory");\n'
        "#endif\n"
    )
    return replace(cuda, text=cuda.text[: head.end()] + lines + cuda.text[head.end() :])
