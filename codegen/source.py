"""Generated CUDA C++: what an emitter hands to the compiler, the bundle and the launcher.

Extents are compiled in, so a launch needs the pointers of its buffers and nothing else. The text is
self-contained (device headers are inlined, nothing is included), so it also works when a person
pastes it into `cupy.RawKernel` with the printed options.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CudaKernel"]


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """One `extern "C" __global__` function.

    `grid` and `threads` are the launch shape, `shared_bytes` the dynamic shared memory; `buffers`
    the names of the tensors whose device pointers are the arguments, in order (inputs `const`).
    `zeroed` names buffers that must hold zeros before the launch; `options` are extra NVRTC options
    besides the architecture and the language standard; `architecture` is the lowest that it needs.
    """

    name: str
    text: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    buffers: tuple[str, ...]
    options: tuple[str, ...] = ("--std=c++17",)
    architecture: str = "sm_80"
    zeroed: tuple[str, ...] = ()
