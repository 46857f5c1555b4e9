"""Launches with several implementations: which one runs, its tensor maps and its counters."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COLUMNS, H, W, X, compiled, entry
from fake_cupy import Machine, at, device

from nautile.bundle import Entry, load_bundle, write_entries
from nautile.bundle.write import Variant
from nautile.codegen.source import CudaKernel, TensorMap
from nautile.errors import LaunchError
from nautile.runtime import Bundle, maps, tensor_map
from nautile.runtime.launch import Program

ROWS_OF_X = TensorMap("x", "f32", (COLUMNS, 6), (4 * COLUMNS,), (8, 2), 32)
SECOND_HALF = TensorMap("w", "bf16", (8, 2), (16,), (8, 1), 0, 48)


def hopper_entry(shared: int = 100_000) -> Entry:
    """The example, whose first launch has a kernel for sm_90a that is tried first."""
    own = CudaKernel(
        "scale_tma", "// h = x * w, by the copy engine\n", (3, 1, 1), 384, shared, ("w", "h"),
        architecture="sm_90a", maps=(ROWS_OF_X, SECOND_HALF), counters=2,
    )  # fmt: skip
    made = {"sm_90a": compiled("sm_90a", b"\x7fELF90a")}
    plain = entry()
    return replace(
        plain,
        variants=(
            (Variant(((own, made),), "wgmma"), Variant((plain.kernels[0],), "mma.sync")),
            (Variant((plain.kernels[1],)),),
        ),
    )


@pytest.fixture
def program(tmp_path: Path, machine: Machine, driver: Driver) -> Program:
    machine.kernels["scale_tma"] = _scale_tma
    return Bundle.load(write_entries(tmp_path / "bundle", [hopper_entry()], target="h200")).only


class Driver:
    """cuTensorMapEncodeTiled as a person would read its documentation."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.status = 0

    def __call__(self, *given: Any) -> int:
        made, kind, rank, address, extents, strides, box, steps, plain, swizzle, lines, fill = given
        assert made.value % 64 == 0
        assert address.value % 16 == 0
        assert (plain, lines, fill) == (0, 3, 0)
        assert list(steps) == [1] * rank
        seen = {"type": kind, "extents": list(extents), "strides": list(strides)[: rank - 1]}
        self.calls.append(seen | {"box": list(box), "swizzle": swizzle, "address": address.value})
        ctypes.memmove(made.value, np.uint64(address.value).tobytes() * 16, 128)
        return self.status


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(maps, "_encoder", lambda: made)
    return made


def _scale_tma(first: bytes, second: bytes, w: int, h: int, counters: int) -> None:
    """h = x * w, where x is known by its map alone; counters go up and back."""
    words = at(counters, (2,), "int32")
    assert not words.any()
    x = at(int(np.frombuffer(first, np.uint64)[0]), X.shape, "float32")
    assert len(first) == len(second) == 128
    assert int(np.frombuffer(second, np.uint64)[0]) == w + 48
    bits = at(w, W.shape, "uint16").astype(np.uint32) << 16
    at(h, H.shape, "float32")[...] = x * bits.view(np.float32)


def given() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(X.shape, dtype=np.float32)
    w = rng.standard_normal(W.shape, dtype=np.float32).view(np.uint32) >> 16
    return {"x": device(x), "w": device(w.astype(np.uint16))}


