"""Deterministic sample values: any element of a tensor from its seed, name and flat index alone.

Nothing here needs the whole tensor, so an oracle can look at one row of a matrix that fills a GPU,
and a machine with NumPy and CuPy alone can make the same matrix. The values are the same bits on
both: they come from 64-bit integer hashes, exact sums and one rounding, never from a library's exp
or log. Pass `xp=cupy` to compute on a device.

```
kind ::= "normal" [":" scale]        about normal (a sum of eight uniforms), within 4.9 deviations
       | "uniform" ":" low ":" high  low <= value < high
       | "spread" [":" scale]        either sign, magnitudes 2**-8 .. 2**8
       | "ties" [":" scale]          multiples of one half, few of them distinct
       | "zeros" [":" scale]         exact zeros of both signs among normal values
       | "edges" ":" scale {":" extent}  normal; every other element that is first or last along an
                                     axis of more than 4 elements lies outside of all the rest
       | "rows" ":" width            constant along the last axis, which has `width` elements
       | "integers" ":" low ":" high low <= value < high, whole numbers
       | "ends" ":" low ":" high     the same; one in four is the least, one in four the greatest
       | "bool" [":" probability]    1.0 with that probability (one half), else 0.0
       | "stripes" ":" width         truth values; of the rows of `width` elements one in four is
                                     all true, one in four all false
```

`encode` rounds float64 values to a stored type to nearest, ties to even, with the bits that
ml_dtypes gives (bf16 and fp8 round through float32, as they do there; tf32: ties away from zero),
and `decode` reads stored elements back. bf16 is stored in uint16, fp8 in uint8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["KINDS", "STORAGE", "decode", "encode", "values"]

Array = Any
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_LANES, _HALF = np.uint64(0x0000FFFF0000FFFF), np.uint64(16)
_DEVIATION = 65536.0 * (8.0 / 12.0) ** 0.5


@dataclass(frozen=True, slots=True)
class _Format:
    """A small binary float: bits of mantissa, exponent of the smallest normal number, largest
    finite value, codes of infinity (that of NaN where there is none) and NaN, and storage."""

    mantissa: int
    lowest: int
    largest: float
    infinity: int
    nan: int
    width: int


_FORMATS = {
    "bf16": _Format(7, -126, 3.3895313892515355e38, 0x7F80, 0x7FC0, 16),
    "f16": _Format(10, -14, 65504.0, 0x7C00, 0x7E00, 16),
    "f8e4m3": _Format(3, -6, 448.0, 0x7F, 0x7F, 8),
    "f8e5m2": _Format(2, -14, 57344.0, 0x7C, 0x7E, 8),
}

STORAGE: dict[str, str] = {
    "f64": "float64",
    "f32": "float32",
    "tf32": "float32",
    "bf16": "uint16",
    "f16": "float16",
    "f8e4m3": "uint8",
    "f8e5m2": "uint8",
    "i64": "int64",
    "i32": "int32",
    "i8": "int8",
    "bool": "bool",
}


def values(kind: str, seed: int, name: str, index: Array, *, xp: Any = np) -> Array:
    """The elements at the flat (row-major) `index` of tensor `name`, as float64.

    `index` is an integer array of any shape. Raises ValueError for an unknown kind.
    """
    word, *rest = kind.split(":")
    if word not in KINDS:
        raise ValueError(f"unknown kind of samples {kind!r}: expected one of {', '.join(KINDS)}")
    draw = _Draw(_key(seed, name), xp.asarray(index), xp)
    return KINDS[word](draw, *map(float, rest))


def _key(seed: int, name: str) -> int:
    """64 bits that belong to one tensor of one seed."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class _Draw:
    key: int
    index: Array
    xp: Any

    def bits(self, lane: int, index: Array | None = None) -> Array:
        """64 random bits for each element: the SplitMix64 finaliser (Steele, Lea, Flood 2014)."""
        start = np.uint64((self.key + lane * 0xD1342543DE82EF95) % 2**64)
        index = self.index if index is None else index
        x = self.xp.atleast_1d(index).astype(np.uint64)
        x *= _STEP
        x += start
        for shift, factor in zip((30, 27), _MIX, strict=True):
            x ^= x >> np.uint64(shift)
            x *= factor
        x ^= x >> np.uint64(31)
        return x.reshape(self.index.shape)

    def uniform(self, lane: int = 0) -> Array:
        """53 random bits in [0, 1)."""
        return (self.bits(lane) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, index: Array | None = None) -> Array:
        """The sum of eight 16-bit uniforms, centred and scaled to deviation 1. The halves of 32-bit
        lanes are added side by side, which gives the same whole number in fewer steps."""
        lanes = _halves(self.bits(0, index))
        lanes += _halves(self.bits(1, index))
        total = lanes & np.uint64(0xFFFFFFFF)
        total += lanes >> np.uint64(32)
        x = total.astype(np.float64)
        x -= 4.0 * 65535.0
        x /= _DEVIATION
        return x

    def sign(self) -> Array:
        return (self.bits(2) >> np.uint64(63)).astype(np.float64) * 2.0 - 1.0


def _halves(bits: Array) -> Array:
    """The even and odd 16-bit pieces of each number, added side by side in two 32-bit lanes."""
    low = bits & _LANES
    bits >>= _HALF
    bits &= _LANES
    low += bits
    return low


