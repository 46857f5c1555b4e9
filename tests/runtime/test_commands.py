"""Sample inputs, NPZ files, timing and the launcher's own command line, on the host's fake GPU."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import COLUMNS, H, X, entry
from fake_cupy import Machine, at

from nautile import samples
from nautile.bundle import write_entries
from nautile.errors import LaunchError
from nautile.runtime import Bundle, bench_command, main, run_command
from nautile.runtime.draw import POISONS, inputs, poison


def sample_arrays(seed: int = 0) -> tuple[Any, Any]:
    x = samples.values("normal", seed, "x", np.arange(X.size)).reshape(X.shape)
    w = samples.values("normal", seed, "w", np.arange(COLUMNS))
    return x.astype(np.float32), w.astype(ml_dtypes.bfloat16)


def test_inputs_are_the_samples_of_the_recipe(folder: Path, machine: Machine) -> None:
    made = inputs(Bundle.load(folder).only, seed=5)
    x, w = sample_arrays(5)
    np.testing.assert_array_equal(np.asarray(made["x"]), x)
    np.testing.assert_array_equal(np.asarray(made["w"]), w.view(np.uint16))
    assert list(made) == ["x", "w"]  # eps keeps its default


def test_poison_is_nan_in_every_float_type(machine: Machine) -> None:
    for name, storage in samples.STORAGE.items():
        array = np.zeros((2, 3), storage)
        poison(array, POISONS[0])
        if name not in ("i64", "i32", "i8", "bool"):
            assert np.isnan(samples.decode(array, name)).all(), name


def test_run_with_files(folder: Path, machine: Machine, tmp_path: Path) -> None:
    x, w = sample_arrays(8)
    np.savez(tmp_path / "in.npz", x=x, w=w, eps=np.float32(1.5))
    report = run_command(folder, inputs=tmp_path / "in.npz", output=tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as held:
        np.testing.assert_array_equal(held["y"], x * w.astype(np.float32) + np.float32(1.5))
        assert report["outputs"]["y"]["max"] == pytest.approx(float(held["y"].max()))
    assert report["outputs"]["y"] | {"min": 0, "max": 0} == {
        "shape": [6, 40], "dtype": "f32", "finite": 1.0, "min": 0, "max": 0,
    }  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "in.npz", "out.npz"]


def test_npz_arrays_are_checked_by_name(folder: Path, machine: Machine, tmp_path: Path) -> None:
    x, w = sample_arrays()
    np.savez(tmp_path / "in.npz", x=x.astype(np.float64), w=w)
    with pytest.raises(LaunchError, match="input 'x' has type float64"):
        run_command(folder, inputs=tmp_path / "in.npz")
    np.savez(tmp_path / "in.npz", x=x)
    with pytest.raises(LaunchError, match="missing input 'w'"):
        run_command(folder, inputs=tmp_path / "in.npz")
    assert machine.launches == []


@pytest.mark.parametrize("what", ["missing", "text", "pickle", "bare", "cut", "folder"])
def test_npz_files_that_are_none(folder: Path, machine: Machine, tmp_path: Path, what: str) -> None:
    path = tmp_path / "in.npz"
    if what == "text":
        path.write_text("x = 1")
    elif what == "pickle":
        np.savez(path, x=np.asarray([{"a": 1}], dtype=object))
    elif what == "bare":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif what == "cut":
        np.savez(path, x=np.zeros(1000))
        path.write_bytes(path.read_bytes()[:500])
    elif what == "folder":
        path.mkdir()
    with pytest.raises(LaunchError):
        run_command(folder, inputs=path)


def test_an_output_called_file_can_be_saved(tmp_path: Path, machine: Machine) -> None:
    from nautile.runtime.files import save_outputs

    save_outputs({"file": np.arange(3), "allow_pickle": np.arange(2)}, tmp_path / "o.npz")
    with np.load(tmp_path / "o.npz") as held:
        assert sorted(held.files) == ["allow_pickle", "file"]
        np.testing.assert_array_equal(held["file"], np.arange(3))
    assert zipfile.ZipFile(tmp_path / "o.npz").testzip() is None


def test_outputs_that_cannot_be_saved(folder: Path, machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot be written") as caught:
        run_command(folder, output=tmp_path / "nowhere" / "o.npz")
    assert caught.value.code == "output"


def test_bench_reports_medians_and_least_bytes(folder: Path, machine: Machine) -> None:
    report = bench_command(folder, repeats=4)
    least = 2 * 6 * 40 * 4 + 40 * 2 + 4  # x and y, w, eps; the intermediate does not count
    assert report["least_bytes"] == least
    assert report["kernels"] == 2
    rounds = 2  # every event of the fake says 0.5 ms, and a sample lasts 1 ms
    assert report["ms"] == pytest.approx(0.5 / (rounds * report["input_sets"]))
    assert report["of_copy"] == pytest.approx(report["gb_per_s"] / report["copy_gb_per_s"])
    assert report["gpu"] == "Fake"
    assert report["graph"] is True
    assert set(report["latency_ms"]) == {"launch", "graph"}
    assert all(0 < t < 1e4 for t in report["latency_ms"].values())
    with pytest.raises(LaunchError, match="at least 1"):
        bench_command(folder, repeats=0)


def test_input_sets_pass_the_cache(folder: Path, machine: Machine) -> None:
    one = 3 * 6 * 40 * 4 + 40 * 2 + 4
    assert bench_command(folder, repeats=1)["input_sets"] == -(-3 * 4096 // one)


def test_the_command_line(
    folder: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["y"]["finite"] == 1.0
    assert main(["bench", str(folder), "--repeats", "2"]) == 0
    assert "copy_gb_per_s" in capsys.readouterr().out
    assert main(["run", str(folder / "nowhere")]) == 2
    assert "not a folder" in capsys.readouterr().err
    assert main(["run", str(folder), "--program", "other"]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["launch", str(folder)])
    assert caught.value.code == 2


def test_programs_of_one_bundle_are_all_run(tmp_path: Path, machine: Machine) -> None:
    from dataclasses import replace

    both = [entry(), replace(entry(), name="again")]
    folder = write_entries(tmp_path / "two", both, target="h200")
    report = run_command(folder)
    assert [r["program"] for r in report["programs"]] == ["example", "again"]
    assert run_command(folder, program="again")["program"] == "again"
    with pytest.raises(LaunchError, match="several programs: example, again"):
        run_command(folder, output=tmp_path / "o.npz")
    with pytest.raises(LaunchError, match="several programs"):
        Bundle.load(folder).run()


def test_unwritten_elements_are_found(folder: Path, machine: Machine) -> None:
    from nautile.runtime.checking import twice

    program = Bundle.load(folder).only
    assert twice(program, inputs(program, 0))[1] == {"y": 0}

    def partly(h: int, eps: int, y: int) -> None:
        at(y, X.shape, "float32")[:3] = at(h, H.shape, "float32")[:3]

    machine.kernels["shift"] = partly
    assert twice(program, inputs(program, 0))[1] == {"y": 3 * COLUMNS * 4}
