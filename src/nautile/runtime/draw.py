"""Sample inputs on the device, made from the same recipe as the stored reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautile import samples
from nautile.bundle.manifest import Buffer
from nautile.errors import BundleError
from nautile.runtime.device import cupy
from nautile.runtime.launch import Program

__all__ = ["POISONS", "draw", "inputs", "kinds_of", "poison"]

POISONS = (0xFF, 0xA5)  # NaN in every float type; then something else, which tells unwritten parts
_CHUNK = 1 << 24


def kinds_of(program: Program, kinds: Mapping[str, str] | None = None) -> dict[str, str]:
    """How each input is drawn: as asked, else as the bundle says, else by its type."""
    chosen = {}
    for name, buffer in program.role("input").items():
        default = "bool" if buffer.dtype == "bool" else "normal"
        default = "integers:0:1" if buffer.dtype in ("i64", "i32", "i8") else default
        chosen[name] = (kinds or {}).get(name) or program.head.kinds.get(name) or default
        _try(name, chosen[name])
    return chosen


def _try(name: str, kind: str) -> None:
    """BundleError unless samples of that kind can be drawn."""
    try:
        samples.values(kind, 0, name, np.zeros(1, dtype=np.int64))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise BundleError(f"samples of '{name}' cannot be drawn: {error}") from error


def inputs(
    program: Program,
    seed: int,
    kinds: Mapping[str, str] | None = None,
    drawn_as: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Every input of the program as a CuPy array. Scalars that have a default keep it. Values
    depend on the tensor's name: `drawn_as` gives another one than its own."""
    recipe, called = kinds_of(program, kinds), drawn_as or {}
    return {
        name: draw(buffer, recipe[name], seed, called.get(name))
        for name, buffer in program.role("input").items()
        if name not in program.head.defaults
    }


def draw(buffer: Buffer, kind: str, seed: int, name: str | None = None) -> Any:
    """A tensor of samples in stored form, made piece by piece to bound the memory. `name` is drawn
    for, where it is another one than the tensor's."""
    xp = cupy()
    made = xp.empty(buffer.shape, dtype=samples.STORAGE[buffer.dtype])
    flat = made.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        stop = min(start + _CHUNK, flat.size)
        index = xp.arange(start, stop, dtype="int64")
        drawn = samples.values(kind, seed, name or buffer.name, index, xp=xp)
        flat[start:stop] = samples.encode(drawn, buffer.dtype, xp=xp)
    return made


def poison(array: Any, byte: int) -> None:
    """Fill an array's memory with one byte, so that elements nobody writes stand out."""
    array.reshape(-1).view("uint8")[...] = byte
