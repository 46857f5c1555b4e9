"""Launches that begin while the one before them on the stream drains.

`cuLaunchKernelEx` with the attribute of programmatic stream serialization (CUDA driver API 11.8,
"Execution Control"; sm_90), called through ctypes: CuPy's launcher takes no attributes. Only a
kernel that waits for its predecessors on the device itself may be launched so; launched in another
way, it finds them done.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from nautile.errors import LaunchError

__all__ = ["overlapping"]

_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an identifier, and 64 bytes at offset 8 that hold its value."""

    _fields_ = (
        ("identifier", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def overlapping(
    kernel: Any, grid: Sequence[int], block: Sequence[int], shared: int, pointers: Sequence[int]
) -> Callable[[int], None] | None:
    """The launch of a CuPy kernel on device pointers, as a function of the stream's handle. What it
    needs is laid out now, so that a launch is one call of the driver. None where the driver does
    not know such launches, or CuPy does not tell the kernel's handle: other launches do as well."""
    launch, function = _launcher(), getattr(getattr(kernel, "kernel", None), "ptr", None)
    if launch is None or function is None:
        return None
    values = [ctypes.c_uint64(p) for p in pointers]
    arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
    attribute = _Attribute(_SERIALIZATION, b"", 1, b"")
    handle = ctypes.c_void_p(function)
    made = _Configuration((*grid,), (*block,), shared, None, ctypes.pointer(attribute), 1)

    def call(stream: int, kept: Any = (values, attribute, kernel)) -> None:
        made.stream = stream
        status = launch(ctypes.byref(made), handle, arguments, None)
        if status != 0:
            raise LaunchError(f"the driver refused a launch (CUresult {status})", code="launch")

    return call


@cache
def _launcher() -> Any:
    """The driver's function; None where there is none."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        launch = library.cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    launch.restype = ctypes.c_int
    return launch
