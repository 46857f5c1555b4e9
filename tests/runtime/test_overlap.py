"""Launches that begin while the kernel before them drains: when they are asked for, and what the
driver is handed."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import entry
from fake_cupy import Machine
from test_launch import good

from nautile.bundle import write_entries
from nautile.errors import BundleError, LaunchError
from nautile.runtime import Bundle, overlap

SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION of cuda.h


class Driver:
    """cuLaunchKernelEx, which notes what it is handed."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[dict[str, Any]] = []

    def __call__(self, made: Any, handle: Any, arguments: Any, extra: Any) -> int:
        raw = ctypes.string_at(ctypes.addressof(made._obj), ctypes.sizeof(made._obj))
        words = memoryview(raw)[:28].cast("I").tolist()
        stream, attributes = memoryview(raw)[32:48].cast("Q").tolist()
        count = int.from_bytes(raw[48:52], "little")
        attribute = ctypes.string_at(attributes, 72)
        pointers = [ctypes.c_uint64.from_address(a).value for a in arguments if a]
        self.calls.append(
            {
                "grid": tuple(words[:3]),
                "block": tuple(words[3:6]),
                "shared": words[6],
                "stream": stream,
                "attributes": (count, attribute[0], attribute[8]),
                "pointers": pointers,
                "handle": handle.value,
            }
        )
        return self.status


def test_the_driver_is_handed_its_own_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(overlap, "_launcher", lambda: driver)
    kernel = SimpleNamespace(kernel=SimpleNamespace(ptr=4321))
    call = overlap.overlapping(kernel, (5, 6, 7), (128, 1, 1), 4096, [11, 2**40])
    assert call is not None
    call(99)
    assert driver.calls == [
        {
            "grid": (5, 6, 7),
            "block": (128, 1, 1),
            "shared": 4096,
            "stream": 99,
            "attributes": (1, SERIALIZATION, 1),
            "pointers": [11, 2**40],
            "handle": 4321,
        }
    ]


def test_a_refused_launch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_launcher", lambda: Driver(status=719))
    kernel = SimpleNamespace(kernel=SimpleNamespace(ptr=1))
    call = overlap.overlapping(kernel, (1, 1, 1), (32, 1, 1), 0, [])
    assert call is not None
    with pytest.raises(LaunchError, match="719"):
        call(0)


@pytest.mark.parametrize("where", [SimpleNamespace(), SimpleNamespace(kernel=SimpleNamespace())])
def test_without_a_handle_there_is_none(
    where: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_launcher", lambda: Driver())
    assert overlap.overlapping(where, (1, 1, 1), (32, 1, 1), 0, []) is None


def overlapped(folder: Path) -> Path:
    """The bundle of two kernels, both of which wait on the device; the first one's buffer is
    cleared before it."""
    made = entry()
    kernels = tuple((replace(k, overlaps=True), code) for k, code in made.kernels)
    return write_entries(folder, [replace(made, kernels=kernels)], target="h200")


def test_what_follows_a_kernel_begins_early(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    monkeypatch.setattr(overlap, "_launcher", lambda: driver)
    Bundle.load(overlapped(tmp_path / "b")).run(**good())
    assert [name for name, *_ in machine.launches] == ["scale"]
    assert [(c["grid"], c["block"]) for c in driver.calls] == [((1, 2, 1), (128, 1, 1))]


@pytest.mark.parametrize("capability", [80, 89])
def test_older_devices_launch_one_after_the_other(
    capability: int, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    machine.capability = capability
    monkeypatch.setattr(overlap, "_launcher", lambda: driver)
    Bundle.load(overlapped(tmp_path / "b")).run(**good())
    assert [name for name, *_ in machine.launches] == ["scale", "shift"]
    assert driver.calls == []


def test_a_flag_that_is_no_flag_is_refused(tmp_path: Path) -> None:
    folder = overlapped(tmp_path / "b")
    manifest = folder / "manifest.json"
    text = manifest.read_text()
    assert '"overlaps": true' in text
    manifest.write_text(text.replace('"overlaps": true', '"overlaps": 1'))
    with pytest.raises(BundleError, match="overlaps"):
        Bundle.load(folder)
