"""Generated CUDA C++: what an emitter hands to the compiler, the bundle and the launcher.

Extents are compiled in, so a launch needs its tensor maps, the pointers of its buffers and nothing
else. The text is self-contained (device headers are inlined, nothing is included), so it also works
when a person pastes it into `cupy.RawKernel` with the printed options.

```
parameters ::= maps (128 bytes each, by value), pointers of `buffers`,
               a pointer to `counters` words of i32 if there are any
```
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CudaKernel", "Expected", "TensorMap"]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How the copy engine (TMA) sees a buffer: a view of it with its own axes, the fastest first.

    `extents` and `box` count elements of `dtype` along each axis, `strides` are the bytes between
    neighbours along each axis but the first, which is contiguous. `swizzle` is 0, 32, 64 or 128
    bytes. `offset` is the byte at which the view starts in the buffer. A box that leaves the
    extents is filled with zeros when it is read, and is cut when it is written. Limits are those of
    cuTensorMapEncodeTiled (CUDA driver API): 1 to 5 axes, boxes of at most 256 elements an axis,
    strides and offset in multiples of 16 bytes, the box's first axis at most `swizzle` bytes where
    it is swizzled.
    """

    buffer: str
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a kernel's machine code must show, else the compiler's gate refuses it: at least
    `products` warpgroup products in all, and in its main loops, those that hold most of
    them, at most `moves` of descriptors from ordinary to uniform registers, and at least
    `overlapped` pointwise instructions between a wait that leaves products in flight and the next
    wait. No main loop may wait for each of its products before the next. Where roles exchange
    registers, a block is launched with `registers` a thread, at least: what the greedy wait for
    would else never come."""

    products: int
    moves: int = 4
    overlapped: int = 0
    registers: int = 0


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """One `extern "C" __global__` function.

    `grid` and `threads` are the launch shape, `shared_bytes` the dynamic shared memory; `buffers`
    the names of the tensors whose device pointers are the arguments, in order (inputs `const`).
    `maps` are the tensor maps that come before them, `counters` the number of words of i32 after
    them: zero before the first launch, and left so by every launch.
    `zeroed` names buffers that must hold zeros before the launch; `options` are extra NVRTC options
    besides the architecture and the language standard; `architecture` is the lowest that it needs.
    `expected` is what its machine code must show. A kernel that `overlaps` waits on the device
    (griddepcontrol.wait) before it touches memory, so that the launcher may start it while the
    kernel before it on the stream drains.
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
    maps: tuple[TensorMap, ...] = ()
    counters: int = 0
    expected: Expected | None = None
    overlaps: bool = False
