"""Canary bands: device memory between bytes that nothing may change and nothing may depend on.

While a `Bands` is entered, every CuPy allocation lies between two bands, the second of which begins
right after its last byte. Both are kept as long as the `Bands` is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["FILLS", "Bands", "repeated"]

WIDTH = 65536  # bytes of a band; a multiple of what allocations are aligned to
# What bands hold in the runs: NaNs of every float type, zeros, then values of ordinary size. Words
# differ, so that a value which a kernel writes there again and again shows.
FILLS = tuple(
    np.asarray(words, np.uint16)
    for words in (
        0x7FC1 + np.arange(WIDTH // 2) % 61,
        np.zeros(WIDTH // 2),
        0x3F80 + np.arange(WIDTH // 2) % 61,
    )
)
POISONS = (0xFF, 0xA5, 0x00)


class Bands:
    """The allocations made while it was entered, each with its bands."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.kept: list[tuple[Any, int]] = []
        self.fills = [cupy.asarray(f.view(np.uint8)) for f in FILLS]

    def __enter__(self) -> Bands:
        self.inner = self.cupy.cuda.get_allocator()
        self.cupy.cuda.set_allocator(self._allocate)
        return self

    def __exit__(self, *why: object) -> None:
        self.cupy.cuda.set_allocator(self.inner)

    def _allocate(self, size: int) -> Any:
        whole = self.inner(size + 2 * WIDTH)
        self.kept.append((whole, size))
        return whole + WIDTH

    def copies(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays of the same contents between bands."""
        return {name: self.cupy.array(a, copy=True, order="C") for name, a in arrays.items()}

    def fill(self, number: int) -> None:
        """Write fill `number` into every band."""
        for band in self._bands():
            band[...] = self.fills[number]

    def broken(self, number: int) -> list[str]:
        """Where bands no longer hold fill `number`: so many bytes, from the first on."""
        found = []
        for i, band in enumerate(self._bands()):
            wrong = self.cupy.flatnonzero(band != self.fills[number])
            if wrong.size:
                side, size = ("after", "before")[i % 2 == 0], self.kept[i // 2][1]
                at = int(wrong[0]) if i % 2 else WIDTH - int(wrong[-1])
                found.append(
                    f"{wrong.size} bytes written {side} {size} bytes of memory, {at} from it"
                )
        return found

    def _bands(self) -> Iterator[Any]:
        """The band before and the band after each allocation."""
        for whole, size in self.kept:
            for at in (0, WIDTH + size):
                yield self.cupy.ndarray((WIDTH,), "uint8", memptr=whole + at)


def repeated(
    program: Any, call: Any, bands: Bands, bound: Mapping[str, Any], given: Mapping[str, Any]
) -> Iterator[str]:
    """Launch a call on the inputs `bound` once for each fill; what is wrong, or "", for each thing
    looked at. `given` are the inputs as they were before. (Counters that a launch does not leave
    at zero show in the next one.)"""
    from nautile.runtime.draw import poison

    kept: dict[str, Any] = {}
    for number, byte in enumerate(POISONS):
        bands.fill(number)
        for array in call.written(program):
            poison(array, byte)
        for name, array in call.launch().items():
            raw = _bytes(array)
            differing = int((kept[name] != raw).sum()) if name in kept else 0
            yield f"{name}: {differing} bytes differ between runs" if differing else ""
            kept[name] = raw.copy()
        yield "; ".join(bands.broken(number))
        for name, array in given.items():
            same = bool((_bytes(bound[name]) == _bytes(array)).all())
            yield "" if same else f"input {name} was written"


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view("uint8")
