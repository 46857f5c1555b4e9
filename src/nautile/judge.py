"""Is a computed result as accurate as the source's own naive evaluation? NumPy alone.

`reference` holds float64 values and `naive` those of the source evaluated as it stands in its
stated types. A result passes if it is finite where the reference is (unless the naive evaluation is
not), not finite where both are NaN (a quotient by zero may be NaN or infinite), and its error is at
most twice the naive one, plus a floor by element type: root mean square over everything, and row by
row (last axis) with more slack, so that rows of small numbers are not judged by their large
neighbours. Whole numbers and truth values must agree, except where the naive evaluation itself errs
as often.

The same code judges interpreted tile programs, and kernels on a machine with NumPy and CuPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FLOOR", "LARGEST", "Verdict", "from_json", "judge", "row_rms", "to_json"]

Array = npt.NDArray[Any]
RATIO = 2.0
ROW_RATIO = 6.0
MOST = 1e30
"""Stands for errors beyond all bounds, so that certificates stay plain JSON."""

FLOOR: dict[str, float] = {
    "f64": 2.0**-48,
    "f32": 2.0**-21,
    "tf32": 2.0**-11,
    "bf16": 2.0**-9,
    "f16": 2.0**-12,
    "f8e4m3": 2.0**-5,
    "f8e5m2": 2.0**-4,
}
LARGEST: dict[str, float] = {
    "f64": 1.7976931348623157e308,
    "f32": 3.4028234663852886e38,
    "tf32": 3.4011621342146535e38,
    "bf16": 3.3895313892515355e38,
    "f16": 65504.0,
    "f8e4m3": 448.0,
    "f8e5m2": 57344.0,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`max_relative_error` is relative to the element or its row's root mean square, whichever is
    larger; `rmse_ratio` is the error over the naive evaluation's (or the floor, where larger)."""

    passed: bool
    max_relative_error: float
    rmse_ratio: float
    samples: int
    detail: str


def judge(
    actual: npt.ArrayLike,
    reference: npt.ArrayLike,
    naive: npt.ArrayLike,
    dtype: str,
    *,
    floor: float = 0.0,
) -> Verdict:
    """Judge `actual` of element type `dtype`; all three of one shape, the last axis a row.

    `floor` is an additional relative error that is allowed (long sums in float32 have one)."""
    x, y, z = (_rows(v) for v in (actual, reference, naive))
    if x.shape != y.shape or y.shape != z.shape:
        raise ValueError(f"shapes differ: {x.shape}, {y.shape}, {z.shape}")
    if dtype not in FLOOR:
        return _whole_numbers(x, y, z)
    wrong = _misplaced(x, y, z, dtype)
    if wrong:
        return Verdict(False, MOST, MOST, x.size, wrong)
    usable = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (np.abs(y) <= LARGEST[dtype])
    return _errors(x, y, z, usable, FLOOR[dtype] + floor)


def _rows(values: npt.ArrayLike) -> Array:
    x = np.asarray(values, dtype=np.float64)
    return x.reshape(-1, x.shape[-1] if x.ndim else 1)


