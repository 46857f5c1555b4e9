"""Arguments of a launch: what an array on a device says of itself, and why it is refused.

An array is a CuPy array, a torch tensor (known by its `data_ptr`; torch itself is not imported),
anything with `__cuda_array_interface__`, or anything that CuPy takes through DLPack. bf16 and fp8
travel as their own types (ml_dtypes, torch) or as bit patterns in uint16 and uint8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nautile.bundle.manifest import Buffer
from nautile.runtime.device import cupy

__all__ = ["ALIGNMENT", "View", "is_scalar", "problems", "view"]

ALIGNMENT = 16  # bytes: the widest load of generated kernels

_ACCEPTED: Mapping[str, tuple[str, ...]] = {
    "f64": ("float64",),
    "f32": ("float32",),
    "tf32": ("float32",),
    "bf16": ("bfloat16", "uint16"),
    "f16": ("float16",),
    "f8e4m3": ("float8_e4m3fn", "uint8"),
    "f8e5m2": ("float8_e5m2", "uint8"),
    "i64": ("int64",),
    "i32": ("int32",),
    "i8": ("int8",),
    "bool": ("bool",),
}


@dataclass(frozen=True, slots=True)
class View:
    """An array's address, shape, NumPy name of its type, device (None: host memory) and whether it
    is row-major without gaps; `owner` keeps the memory alive."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool
    device: int | None
    owner: Any

    def span(self, buffer: Buffer) -> tuple[int, int]:
        """First byte and the byte after the last."""
        return self.pointer, self.pointer + buffer.nbytes


def is_scalar(value: Any) -> bool:
    """True for numbers that can be passed for an input without axes."""
    return isinstance(value, (bool, int, float, np.generic)) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )


def view(value: Any) -> View | None:
    """What an array says of itself; None if it is no array."""
    if isinstance(value, cupy().ndarray):
        flag = bool(value.flags.c_contiguous)
        shape = tuple(value.shape)
        return View(value.data.ptr, shape, str(value.dtype), flag, value.device.id, value)
    if isinstance(value, np.ndarray):
        return View(0, value.shape, value.dtype.name, value.flags.c_contiguous, None, value)
    if hasattr(value, "data_ptr") and hasattr(value, "is_contiguous"):
        return _torch(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _interface(value)
    return _dlpack(value) if hasattr(value, "__dlpack__") else None


def _torch(tensor: Any) -> View:
    where = tensor.device
    device = None if where.type != "cuda" else int(where.index or 0)
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(int(n) for n in tensor.shape)
    return View(tensor.data_ptr(), shape, dtype, bool(tensor.is_contiguous()), device, tensor)


def _interface(value: Any) -> View:
    facts = value.__cuda_array_interface__
    shape, dtype = tuple(facts["shape"]), np.dtype(facts["typestr"])
    steps = facts.get("strides")
    pointer = int(facts["data"][0])
    flag = steps is None or _row_major(shape, tuple(steps), dtype.itemsize)
    attributes = cupy().cuda.runtime.pointerGetAttributes(pointer) if pointer else None
    return View(pointer, shape, dtype.name, flag, getattr(attributes, "device", 0), value)


def _dlpack(value: Any) -> View | None:
    try:
        return view(cupy().from_dlpack(value))
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None


def _row_major(shape: tuple[int, ...], steps: tuple[int, ...], item: int) -> bool:
    expected = item
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True


def problems(buffer: Buffer, found: View | None, value: Any, device: int) -> list[str]:
    """Why `value` cannot stand for `buffer` on `device`; empty if it can."""
    who = f"{buffer.role} '{buffer.name}'"
    if found is None:
        return [f"{who} is a {type(value).__name__}; expected an array in device memory"]
    said = []
    if found.device is None:
        said.append(f"{who} lies in host memory; copy it to the device first (cupy.asarray)")
    elif found.device != device:
        said.append(f"{who} lies on device {found.device}; the other arrays are on {device}")
    if found.dtype not in _ACCEPTED[buffer.dtype]:
        wanted = " or ".join(_ACCEPTED[buffer.dtype])
        said.append(f"{who} has type {found.dtype}; expected {wanted} for {buffer.dtype}")
    if found.shape != buffer.shape and not (buffer.shape == () and found.shape == (1,)):
        said.append(f"{who} has shape {found.shape}; expected {buffer.shape}")
    elif not found.contiguous:
        said.append(f"{who} is not contiguous in row-major order; pass a contiguous copy")
    if found.device is not None and found.pointer % ALIGNMENT:
        said.append(f"{who} starts at an address that is no multiple of {ALIGNMENT} bytes")
    return said
