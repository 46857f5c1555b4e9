"""The check on a device: right kernels pass, and each way of being wrong is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import COLUMNS, ROWS, X, Y, entry
from fake_cupy import Machine, at

from nautile import samples
from nautile.bundle import write_entries
from nautile.errors import BundleError, LaunchError
from nautile.runtime import Bundle, bench_command, main, run_command

KINDS = {"x": "normal:3", "w": "uniform:-1:1", "eps": "uniform:0.5:0.5"}
POSITIONS = ([0, 2, ROWS - 1], [0, 1, 17, COLUMNS - 1])


def reference(called: str = "x") -> dict[str, Any]:
    """What the example must give at POSITIONS, from NumPy alone; `x` is drawn by that name."""
    x = (
        samples.values(KINDS["x"], 11, called, np.arange(X.size))
        .reshape(X.shape)
        .astype(np.float32)
    )
    w = samples.values(KINDS["w"], 11, "w", np.arange(COLUMNS)).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float64) * w.astype(np.float64) + 0.5
    naive = (x * w.astype(np.float32) + np.float32(0.5)).astype(np.float64)
    grid = np.ix_(*POSITIONS)
    output = {
        "buffer": "y", "dtype": "f32", "positions": [list(p) for p in POSITIONS],
        "reference": exact[grid].ravel().tolist(), "naive": naive[grid].ravel().tolist(),
        "floor": 0.0,
    }  # fmt: skip
    return {
        "version": 1, "seed": 11,
        "cases": [{"case": "ordinary", "kinds": KINDS, "outputs": [output]}],
    }  # fmt: skip


def write(folder: Path, expected: Any) -> Path:
    made = replace(entry(), expected=expected, kinds=KINDS)
    return write_entries(folder, [made], target="h200")


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    return write(tmp_path / "checked", reference())


@pytest.mark.parametrize("drawn_as", [{"x": "before"}, {"x": "before", "w": "w"}])
def test_inputs_are_drawn_by_the_names_that_the_reference_tells(
    drawn_as: dict[str, str], tmp_path: Path, machine: Machine
) -> None:
    """As of a bundle whose tensors were renamed."""
    other = reference(called="before")
    assert Bundle.load(write(tmp_path / "plain", other)).check()["verdict"] == "fail"
    told = write(tmp_path / "told", other | {"drawn_as": drawn_as})
    assert Bundle.load(told).check()["verdict"] == "pass"


@pytest.mark.parametrize("drawn_as", [["x"], {"x": 3}, "x"])
def test_names_to_draw_by_that_are_none_are_refused(
    drawn_as: object, tmp_path: Path, machine: Machine
) -> None:
    damaged = write(tmp_path / "damaged", reference() | {"drawn_as": drawn_as})
    with pytest.raises(BundleError):
        Bundle.load(damaged).check()


def test_right_kernels_pass(checked: Path, machine: Machine) -> None:
    report = Bundle.load(checked).check()
    assert report["verdict"] == "pass"
    assert [c["name"] for c in report["checks"]] == [
        "ordinary: y is written",
        "ordinary: y is right",
    ]
    assert report["samples"] == 12
    assert 0 < report["max_relative_error"] < 1e-6
    assert len(machine.launches) == 4  # two kernels, twice


def _spoil(change: Callable[[np.ndarray], None]) -> Callable[[int, int, int], None]:
    def shift(h: int, eps: int, y: int) -> None:
        out = at(y, Y.shape, "float32")
        out[...] = at(h, X.shape, "float32") + at(eps, (), "float32")
        change(out)

    return shift


def _factor(out: np.ndarray) -> None:
    out[2] *= 1.00001


def _element(out: np.ndarray) -> None:
    out[0, 17] += 1e-3


def _nan(out: np.ndarray) -> None:
    out[ROWS - 1, COLUMNS - 1] = np.nan


@pytest.mark.parametrize("change", [_factor, _element, _nan])
def test_wrong_values_fail(
    checked: Path, machine: Machine, change: Callable[[np.ndarray], None]
) -> None:
    machine.kernels["shift"] = _spoil(change)
    report = Bundle.load(checked).check()
    assert report["verdict"] == "fail"
    assert [c["passed"] for c in report["checks"]] == [True, False]


def test_an_unwritten_element_that_nobody_samples_fails(checked: Path, machine: Machine) -> None:
    def shift(h: int, eps: int, y: int) -> None:
        total = at(h, X.shape, "float32") + at(eps, (), "float32")
        out = at(y, Y.shape, "float32")
        kept = out[4, 5]
        out[...] = total
        out[4, 5] = kept

    machine.kernels["shift"] = shift
    report = Bundle.load(checked).check()
    assert report["verdict"] == "fail"
    assert [c["passed"] for c in report["checks"]] == [False, True]
    assert "4 bytes differ" in report["checks"][0]["detail"]


def test_the_commands_carry_the_verdict(checked: Path, machine: Machine) -> None:
    assert run_command(checked, check=True)["verdict"] == "pass"
    assert bench_command(checked, repeats=1)["verdict"] == "pass"
    machine.kernels["shift"] = _spoil(_nan)
    assert main(["run", str(checked), "--check", "--json"]) == 3


def test_a_bundle_without_reference_says_so(folder: Path, machine: Machine) -> None:
    with pytest.raises(LaunchError, match="holds no reference") as caught:
        run_command(folder, check=True)
    assert caught.value.code == "no-reference"
    assert "verdict" not in bench_command(folder, repeats=1)


DAMAGED: dict[str, tuple[Any, ...]] = {
    "version": ("version", 2),
    "no seed": ("seed", None),
    "outside": ("cases", 0, "outputs", 0, "positions", [[0, 2, ROWS], [0, 1, 17, 39]]),
    "negative": ("cases", 0, "outputs", 0, "positions", [[0, 2, -1], [0, 1, 17, 39]]),
    "rank": ("cases", 0, "outputs", 0, "positions", [[0, 2, 5]]),
    "too few values": ("cases", 0, "outputs", 0, "reference", [1.0]),
    "text": ("cases", 0, "outputs", 0, "naive", ["one"] * 12),
    "type": ("cases", 0, "outputs", 0, "dtype", "f64"),
    "unknown output": ("cases", 0, "outputs", 0, "buffer", "h"),
    "no outputs": ("cases", 0, "outputs", None),
    "kinds": ("cases", 0, "kinds", ["normal"]),
    "unknown kind": ("cases", 0, "kinds", {"x": "gaussian"}),
    "empty grid": (
        *("cases", 0, "outputs", 0),
        {
            "buffer": "y",
            "dtype": "f32",
            "positions": [[], [0]],
            "reference": [],
            "naive": [],
            "floor": 0.0,
        },
    ),
}


@pytest.mark.parametrize("path", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_reference(tmp_path: Path, machine: Machine, path: tuple[Any, ...]) -> None:
    expected = copy.deepcopy(reference())
    *steps, last, value = path
    place: Any = expected
    for step in steps:
        place = place[step]
    place[last] = value
    with pytest.raises(BundleError):
        Bundle.load(write(tmp_path / "bundle", expected)).check()
    assert machine.launches == []


def test_no_cases_is_no_pass(tmp_path: Path, machine: Machine) -> None:
    empty = reference() | {"cases": []}
    assert Bundle.load(write(tmp_path / "bundle", empty)).check()["verdict"] == "fail"
