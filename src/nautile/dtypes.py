"""Element types: how they are stored, how they round, and what arithmetic on them carries.

`f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i8 bool`. Arithmetic is float32 unless a value is
float64; integers stay integers. tf32 is stored in four bytes and keeps ten bits of mantissa.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["DTYPES", "DType", "is_float", "is_integer", "round_to", "storage"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: `bytes` in memory, NumPy `storage`, `digits` of mantissa (with the hidden
    bit; 0 for integers), largest finite value and C++ spelling."""

    name: str
    bytes: int
    storage: np.dtype[np.generic]
    kind: str  # "float", "integer" or "bool"
    digits: int
    largest: float
    cpp: str


def _table() -> dict[str, DType]:
    rows = [
        ("f64", np.float64, "float", 53, 1.7976931348623157e308, "double"),
        ("f32", np.float32, "float", 24, 3.4028234663852886e38, "float"),
        ("tf32", np.float32, "float", 11, 3.4011621342146535e38, "float"),
        ("bf16", ml_dtypes.bfloat16, "float", 8, 3.3895313892515355e38, "__nv_bfloat16"),
        ("f16", np.float16, "float", 11, 65504.0, "__half"),
        ("f8e4m3", ml_dtypes.float8_e4m3fn, "float", 4, 448.0, "__nv_fp8_e4m3"),
        ("f8e5m2", ml_dtypes.float8_e5m2, "float", 3, 57344.0, "__nv_fp8_e5m2"),
        ("i64", np.int64, "integer", 0, float(2**63 - 1), "long long"),
        ("i32", np.int32, "integer", 0, float(2**31 - 1), "int"),
        ("i8", np.int8, "integer", 0, 127.0, "signed char"),
        ("bool", np.bool_, "bool", 0, 1.0, "bool"),
    ]
    return {
        name: DType(name, np.dtype(t).itemsize, np.dtype(t), kind, digits, largest, cpp)
        for name, t, kind, digits, largest, cpp in rows
    }


DTYPES: dict[str, DType] = _table()


def storage(name: str) -> np.dtype[np.generic]:
    """The NumPy type that holds elements of `name`."""
    return DTYPES[name].storage


def is_float(name: str) -> bool:
    """True for the floating-point types."""
    return DTYPES[name].kind == "float"


def is_integer(name: str) -> bool:
    """True for i64, i32 and i8 (bool is neither)."""
    return DTYPES[name].kind == "integer"


def round_to(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """Values rounded to nearest even in type `name`, returned as float64 (integers truncate).

    tf32 rounds to nearest, ties away from zero, as the `cvt.rna.tf32.f32` instruction does.
    """
    x = np.asarray(values, dtype=np.float64)
    if name == "f64":
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "tf32":
            bits = x.astype(np.float32).view(np.uint32)
            rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
            return np.where(np.isfinite(x), rounded, x).astype(np.float64)
        return x.astype(storage(name)).astype(np.float64)