def _whole_numbers(x: Array, y: Array, z: Array) -> Verdict:
    wrong, naive = int((x != y).sum()), int((z != y).sum())
    allowed = 2 * naive + (x.size // 64 if naive else 0)
    detail = f"{wrong} of {x.size} differ" if wrong else ""
    error = float(np.abs(x - y).max(initial=0.0) / max(1.0, float(np.abs(y).max(initial=0.0))))
    return Verdict(wrong <= allowed, min(error, MOST), wrong / max(naive, 1), x.size, detail)


def _misplaced(x: Array, y: Array, z: Array, dtype: str) -> str:
    """What is wrong with NaN, infinities and unwritten elements; empty if nothing."""
    limit = LARGEST[dtype]
    fits = np.abs(y) <= limit * (1 - FLOOR[dtype])
    broken = fits & np.isfinite(z) & ~np.isfinite(x)
    if broken.any():
        return f"{_place(broken)} is {x[broken][0]} where the reference is {y[broken][0]:.6g}"
    lost = np.isnan(y) & np.isnan(z) & np.isfinite(x)
    if lost.any():
        return f"{_place(lost)} is {x[lost][0]:.6g} where the reference is nan"
    beyond = (np.abs(y) > limit * (1 + FLOOR[dtype])) & ~np.isnan(z)
    small = beyond & (np.abs(x) < limit / 2) & (np.sign(x) != 0)
    small |= beyond & (np.sign(x) == -np.sign(y))
    if small.any():
        return f"{_place(small)} is {x[small][0]:.6g} where the reference is {y[small][0]:.6g}"
    return ""


def _place(where: Array) -> str:
    row, column = np.argwhere(where)[0]
    return f"sample [{row}, {column}] ({int(where.sum())} such)"


def _errors(x: Array, y: Array, z: Array, usable: Array, floor: float) -> Verdict:
    """Root mean squares over all, and row by row."""
    if not usable.any():
        return Verdict(True, 0.0, 0.0, x.size, "nothing finite to compare")
    with np.errstate(invalid="ignore"):
        e, n, s = (np.where(usable, v, 0.0) for v in (x - y, z - y, y))
    scale = row_rms(s, usable)
    total = _rms(e, usable)
    budget = max(_rms(n, usable), floor * _rms(s, usable))
    relative = _largest_relative(e, s, scale)
    ratio = 0.0 if total == 0 else min(total / budget, MOST) if budget > 0 else MOST
    said = [] if ratio <= RATIO else [f"error {total:.3g}, naive {_rms(n, usable):.3g}"]
    said += _bad_rows(e, n, usable, scale, floor)
    return Verdict(not said, relative, ratio, x.size, "; ".join(said))


def _bad_rows(e: Array, n: Array, usable: Array, scale: Array, floor: float) -> list[str]:
    """Rows whose error passes their own naive error, that of all rows and the floor."""
    own, naive = row_rms(e, usable), row_rms(n, usable)
    typical = np.divide(naive, scale, out=np.zeros_like(scale), where=scale > 0)
    pooled = float(np.sqrt(np.mean(typical**2)))
    least = min(floor, 2.0**-22) * float(np.sqrt(np.mean(scale**2)))
    bound = ROW_RATIO * (naive + np.maximum(pooled, floor) * scale) + least
    if (own <= bound).all():
        return []
    worst = int(np.argmax(np.where(own > bound, own - bound, 0.0)))
    return [f"row {worst} of {len(own)}: error {own[worst]:.3g}, bound {bound[worst]:.3g}"]


def _rms(v: Array, usable: Array) -> float:
    top = float(np.abs(v).max(initial=0.0))
    if top == 0.0:
        return 0.0
    return top * float(np.sqrt(((v / top) ** 2).sum() / usable.sum()))


def row_rms(v: Array, usable: Array) -> Array:
    """The root mean square of each row's usable elements (others are 0), without overflow."""
    top = np.abs(v).max(axis=1, keepdims=True, initial=0.0)
    unit = np.divide(v, top, out=np.zeros_like(v), where=top > 0)
    count = np.maximum(usable.sum(axis=1), 1)
    return np.asarray(top[:, 0] * np.sqrt((unit**2).sum(axis=1) / count))


def _largest_relative(e: Array, s: Array, scale: Array) -> float:
    size = np.maximum(np.abs(s), scale[:, None])
    with np.errstate(over="ignore"):
        relative = np.divide(np.abs(e), size, out=np.where(e == 0, 0.0, MOST), where=size > 0)
    return min(float(relative.max(initial=0.0)), MOST)


def to_json(values: npt.ArrayLike) -> list[float | str]:
    """A flat list for strict JSON: numbers, and "nan", "inf", "-inf" as text."""
    flat = np.asarray(values, dtype=np.float64).ravel().tolist()
    return [v if np.isfinite(v) else str(v) for v in flat]


def from_json(values: Sequence[float | str], shape: Sequence[int]) -> Array:
    """The array that `to_json` wrote."""
    return np.array([float(v) for v in values], dtype=np.float64).reshape(tuple(shape))
