"""Tensor maps for the copy engine (TMA): encoded by the driver, passed to a kernel by value.

`cuTensorMapEncodeTiled` is a function of the driver that CuPy runs on, called here through ctypes
(CUDA driver API, "Tensor Map Object Management"). It computes on the host and touches no memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from nautile.codegen.source import TensorMap
from nautile.errors import LaunchError

__all__ = ["tensor_map"]

BYTES = 128
_ALIGNMENT = 64  # of the map in memory; 16 of the address that it describes

# CUtensorMapDataType. tf32 rounds as it copies; types that the engine does not know go as bytes.
_TYPES: Mapping[str, int] = {
    "f64": 8, "f32": 7, "tf32": 11, "bf16": 9, "f16": 6, "f8e4m3": 0, "f8e5m2": 0,
    "i64": 5, "i32": 3, "i8": 0, "bool": 0,
}  # fmt: skip
_SWIZZLES: Mapping[int, int] = {0: 0, 32: 1, 64: 2, 128: 3}
_PLAIN, _PROMOTE_256, _ZEROS = 0, 3, 0  # no interleave; lines of 256 bytes in L2; zeros outside


def tensor_map(view: TensorMap, pointer: int) -> Any:
    """The map of a buffer that starts at address `pointer`, as one NumPy value of 128 bytes, which
    CuPy passes by value. LaunchError where the driver has no tensor maps, or refuses this one."""
    start = pointer + view.offset
    if start % 16:
        raise LaunchError(
            f"'{view.buffer}' starts at an address that is no multiple of 16 bytes",
            code="arguments",
        )
    room = np.zeros(BYTES + _ALIGNMENT, np.uint8)
    skip = -room.ctypes.data % _ALIGNMENT
    status = _encoder()(
        ctypes.c_void_p(room.ctypes.data + skip),
        _TYPES[view.dtype],
        len(view.extents),
        ctypes.c_void_p(start),
        _array(ctypes.c_uint64, view.extents),
        _array(ctypes.c_uint64, view.strides),
        _array(ctypes.c_uint32, view.box),
        _array(ctypes.c_uint32, [1] * len(view.box)),
        _PLAIN,
        _SWIZZLES[view.swizzle],
        _PROMOTE_256,
        _ZEROS,
    )
    if status != 0:
        raise LaunchError(f"the driver refused (CUresult {status}) {view}", code="tensor-map")
    return room[skip : skip + BYTES].copy().view(f"V{BYTES}")[0]


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(1, len(values)))(*values)


@cache
def _encoder() -> Any:
    """The driver's function, with its parameter types."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        encode = library.cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise LaunchError(
            f"the CUDA driver has no tensor maps ({error}); 12.0 or later does", code="tensor-map"
        ) from error
    number, pointer = ctypes.c_uint32, ctypes.c_void_p
    # map, type, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill
    encode.argtypes = [pointer, ctypes.c_int, number, *[pointer] * 5, *[ctypes.c_int] * 4]
    encode.restype = ctypes.c_int
    return encode
