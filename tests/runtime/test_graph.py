"""CUDA graphs of a call: captured once, replayed as often as wanted, the same result each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Y
from fake_cupy import Machine, device
from test_launch import expected, good

from nautile.errors import LaunchError
from nautile.runtime import Bundle, Graph


@pytest.fixture
def given() -> dict[str, Any]:
    return good()


@pytest.fixture
def graph(folder: Path, machine: Machine, given: dict[str, Any]) -> Graph:
    y = device(np.full(Y.shape, np.nan, np.float32))
    return Bundle.load(folder).only.bind(given, out={"y": y}).graph()


def test_nothing_runs_while_it_is_captured(graph: Graph, machine: Machine) -> None:
    assert machine.launches == []
    assert np.isnan(np.asarray(graph.outputs["y"])).all()


def test_replays_clear_and_run_everything(
    graph: Graph, machine: Machine, given: dict[str, Any]
) -> None:
    """`scale` adds to what it finds, so h must be cleared inside of the graph."""
    for count in (1, 2, 3):
        y = graph.launch()["y"]
        assert [n for n, *_ in machine.launches] == ["scale", "shift"] * count
    np.testing.assert_array_equal(np.asarray(y), expected(given))


def test_replays_see_what_the_arrays_hold_now(graph: Graph, given: dict[str, Any]) -> None:
    graph.launch()
    given["x"][...] = 2 * given["x"]
    np.testing.assert_array_equal(np.asarray(graph.launch()["y"]), expected(given))


def test_replays_run_on_the_stream_given(graph: Graph, machine: Machine) -> None:
    graph.launch(7)
    assert machine.streams == [7, 7]


def test_launches_that_cannot_be_captured(
    folder: Path, machine: Machine, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Bundle.load(folder).only.bind(given)

    def refuse(*_: Any) -> None:
        raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    monkeypatch.setattr(machine, "do", refuse)
    with pytest.raises(LaunchError, match=r"cannot be captured.*Unsupported") as caught:
        call.graph()
    assert caught.value.code == "graph"
    assert machine.captured is None