def _spread(draw: _Draw, scale: float = 1.0) -> Array:
    exponent = (draw.bits(3) % np.uint64(16)).astype(np.int32) - 8
    return draw.xp.ldexp(1.0 + draw.uniform(), exponent) * draw.sign() * scale


def _zeros(draw: _Draw, scale: float = 1.0) -> Array:
    kept = (draw.bits(3) % np.uint64(3)) != 0
    return draw.xp.where(kept, draw.normal() * scale, draw.sign() * 0.0)


def _edges(draw: _Draw, scale: float, *shape: float) -> Array:
    x, rest = draw.normal(), draw.index
    edge = draw.xp.zeros(draw.index.shape, dtype=bool)
    for extent in reversed([int(n) for n in shape]):
        at = rest % extent
        rest = rest // extent
        edge |= ((at == 0) | (at == extent - 1)) & (extent > 4)
    chosen = edge & ((draw.bits(3) & np.uint64(1)) != 0)
    return draw.xp.where(chosen, draw.sign() * (5.0 + draw.xp.abs(x)), x) * scale


def _integers(draw: _Draw, low: float, high: float) -> Array:
    span = np.uint64(max(int(high) - int(low), 1))
    return (draw.bits(0) % span).astype(np.float64) + float(int(low))


def _ends(draw: _Draw, low: float, high: float) -> Array:
    side = draw.bits(3) % np.uint64(4)
    x = draw.xp.where(side == 0, float(int(low)), _integers(draw, low, high))
    return draw.xp.where(side == 1, float(max(int(high) - 1, int(low))), x)


def _stripes(draw: _Draw, width: float) -> Array:
    side = draw.bits(3, draw.index // int(width)) % np.uint64(4)
    chosen = (draw.uniform() < 0.5) & (side != 0)
    return (chosen | (side == 1)).astype(np.float64)


KINDS: dict[str, Callable[..., Array]] = {
    "normal": lambda draw, scale=1.0: draw.normal() * scale,
    "uniform": lambda draw, low, high: low + (high - low) * draw.uniform(),
    "spread": _spread,
    "ties": lambda draw, scale=1.0: draw.xp.rint(draw.normal() * 2.0) * 0.5 * scale,
    "zeros": _zeros,
    "edges": _edges,
    "rows": lambda draw, width: draw.normal(draw.index // int(width)),
    "integers": _integers,
    "ends": _ends,
    "stripes": _stripes,
    "bool": lambda draw, chance=0.5: (draw.uniform() < chance).astype(np.float64),
}


def encode(x: Array, dtype: str, *, xp: Any = np) -> Array:
    """float64 values as stored elements of `dtype`; what is too large becomes an infinity (NaN in
    f8e4m3, which has none). Integers and truth values truncate as NumPy's astype does."""
    x = xp.asarray(x, dtype=np.float64)
    if dtype == "tf32":
        return _tf32(x, xp)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in _FORMATS:
            through = "f64" if dtype == "f16" else "f32"
            x = x.astype(STORAGE[through]).astype(np.float64)
            return _small(x, _FORMATS[dtype], xp).view(STORAGE[dtype])
        return x.astype(STORAGE[dtype])


def _tf32(x: Array, xp: Any) -> Array:
    with np.errstate(over="ignore"):
        single = xp.atleast_1d(x.astype(np.float32))
    bits = (single.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return xp.where(xp.isfinite(single), bits.view(np.float32), single).reshape(x.shape)


def _small(x: Array, form: _Format, xp: Any) -> Array:
    """The codes of `form`: a code of a finite number is its exponent and mantissa read as one
    integer, so a mantissa that rounds up carries into the exponent by itself."""
    size = xp.abs(x)
    special = ~xp.isfinite(x)
    size = xp.where(special, 1.0, size)
    exponent = xp.where(size > 0, xp.maximum(xp.frexp(size)[1] - 1, form.lowest), form.lowest)
    steps = xp.rint(xp.ldexp(size, form.mantissa - exponent)).astype(np.int64)
    code = (exponent - form.lowest).astype(np.int64) * 2**form.mantissa + steps
    code = xp.where(code > _last(form), form.infinity, code)
    code = xp.where(special, xp.where(xp.isnan(x), form.nan, form.infinity), code)
    code = code + xp.signbit(x).astype(np.int64) * 2 ** (form.width - 1)
    return code.astype(np.uint8 if form.width == 8 else np.uint16)


def _last(form: _Format) -> int:
    """The code of the largest finite number."""
    return form.infinity - 1


def decode(stored: Array, dtype: str, *, xp: Any = np) -> Array:
    """Stored elements as float64."""
    if dtype not in _FORMATS or dtype == "f16":
        return xp.asarray(stored).astype(np.float64)
    form = _FORMATS[dtype]
    code = xp.asarray(stored).astype(np.int64)
    size = code & (2 ** (form.width - 1) - 1)
    field, mantissa = size >> form.mantissa, size & (2**form.mantissa - 1)
    steps = mantissa + xp.where(field > 0, 2**form.mantissa, 0)
    scale = (xp.maximum(field, 1) + (form.lowest - 1 - form.mantissa)).astype(np.int32)
    x = xp.ldexp(steps.astype(np.float64), scale)
    x = xp.where(size > _last(form), np.nan, x)
    if form.infinity != form.nan:
        x = xp.where(size == form.infinity, np.inf, x)
    return xp.where(code != size, -x, x)
