"""The harness around the measurements: cases, children that die, and the page of results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import cases  # noqa: E402
import render  # noqa: E402
import spine  # noqa: E402


def record(case: str, **changes: Any) -> dict[str, Any]:
    return {
        "group": "rows", "case": case, "dtype": "bf16", "shape": {"M": 4}, "correct": True,
        "nautile": {"ms": 0.5, "kernels": 1}, "peers": {"eager": {"ms": 1.25}}, "gpu": "G",
        "date": "2026-01-02", "versions": {"torch": "2"}, "of_copy": 0.875,
        "relative_error": 1e-3, "naive_error": 2e-3, **changes,
    }  # fmt: skip


def test_the_page_shows_ratios_and_failures(tmp_path: Path) -> None:
    rows = [
        record("a"),
        record("b", correct=False, nautile=None, peers={}, error="hangs | here"),
        record("c", peers={"cublas": {"ms": 0.25}}, tflops={"nautile": 123.4}),
    ]
    (tmp_path / "spine.json").write_text(json.dumps(rows))
    lines = render.render(tmp_path).splitlines()
    assert (
        "| a | yes | 1.0e-03 (2.0e-03) | 1 | 0.5000 | 88% of copy | 2.50 (1.2500 ms) |  |" in lines
    )
    assert (
        "| c | yes | 1.0e-03 (2.0e-03) | 1 | 0.5000 | 123 TFLOP/s |  | 0.50 (0.2500 ms) |" in lines
    )
    assert any(r"hangs \| here" in line and line.startswith("| b | no |") for line in lines)
    widths = {line.replace(r"\|", "").count("|") for line in lines if line.startswith("|")}
    assert len(widths) == 1


def test_case_names_are_folders_of_their_own() -> None:
    found = cases.cases(("rows", "gemm", "attention"))
    assert len({c.folder for c in found}) == len(found)
    assert {c.group for c in found} == {"rows", "gemm", "attention"}


def test_a_dying_child_costs_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children do two cases each and then die; every case gets a record, in order."""
    wanted = cases.cases(("attention",))

    def child(groups: tuple[str, ...], log: Path, deadline: float, peers: bool) -> str | None:
        done = len(log.read_text().splitlines())
        for case in wanted[done : done + 1]:
            spine._append(log, record(case.name))
        return "the process ended with status 4"

    monkeypatch.setattr(spine, "_child", child)
    options = argparse.Namespace(output=str(tmp_path / "spine.json"), peers=True)
    found = spine._records(("attention",), time.monotonic() + 60, options)
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, False, True]
    assert "status 4" in found[1]["error"]
    late = spine._records(("attention",), time.monotonic() - 1, options)
    assert {r["error"] for r in late} == {"not run: the time was over"}