def expected(arrays: dict[str, Any]) -> np.ndarray:
    w = (np.asarray(arrays["w"]).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(arrays["x"]) * w + np.float32(0.5)


def launched(machine: Machine) -> list[str]:
    return [name for name, *_ in machine.launches]


def test_the_first_that_runs_is_taken(program: Program, machine: Machine) -> None:
    arrays = given()
    np.testing.assert_array_equal(np.asarray(program.run(arrays)["y"]), expected(arrays))
    assert machine.launches[0] == ("scale_tma", (3, 1, 1), (384, 1, 1), 100_000)
    assert launched(machine) == ["scale_tma", "shift"]


@pytest.mark.parametrize("capability", [80, 89, 100, 120])
def test_other_devices_take_the_portable_one(
    program: Program, machine: Machine, capability: int
) -> None:
    machine.capability = capability
    arrays = given()
    np.testing.assert_array_equal(np.asarray(program.run(arrays)["y"]), expected(arrays))
    assert launched(machine) == ["scale", "shift"]


def test_too_little_shared_memory_takes_the_portable_one(
    program: Program, machine: Machine
) -> None:
    machine.shared = 99 * 1024 - 2000
    program.run(given())
    assert launched(machine) == ["scale", "shift"]


def test_an_implementation_may_be_asked_for(program: Program, machine: Machine) -> None:
    call = program.bind(given(), choices={0: 1})
    call.launch()
    assert (launched(machine), call.choices) == (["scale", "shift"], (1, 0))
    machine.capability = 80
    with pytest.raises(LaunchError, match="needs sm_90a; this device has compute capability 8"):
        program.bind(given(), choices={0: 0})


def test_a_driver_that_refuses_a_map(program: Program, machine: Machine, driver: Driver) -> None:
    driver.status = 1
    with pytest.warns(RuntimeWarning, match=r"scale: .*CUresult 1.*another is used"):
        program.run(given())
    assert launched(machine) == ["scale", "shift"]
    with pytest.raises(LaunchError, match="refused"):
        program.bind(given(), choices={0: 0})


def test_maps_are_encoded_once_a_call(program: Program, driver: Driver) -> None:
    arrays = given()
    call = program.bind(arrays)
    for _ in range(3):
        call.launch()
    x, w = arrays["x"].data.ptr, arrays["w"].data.ptr
    assert driver.calls == [
        {"type": 7, "extents": [40, 6], "strides": [160], "box": [8, 2], "swizzle": 1,
         "address": x},
        {"type": 9, "extents": [8, 2], "strides": [16], "box": [8, 1], "swizzle": 0,
         "address": w + 48},
    ]  # fmt: skip


def test_every_call_has_counters_of_its_own(program: Program, machine: Machine) -> None:
    seen: list[int] = []

    def kernel(first: bytes, second: bytes, w: int, h: int, counters: int) -> None:
        _scale_tma(first, second, w, h, counters)
        seen.append(counters)

    machine.kernels["scale_tma"] = kernel
    calls = [program.bind(given()), program.bind(given())]
    for call in (*calls, *calls):
        call.launch()
    assert seen[:2] == seen[2:]
    assert len(set(seen)) == 2


def test_a_graph_of_maps_and_counters(program: Program, machine: Machine) -> None:
    arrays = given()
    graph = program.bind(arrays).graph()
    for _ in range(3):
        y = graph.launch()["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(arrays))
    assert launched(machine) == ["scale_tma", "shift"] * 3


def test_kernels_of_one_implementation_follow_one_another(
    tmp_path: Path, machine: Machine, driver: Driver
) -> None:
    both = Variant(entry().kernels, "two kernels")
    only = replace(entry(), kernels=entry().kernels[:1], variants=((both,),))
    path = write_entries(tmp_path / "bundle", [only], target="h200")
    arrays = given()
    np.testing.assert_array_equal(np.asarray(Bundle.load(path).run(arrays)["y"]), expected(arrays))
    assert launched(machine) == ["scale", "shift"]


def test_sources_and_machine_code_of_both_are_there(program: Program, machine: Machine) -> None:
    names = {p.name for p in program.bundle.folder.iterdir()}
    assert {"scale_tma.sm_90a.cu", "scale_tma.sm_90a.cubin", "scale.cu", "scale.sm_80.cubin"} <= (
        names
    )
    (launch, _) = load_bundle(program.bundle.folder).manifest.launches
    assert [way.schedule for way in launch.implementations] == ["wgmma", "mma.sync"]
    assert launch.name == "scale"
    assert next(launch.kernels).maps == (ROWS_OF_X, SECOND_HALF)


def test_source_for_an_architecture_of_its_own(tmp_path: Path, machine: Machine) -> None:
    only = hopper_entry()
    own, plain = only.variants[0]
    bare = Variant(((own.kernels[0][0], {}),))
    sources = Variant(((plain.kernels[0][0], {}),))
    entry = replace(only, variants=((bare, sources), only.variants[1]))
    path = write_entries(tmp_path / "bundle", [entry], target="h200")
    with pytest.warns(RuntimeWarning, match="driver has no tensor maps"):
        Bundle.load(path).run(given())
    assert machine.loaded[0]["options"] == ("--std=c++17", "-arch=sm_90a")


def test_machine_code_comes_before_what_must_be_compiled(tmp_path: Path, machine: Machine) -> None:
    only = hopper_entry()
    own, plain = only.variants[0]
    entry = replace(only, variants=((Variant(((own.kernels[0][0], {}),)), plain), only.variants[1]))
    Bundle.load(write_entries(tmp_path / "bundle", [entry], target="h200")).run(given())
    assert launched(machine) == ["scale", "shift"]
    assert all("path" in how for how in machine.loaded)


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    maps._encoder.cache_clear()
    monkeypatch.setattr(maps.ctypes, "CDLL", missing)


def test_a_machine_without_the_driver() -> None:
    with pytest.raises(LaunchError, match="driver has no tensor maps") as caught:
        tensor_map(ROWS_OF_X, 1 << 20)
    assert caught.value.code == "tensor-map"


def test_addresses_are_aligned(driver: Driver) -> None:
    with pytest.raises(LaunchError, match="no multiple of 16 bytes"):
        tensor_map(ROWS_OF_X, (1 << 20) + 8)
    assert driver.calls == []


@pytest.mark.parametrize(("dtype", "number"), maps._TYPES.items())
def test_types_are_those_of_the_driver(driver: Driver, dtype: str, number: int) -> None:
    """CUtensorMapDataType of cuda.h, by the names of the bindings where they are installed."""
    driver_api = pytest.importorskip("cuda.bindings.driver")
    names = {
        "f64": "FLOAT64", "f32": "FLOAT32", "tf32": "TFLOAT32", "bf16": "BFLOAT16",
        "f16": "FLOAT16", "i64": "INT64", "i32": "INT32",
    }  # fmt: skip
    wanted = f"CU_TENSOR_MAP_DATA_TYPE_{names.get(dtype, 'UINT8')}"
    assert number == getattr(driver_api.CUtensorMapDataType, wanted)


def test_other_numbers_are_those_of_the_driver() -> None:
    api = pytest.importorskip("cuda.bindings.driver")
    for width, number in maps._SWIZZLES.items():
        name = f"CU_TENSOR_MAP_SWIZZLE_{f'{width}B' if width else 'NONE'}"
        assert number == getattr(api.CUtensorMapSwizzle, name)
    assert maps._PLAIN == api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    promotion = api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    assert promotion == maps._PROMOTE_256
    assert maps._ZEROS == api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
