"""Launching: arguments are refused by name before anything runs; kernels run in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import COLUMNS, ROWS, X
from fake_cupy import Machine, device

from nautile import samples
from nautile.errors import LaunchError
from nautile.runtime import Bundle
from nautile.runtime.device import fitting, runs_on

RNG = np.random.default_rng(3)


def good() -> dict[str, Any]:
    x = RNG.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    w = RNG.standard_normal(COLUMNS).astype(ml_dtypes.bfloat16)
    return {"x": device(x), "w": device(w.view(np.uint16))}


def expected(given: dict[str, Any], eps: float = 0.5) -> np.ndarray:
    w = np.asarray(given["w"]).view(ml_dtypes.bfloat16).astype(np.float32)
    return np.asarray(given["x"]) * w + np.float32(eps)


def test_kernels_run_in_order(folder: Path, machine: Machine) -> None:
    given = good()
    y = Bundle.load(folder).run(**given)["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given))
    assert machine.launches == [
        ("scale", (6, 1, 1), (64, 1, 1), 50_000),
        ("shift", (1, 2, 1), (128, 1, 1), 0),
    ]
    assert [Path(m["path"]).name for m in machine.loaded] == [
        "scale.sm_90.cubin",
        "shift.sm_90.cubin",
    ]


def test_a_second_run_clears_what_must_hold_zeros(folder: Path, machine: Machine) -> None:
    given = good()
    call = Bundle.load(folder).only.bind(given)
    for _ in range(3):
        y = call.launch()["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given))
    assert len(machine.loaded) == 2


def test_outputs_may_be_given(folder: Path, machine: Machine) -> None:
    given, y = good(), device(np.zeros((ROWS, COLUMNS), np.float32))
    made = Bundle.load(folder).run(given, out={"y": y})
    assert made["y"] is y
    np.testing.assert_array_equal(np.asarray(y), expected(given))


@pytest.mark.parametrize("eps", [2.0, 2, np.float64(2), np.asarray(2.0), device(np.float32(2))])
def test_scalars_are_numbers_or_arrays(folder: Path, machine: Machine, eps: Any) -> None:
    given = good()
    y = Bundle.load(folder).run(given, eps=eps)["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given, 2.0))


def test_bf16_arrays_of_ml_dtypes_are_taken(folder: Path, machine: Machine) -> None:
    given = good()
    typed = given | {"w": device(np.asarray(given["w"]).view(ml_dtypes.bfloat16))}
    y = Bundle.load(folder).run(typed)["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given))


@pytest.mark.parametrize(
    ("stream", "handle"), [(None, 0), (7, 7), (SimpleNamespace(cuda_stream=9), 9)]
)
def test_streams(folder: Path, machine: Machine, stream: Any, handle: int) -> None:
    Bundle.load(folder).run(good(), stream=stream)
    assert machine.streams == [handle, handle]


def torch_like(array: Any, dtype: str, where: str = "cuda", index: int = 0) -> Any:
    return SimpleNamespace(
        data_ptr=lambda: array.ctypes.data,
        is_contiguous=lambda: array.flags.c_contiguous,
        dtype=f"torch.{dtype}",
        shape=array.shape,
        device=SimpleNamespace(type=where, index=index),
    )


def interface(array: Any, **changes: Any) -> Any:
    facts = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False)}
    facts["strides"] = None if array.flags.c_contiguous else array.strides
    return SimpleNamespace(__cuda_array_interface__={**facts, "version": 3, **changes})


def test_torch_tensors_and_array_interfaces(folder: Path, machine: Machine) -> None:
    given = good()
    x = interface(given["x"], strides=(COLUMNS * 4, 4))
    y = Bundle.load(folder).run(x=x, w=torch_like(given["w"], "bfloat16"))["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given))


WIDE = device(np.zeros((ROWS, 2 * COLUMNS), np.float32))
SHIFTED = device(np.zeros(ROWS * COLUMNS + 1, np.float32))[1:].reshape(ROWS, COLUMNS)
F64 = device(np.zeros((ROWS, COLUMNS)))

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"x": F64}, r"input 'x' has type float64; expected float32"),
    "shape": ({"x": device(np.zeros((ROWS, 41), np.float32))}, r"input 'x' has shape \(6, 41\)"),
    "rank": ({"w": device(np.zeros((1, COLUMNS), np.uint16))}, r"input 'w' has shape \(1, 40\)"),
    "strided": ({"x": WIDE[:, ::2]}, "input 'x' is not contiguous"),
    "transposed": ({"x": device(np.zeros((COLUMNS, ROWS), np.float32)).T}, "'x' is not contig"),
    "host": ({"x": np.zeros((ROWS, COLUMNS), np.float32)}, "input 'x' lies in host memory"),
    "list": ({"x": [1.0]}, "input 'x' is a list"),
    "number": ({"x": 3.0}, "input 'x' is a float"),
    "none": ({"w": None}, "input 'w' is a NoneType"),
    "other device": ({"w": device(np.zeros(COLUMNS, np.uint16), 1)}, "'w' lies on device 1"),
    "misaligned": ({"x": SHIFTED}, "input 'x' starts at an address"),
    "int for bf16": ({"w": device(np.zeros(COLUMNS, np.int16))}, "input 'w' has type int16"),
    "unexpected": ({"z": F64}, "unexpected argument 'z'"),
    "output as input": ({"y": F64}, "unexpected argument 'y'"),
    "torch host": ({"x": torch_like(WIDE, "float32", "cpu")}, "input 'x' lies in host memory"),
    "torch type": ({"w": torch_like(WIDE, "float16")}, "input 'w' has type float16"),
    "interface strides": ({"x": interface(WIDE, strides=(4, 24))}, "input 'x' has shape"),
    "interface gaps": ({"x": interface(WIDE[:, ::2])}, "input 'x' is not contiguous"),
    "scalar array": ({"eps": device(np.zeros(2, np.float32))}, r"input 'eps' has shape \(2,\)"),
}


@pytest.mark.parametrize(("wrong", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_by_name(
    folder: Path, machine: Machine, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LaunchError, match=reason) as caught:
        Bundle.load(folder).run(good() | wrong)
    assert caught.value.code == "arguments"
    assert machine.launches == []


def test_missing_arguments_are_all_named(folder: Path, machine: Machine) -> None:
    with pytest.raises(LaunchError, match="missing input 'x'; missing input 'w'"):
        Bundle.load(folder).run()
    assert machine.launches == []


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ({"h": F64}, "unexpected output 'h'"),
        ({"y": F64}, "output 'y' has type float64"),
        ({"y": 1.0}, "output 'y' is a float"),
        ({"y": np.zeros((ROWS, COLUMNS), np.float32)}, "output 'y' lies in host memory"),
    ],
)
def test_outputs_are_checked(folder: Path, machine: Machine, out: Any, reason: str) -> None:
    with pytest.raises(LaunchError, match=reason):
        Bundle.load(folder).run(good(), out=out)
    assert machine.launches == []


def test_an_output_must_not_share_memory(folder: Path, machine: Machine) -> None:
    given = good()
    with pytest.raises(LaunchError, match="output 'y' shares memory with 'x'"):
        Bundle.load(folder).run(given, out={"y": given["x"]})
    assert machine.launches == []


def test_no_gpu(folder: Path, machine: Machine) -> None:
    machine.devices = 0
    with pytest.raises(LaunchError, match="no usable NVIDIA GPU") as caught:
        Bundle.load(folder).run(good())
    assert (caught.value.code, caught.value.exit_status) == ("no-gpu", 2)


def test_no_cupy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(LaunchError, match=r"nautile\[cuda13\]") as caught:
        Bundle.load(folder).run(x=1, w=2)
    assert caught.value.code == "no-cupy"


def test_a_device_with_too_little_shared_memory(folder: Path, machine: Machine) -> None:
    machine.shared = 48 * 1024
    with pytest.raises(LaunchError, match="kernel scale needs 50000 bytes"):
        Bundle.load(folder).run(good())
    assert machine.launches == []


def test_machine_code_that_cannot_be_loaded(folder: Path, machine: Machine) -> None:
    def broken(**how: Any) -> Any:
        raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")

    sys.modules["cupy"].RawModule = broken  # type: ignore[attr-defined]
    with pytest.raises(LaunchError, match="kernel scale cannot be loaded: CUDA_ERROR_INVALID"):
        Bundle.load(folder).run(good())


def test_machine_code_that_fits(folder: Path, machine: Machine) -> None:
    machine.capability = 89
    Bundle.load(folder).run(good())
    assert [Path(m["path"]).name for m in machine.loaded] == [
        "scale.sm_80.cubin",
        "shift.sm_80.cubin",
    ]


def test_source_where_no_machine_code_fits(folder: Path, machine: Machine) -> None:
    machine.capability = 120
    Bundle.load(folder).run(good())
    assert machine.loaded[0] == {"code": "// h = x * w\n", "options": ("--std=c++17",)}


def test_a_device_older_than_the_kernel(folder: Path, machine: Machine) -> None:
    machine.capability = 75
    with pytest.raises(LaunchError, match=r"needs sm_80; this device has compute capability 7\.5"):
        Bundle.load(folder).run(good())
    assert machine.launches == []


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_80", 80, True),
        ("sm_80", 89, True),
        ("sm_89", 86, False),
        ("sm_80", 90, False),
        ("sm_90a", 90, True),
        ("sm_120", 121, True),
        ("sm_120a", 121, False),
        ("sm_100", 120, False),
    ],
)
def test_where_machine_code_runs(architecture: str, capability: int, runs: bool) -> None:
    assert runs_on(architecture, capability) is runs


def test_the_best_machine_code_is_chosen() -> None:
    assert fitting(["sm_80", "sm_90", "sm_90a", "sm_86"], 90) == "sm_90a"
    assert fitting(["sm_80", "sm_90", "sm_86"], 89) == "sm_86"
    assert fitting(["sm_80"], 90) is None


def test_every_stored_type_can_be_passed() -> None:
    from nautile.runtime.arrays import _ACCEPTED

    assert set(_ACCEPTED) == set(samples.STORAGE)
    assert all(samples.STORAGE[t] in names for t, names in _ACCEPTED.items())


def test_nothing_but_numpy_and_cupy_is_imported(folder: Path) -> None:
    code = f"""
import sys
allowed = set(sys.stdlib_module_names) | {{"numpy", "nautile", "cupy"}}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in allowed:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
import nautile.runtime
from nautile.errors import LaunchError
bundle = nautile.runtime.Bundle.load({str(folder)!r})
try:
    bundle.run(x=1, w=2)
except LaunchError as error:
    print(error.code)
print(nautile.runtime.main(["run", {str(folder)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() in (["no-cupy", "2"], ["no-gpu", "2"]), done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_programs_are_named(folder: Path, machine: Machine) -> None:
    with pytest.raises(LaunchError, match="no program 'other' in the bundle; known: example"):
        Bundle.load(folder)["other"]
    assert Bundle.load(folder)["example"].run(good())["y"].shape == X.shape
