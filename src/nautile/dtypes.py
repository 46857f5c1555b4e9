"""Element types: how they are stored, how they round, and what arithmetic on them carries.

`f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i8 bool`. Arithmetic is float32 unless a value is
float64; integers stay integers. tf32 is stored in four bytes and keeps ten bits of mantissa.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded where values are computed: to name a type needs neither
    import numpy as np
    import numpy.typing as npt

__all__ = ["DTYPES", "DType", "is_float", "is_integer", "round_to", "storage"]


_WIDE = 1e30  # a type that holds this has the range of f32, about


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: `bytes` in memory, `digits` of mantissa (with the hidden bit; 0 for
    integers), largest finite value, C++ spelling, and the name of the type that stores it in
    NumPy or ml_dtypes."""

    name: str
    bytes: int
    kind: str  # "float", "integer" or "bool"
    digits: int
    largest: float
    cpp: str
    stored_as: str

    @property
    def has_small_range(self) -> bool:
        """Whether it is a floating-point type that holds far less than f32 does."""
        return self.kind == "float" and self.largest < _WIDE

    @property
    def storage(self) -> np.dtype[np.generic]:
        """The NumPy type that holds its elements."""
        return storage(self.name)


DTYPES: dict[str, DType] = {
    row[0]: DType(*row)
    for row in (
        ("f64", 8, "float", 53, 1.7976931348623157e308, "double", "float64"),
        ("f32", 4, "float", 24, 3.4028234663852886e38, "float", "float32"),
        ("tf32", 4, "float", 11, 3.4011621342146535e38, "float", "float32"),
        ("bf16", 2, "float", 8, 3.3895313892515355e38, "__nv_bfloat16", "bfloat16"),
        ("f16", 2, "float", 11, 65504.0, "__half", "float16"),
        ("f8e4m3", 1, "float", 4, 448.0, "__nv_fp8_e4m3", "float8_e4m3fn"),
        ("f8e5m2", 1, "float", 3, 57344.0, "__nv_fp8_e5m2", "float8_e5m2"),
        ("i64", 8, "integer", 0, float(2**63 - 1), "long long", "int64"),
        ("i32", 4, "integer", 0, float(2**31 - 1), "int", "int32"),
        ("i8", 1, "integer", 0, 127.0, "signed char", "int8"),
        ("bool", 1, "bool", 0, 1.0, "bool", "bool_"),
    )
}


@cache
def storage(name: str) -> np.dtype[np.generic]:
    """The NumPy type that holds elements of `name`."""
    import ml_dtypes
    import numpy as np

    stored = DTYPES[name].stored_as
    found: type[np.generic] = getattr(np, stored, None) or getattr(ml_dtypes, stored)
    return np.dtype(found)


def is_float(name: str) -> bool:
    """True for the floating-point types."""
    return DTYPES[name].kind == "float"


def is_integer(name: str) -> bool:
    """True for i64, i32 and i8 (bool is neither)."""
    return DTYPES[name].kind == "integer"


_THROUGH_SINGLE = ("bf16", "f8e4m3", "f8e5m2")


def round_to(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """Values rounded to nearest even in type `name`, returned as float64 (integers truncate).

    bf16 and the types of eight bits round what float32 holds of a value, as the GPU's conversions
    do (releases of ml_dtypes differ in that). tf32 rounds to nearest, ties away from zero, as the
    `cvt.rna.tf32.f32` instruction does.
    """
    import numpy as np

    x = np.asarray(values, dtype=np.float64)
    if name == "f64":
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "tf32":
            bits = x.astype(np.float32).view(np.uint32)
            rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
            return np.where(np.isfinite(x), rounded, x).astype(np.float64)
        if name in _THROUGH_SINGLE:
            x = x.astype(np.float32)
        return x.astype(storage(name)).astype(np.float64)
