"""Measured choices: the fastest implementation that is right is recorded, and used from then on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import H, _scale, entry
from fake_cupy import Machine, at
from test_checking import KINDS, reference
from test_launch import expected, good

from nautile.bundle import write_entries
from nautile.bundle.write import Variant
from nautile.errors import BundleError
from nautile.runtime import Bundle, bench_command, main, run_command
from nautile.runtime.record import Record
from nautile.runtime.tuning import tune

NAMES = ("scale", "scale_b", "scale_c")


@pytest.fixture
def folder(tmp_path: Path, machine: Machine) -> Path:
    """The example with three implementations of its first launch; all do the same."""
    machine.kernels |= dict.fromkeys(NAMES, _scale)
    machine.costs |= {"scale": 3.0, "scale_b": 1.0, "scale_c": 2.0}
    plain = entry()
    first, cubins = plain.kernels[0]
    ways = tuple(
        Variant(((replace(first, name=n, text=f"// {n}\n"), cubins),), f"as {n}") for n in NAMES
    )
    made = replace(
        plain, variants=(ways, (Variant((plain.kernels[1],)),)), expected=reference(), kinds=KINDS
    )
    return write_entries(tmp_path / "bundle", [made], target="h200")


def launched(folder: Path, machine: Machine) -> str:
    """Which kernel does the first launch in a bundle opened now; its result is right."""
    machine.launches.clear()
    given = good()
    y = Bundle.load(folder).run(given)["y"]
    np.testing.assert_array_equal(np.asarray(y), expected(given))
    return machine.launches[0][0]


def test_the_fastest_is_recorded_and_used(folder: Path, machine: Machine) -> None:
    assert launched(folder, machine) == "scale"
    report = bench_command(folder, repeats=2)
    assert report["recorded"] == str(folder / "tuned.json")
    (contest,) = report["contests"]
    assert contest["launch"] == "scale"
    rows = contest["implementations"]
    assert [r["schedule"] for r in rows] == ["as scale", "as scale_b", "as scale_c"]
    assert [r["picked"] for r in rows] == [False, True, False]
    assert rows[0]["ms"] > rows[2]["ms"] > rows[1]["ms"] > 1
    assert report["implementations"] == ["as scale_b", ""]
    assert report["verdict"] == "pass"
    assert launched(folder, machine) == "scale_b"
    assert run_command(folder, check=True)["verdict"] == "pass"


def test_a_launch_is_measured_alone(folder: Path, machine: Machine) -> None:
    """Its second kernel takes no part: its cost would hide the differences."""
    machine.costs["shift"] = 1e6
    found = tune(Bundle.load(folder).only)
    assert found is not None
    assert max(found.contests[0].ms.values()) < 10


def test_the_fastest_is_not_picked_if_it_is_wrong(folder: Path, machine: Machine) -> None:
    def wrong(x: int, w: int, h: int) -> None:
        _scale(x, w, h)
        at(h, H.shape, "float32")[0] *= np.float32(1.01)

    machine.kernels["scale_b"] = wrong
    report = bench_command(folder, repeats=1)
    assert [r["picked"] for r in report["contests"][0]["implementations"]] == [False, False, True]
    assert launched(folder, machine) == "scale_c"


def test_noise_is_no_reason(folder: Path, machine: Machine) -> None:
    machine.costs |= {"scale": 1.0, "scale_b": 0.999, "scale_c": 0.998}
    bench_command(folder, repeats=1)
    assert launched(folder, machine) == "scale"


def test_another_device_is_not_meant(folder: Path, machine: Machine) -> None:
    bench_command(folder, repeats=1)
    path = folder / "tuned.json"
    path.write_text(path.read_text().replace('"Fake"', '"Another"'))
    assert launched(folder, machine) == "scale"
    bench_command(folder, repeats=1)
    assert set(json.loads(path.read_text())["devices"]) == {"Fake", "Another"}


def test_what_cannot_run_takes_no_part(folder: Path, machine: Machine) -> None:
    machine.capability = 120  # no machine code: a measurement would compile first
    assert tune(Bundle.load(folder).only) is None
    assert "contests" not in bench_command(folder, repeats=1)


def test_a_pick_that_the_device_cannot_run_gives_way(folder: Path, machine: Machine) -> None:
    bench_command(folder, repeats=1)
    real = machine.module().RawModule

    def broken(**how: Any) -> Any:
        if "scale_b" in str(how):
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
        return real(**how)

    import cupy

    cupy.RawModule = broken
    with pytest.warns(RuntimeWarning, match="scale_b cannot be loaded"):
        assert launched(folder, machine) == "scale"


def test_without_tuning_nothing_is_measured_or_written(
    folder: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(folder), "--repeats", "1", "--no-tune", "--json"]) == 0
    assert "contests" not in json.loads(capsys.readouterr().out)
    assert not (folder / "tuned.json").exists()


def test_a_bundle_written_anew_forgets(folder: Path, machine: Machine) -> None:
    bench_command(folder, repeats=1)
    record = (folder / "tuned.json").read_text()
    write_entries(folder, [entry()], target="h200")
    assert not (folder / "tuned.json").exists()
    (folder / "tuned.json").write_text(record)
    assert launched(folder, machine) == "scale"


def test_a_folder_that_cannot_be_written_to(
    folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise BundleError("read-only", code="bundle-write")

    monkeypatch.setattr(Record, "save", refuse)
    report = bench_command(folder, repeats=1)
    assert (report["recorded"], report["not_recorded"]) == (None, "read-only")
    assert report["implementations"][0] == "as scale_b"


def _set(*path: Any) -> Callable[[Any], None]:
    *steps, last, value = path

    def change(data: Any) -> None:
        for step in steps:
            data = data[step]
        data[last] = value

    return change


PICK = ("devices", "Fake", "example", 0)
DAMAGED = {
    "version": _set("version", 2),
    "devices": _set("devices", []),
    "programs": _set("devices", "Fake", 3),
    "picks": _set("devices", "Fake", "example", {}),
    "pick": _set(*PICK, 7),
    "launch": _set(*PICK, "launch", -1),
    "sources": _set(*PICK, "sources", "all"),
    "times": _set(*PICK, "ms", {"a": "fast"}),
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_refused(
    folder: Path, machine: Machine, change: Callable[[Any], None]
) -> None:
    bench_command(folder, repeats=1)
    path = folder / "tuned.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(BundleError, match=r"tuned\.json"):
        Bundle.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_record_that_is_none(folder: Path, machine: Machine, text: str) -> None:
    (folder / "tuned.json").write_text(text)
    with pytest.raises(BundleError, match=r"tuned\.json"):
        Bundle.load(folder)
