"""The canary bands: right kernels are clean, and each way of leaving one's memory is found."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COLUMNS, Y, entry
from fake_cupy import Machine, at, ndarray
from test_checking import KINDS, reference

from nautile.bundle import write_entries

BENCH = Path(__file__).parents[2] / "bench"
WIDTH = 65536
BYTES = 4 * Y.size


class Pointer:
    """A place in an allocation, as CuPy's MemoryPointer is."""

    def __init__(self, memory: np.ndarray, offset: int = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.memory, self.offset + offset)


class AtPointer(type):
    """Every array of the fake is an instance; a call makes one at a pointer."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, ndarray)

    def __call__(cls, shape: Any, dtype: Any, memptr: Pointer) -> Any:
        return placed(shape, dtype, memptr)


class Placed(metaclass=AtPointer):
    """CuPy's ndarray."""


def placed(shape: Any, dtype: Any, at: Pointer) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = at.memory[at.offset : at.offset + size]
    return raw.view(dtype).reshape(shape).view(ndarray)


class Allocating:
    """What the fake CuPy lacks: allocators, and arrays at a pointer."""

    def __init__(self, module: Any) -> None:
        self.allocator: Callable[[int], Pointer] = self.plain
        module.cuda.get_allocator = lambda: self.allocator
        module.cuda.set_allocator = self.set
        module.ndarray = Placed
        module.empty = self.made
        module.array = self.copied
        module.flatnonzero = np.flatnonzero

    def plain(self, size: int) -> Pointer:
        raw = np.zeros(size + 256, np.uint8)
        return Pointer(raw, -raw.ctypes.data % 256)

    def set(self, allocator: Callable[[int], Pointer]) -> None:
        self.allocator = allocator

    def made(self, shape: Any, dtype: Any) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return placed(shape, dtype, self.allocator(size))

    def copied(self, value: Any, copy: bool, order: str) -> Any:
        made = self.made(value.shape, value.dtype)
        made[...] = value
        return made


@pytest.fixture
def look(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], dict[str, Any]]:
    """The child's report on the example bundle."""
    Allocating(sys.modules["cupy"])
    monkeypatch.syspath_prepend(str(BENCH))
    made = replace(entry(), expected=reference(), kinds=KINDS)
    folder = write_entries(tmp_path / "odd", [made], target="h200")
    import sanitize

    return lambda: dict(sanitize.child(folder, 0))


def spoiled(machine: Machine, change: Callable[[int, int, int], None]) -> None:
    """The second kernel does something more, with the addresses of its arguments."""
    right = machine.kernels["shift"]

    def shift(h: int, eps: int, y: int) -> None:
        right(h, eps, y)
        change(h, eps, y)

    machine.kernels["shift"] = shift


def byte(address: int) -> Any:
    return ctypes.c_uint8.from_address(address)


def test_right_kernels_are_clean(look: Callable[[], dict[str, Any]], machine: Machine) -> None:
    found = look()
    assert found["verdict"] == "clean"
    # three runs: y's bytes, the bands, two inputs (eps has a default); then the reference
    assert found["checks"] == 3 * (1 + 1 + 2) + 1
    assert len(machine.launches) == 6


@pytest.mark.parametrize(
    ("place", "said"),
    [(BYTES, "after 960 bytes of memory, 0 from it"), (-1, "before 960 bytes of memory, 1")],
)
def test_one_byte_beside_an_output(
    look: Callable[[], dict[str, Any]], machine: Machine, place: int, said: str
) -> None:
    def change(h: int, eps: int, y: int) -> None:
        byte(y + place).value ^= 1

    spoiled(machine, change)
    found = look()
    assert found["verdict"] == "dirty"
    assert said in found["said"]


def test_beside_an_intermediate(look: Callable[[], dict[str, Any]], machine: Machine) -> None:
    def change(h: int, eps: int, y: int) -> None:
        byte(h + BYTES + WIDTH - 1).value ^= 1  # the last byte of the band

    spoiled(machine, change)
    assert "1 bytes written after 960 bytes" in look()["said"]


def test_a_value_read_from_outside(look: Callable[[], dict[str, Any]], machine: Machine) -> None:
    def change(h: int, eps: int, y: int) -> None:
        at(y, Y.shape, "float32")[0, 5] += 0 * at(h + BYTES, (1,), "float32")[0]

    spoiled(machine, change)
    with np.errstate(invalid="ignore"):
        assert "4 bytes differ between runs" in look()["said"]


def test_an_element_that_nobody_writes(
    look: Callable[[], dict[str, Any]], machine: Machine
) -> None:
    def shift(h: int, eps: int, y: int) -> None:
        total = at(h, Y.shape, "float32") + at(eps, (), "float32")
        at(y, Y.shape, "float32")[:, : COLUMNS - 1] = total[:, : COLUMNS - 1]

    machine.kernels["shift"] = shift
    assert "bytes differ between runs" in look()["said"]


def test_an_input_that_is_written(look: Callable[[], dict[str, Any]], machine: Machine) -> None:
    right = machine.kernels["scale"]

    def scale(x: int, w: int, h: int) -> None:
        right(x, w, h)
        byte(x + 7).value ^= 64

    machine.kernels["scale"] = scale
    assert "input x was written" in look()["said"]


def test_a_wrong_value_is_judged(look: Callable[[], dict[str, Any]], machine: Machine) -> None:
    def change(h: int, eps: int, y: int) -> None:
        at(y, Y.shape, "float32")[...] *= 1.001

    spoiled(machine, change)
    assert "ordinary: y:" in look()["said"]


def test_bundles_in_folders_and_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import sanitize

    folder = write_entries(tmp_path / "many" / "one", [entry()], target="h200")
    assert sanitize.bundles([str(tmp_path / "many"), str(folder)]) == [folder, folder]
    assert sanitize.ways(folder) == 1
    assert sanitize.find("/opt/tool") == "/opt/tool"


def test_every_odd_case_names_a_program_and_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import build_odd

    assert len({c.name for c in build_odd.CASES}) == len(build_odd.CASES)
    for case in build_odd.CASES:
        extents = {n for b in case.parsed().inputs for n in b.shape}
        assert set(case.sizes.values()) & extents, case.name
