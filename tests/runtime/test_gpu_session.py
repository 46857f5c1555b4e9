"""The peer harness without a GPU: records, children that die, pages, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import build_gpu
import gpu.case
import render
from gpu import plot, store, table
from gpu.case import Case
from gpu.goals import judge
from gpu.groups import cases
from gpu.options import Options
from gpu.session import run, supervise
from gpu_records import BENCH, ROOT, record, square

from nautile.bundle import load_bundle

# Records


class Machine:
    """Measures by a function of the case; its context breaks where that raises."""

    def __init__(self, measure: Any) -> None:
        self.measure_case, self.broken = measure, False

    def stamp(self) -> dict[str, Any]:
        return {"gpu": "G", "date": "2026-01-02", "versions": {"torch": "2"}}

    def dead(self) -> bool:
        return self.broken

    def clean(self) -> None:
        return None

    def measure(self, case: Case, options: Options, until: float, give_up: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.measure_case(case)
        return found


def test_a_case_that_fails_costs_its_own_record(tmp_path: Path) -> None:
    wanted, path = cases(["gemm"]), tmp_path / "gpu.json"

    def measure(case: Case) -> dict[str, Any]:
        if case is wanted[1]:
            raise RuntimeError("no memory")
        return record(case, {"cublas": 1.0}) | {"made_with": {"nvrtc": "13"}}

    run(Machine(measure), wanted, path, Options(), time.time() + 60)
    found = store.read(path)
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, False, True, True]
    assert found[1]["error"] == "RuntimeError: no memory"
    assert found[1]["nautile"] is None
    assert found[0]["versions"] == {"torch": "2", "nvrtc": "13"}


def test_a_child_that_dies_costs_one_case(tmp_path: Path) -> None:
    """Children write two records each and then die in the midst of the next case."""
    wanted, path = cases(["attention"])[:7], tmp_path / "gpu.json"

    def child(until: float) -> str | None:
        done = store.read(path)
        more = [record(c, {}) for c in wanted[len(done) :][:2]]
        store.write(path, [*done, *more])
        return "the process ended with status -11"

    found = supervise(wanted, path, time.time() + 60, child)
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, True, False, True, True, False, True]
    assert "status -11" in found[2]["error"]
    assert store.read(path) == found


def test_a_child_that_wrote_why_it_ended_is_followed_by_another(tmp_path: Path) -> None:
    wanted, path = cases(["gemm"]), tmp_path / "gpu.json"

    def child(until: float) -> str | None:
        done = store.read(path)
        store.write(path, [*done, store.failure(wanted[len(done)], "its kernels do not end")])
        return None

    found = supervise(wanted, path, time.time() + 60, child)
    assert [r["error"] for r in found] == ["its kernels do not end"] * 4


def test_a_machine_on_which_nothing_runs_is_given_up(tmp_path: Path) -> None:
    wanted, calls = cases(["grouped"]), []

    def child(until: float) -> str | None:
        calls.append(until)
        return "the process ended with status 1"

    found = supervise(wanted, tmp_path / "gpu.json", time.time() + 60, child)
    assert len(calls) == 3
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert found[-1]["error"] == "not run: the process ended with status 1"
    assert found[-1]["not_run"]


def test_what_there_was_no_time_for_is_said(tmp_path: Path) -> None:
    wanted = cases(["gemm"])
    found = supervise(wanted, tmp_path / "gpu.json", time.time() - 1, lambda until: None)
    assert {r["error"] for r in found} == {"not run: the time was over"}
    assert all(r["not_run"] for r in found)


def test_later_runs_stand_unless_they_did_not_run() -> None:
    first, second = cases(["gemm"])[:2]
    old = [record(first, {"cublas": 1.0}), record(second, {"cublas": 1.0})]
    new = [record(first, {"cublas": 2.0}), store.failure(second, "late") | {"not_run": True}]
    kept = store.merged([old, new])
    assert [r["peers"]["cublas"]["ratio"] for r in kept] == [2.0, 1.0]
    wrong = store.merged([old, [store.failure(first, "wrong: C")]])
    assert [r["correct"] for r in wrong] == [False, True]


# Bundles


def test_a_case_becomes_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.case, "BUNDLES", tmp_path)
    case = Case("gemm", "products", "gemm", {"M": 128, "N": 128, "K": 64})
    row = build_gpu.build(case, "h200")
    assert "error" not in row, row["error"]
    manifest = load_bundle(case.folder).manifest
    assert [p.name for p in manifest.programs] == ["gemm"]
    assert manifest.programs[0].expected is not None  # samples to check it by
    assert row["kernels"] == len(manifest.launches) == 1
    assert row["predicted_ms"] > 0
    assert row["bytes"] == build_gpu.size_of(case.folder)


def test_what_does_not_build_says_why_and_leaves_no_old_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.case, "BUNDLES", tmp_path)
    case = Case("gemm", "products", "gemm", {"M": 128, "N": 128, "K": 64})
    case.folder.mkdir()
    (case.folder / "manifest.json").write_text("{}")
    row = build_gpu.build(case, "no such device")
    assert "no such device" in row["error"]
    assert not case.folder.exists()


def dies(case: Case, target: str) -> dict[str, Any]:
    """A build that takes its process along for one case."""
    if case.sizes["M"] == 8192:
        os._exit(1)
    return {"kernels": 1}


def test_a_process_that_dies_costs_its_own_case() -> None:
    wanted = cases(["gemm"])
    found = dict(build_gpu.each(wanted, "h200", 1, dies))
    assert {n: "error" in row for n, row in found.items()} == {
        c.name: c.sizes["M"] == 8192 for c in wanted
    }


# Pages


def rows() -> list[dict[str, Any]]:
    return [
        record(square("full", 4096), {"cudnn": 1.25}, skipped={"fa4": "not installed"}),
        store.failure(square("causal", 4096), "wrong: O | bad"),
        record(cases(["rows"])[0], {"eager": 3.0}, tflops=None),
    ]


def test_the_page_shows_goals_cases_and_failures() -> None:
    lines = table.page(rows()).splitlines()
    name = square("full", 4096).name
    assert f"| {name} | 1.0e-03 (2.0e-03) | 1 | 1.0000 | 500 TFLOP/s | 1.25 ± 0.00 |" in lines
    wanted = "| attention D128 full, 4k and 16k | 1.05 x cudnn | 1.25 (1.25 to 1.25) | 1 of 2 |"
    assert any(line.startswith(wanted) and "**partly**" in line for line in lines)
    assert any("wrong: O \\| bad" in line for line in lines)
    assert any("90% of copy" in line and "3.00 ± 0.00" in line for line in lines)
    assert "- fa4: not installed (1 cases)" in lines
    assert "G, 2026-01-02; torch 2." in lines


def test_the_figure_is_an_image_of_every_measured_goal() -> None:
    image = ElementTree.fromstring(plot.figure(rows(), "a < b"))
    space = "{http://www.w3.org/2000/svg}"
    dots = image.findall(f"{space}circle")
    measured = [j for j in judge(rows()) if j.figures]
    assert len(dots) == len(measured) >= 4
    assert any(t.text == "a < b" for t in image.findall(f"{space}text"))


def test_the_readme_section_stays_between_its_markers() -> None:
    text = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.between(text, "new") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="no markers"):
        table.between("before", "new")
    table.between((ROOT / "README.md").read_text(), "new")  # the README has them


def test_results_become_a_page_a_figure_and_a_section(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"a\n{table.BEGIN}\n{table.END}\nb\n")
    store.write(tmp_path / "gpu.json", rows())
    render.render_gpu(tmp_path, readme)
    assert table.goal_table(rows()) in readme.read_text()
    assert (tmp_path / "gpu.md").read_text() == table.page(rows())
    assert (tmp_path / "gpu.svg").read_text().startswith("<svg ")
    assert "[gpu.md](gpu.md)" in render.render(tmp_path)


def test_the_readme_shows_the_kept_results() -> None:
    path = BENCH / "results" / "gpu.json"
    readme = (ROOT / "README.md").read_text()
    shown = table.section(json.loads(path.read_text())) if path.exists() else table.BEGIN
    assert shown in readme


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(BENCH / "gpu.py"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


def test_a_dry_run_goes_through_every_case_and_is_never_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "dry.json", tmp_path / "kept.json"
    done = command("gemm", "skinny", "--dry", "--only", "M4096", "-o", str(path))
    assert done.returncode == 0, done.stderr
    found = store.read(path)
    assert [r["case"] for r in found] == [c.name for c in cases(["gemm", "skinny"], "M4096")]
    assert {r["gpu"] for r in found} == {"dry run"}
    assert all(r["peers"]["cublas"]["ratio"] > 0 for r in found)
    assert command("--merge", str(path), "-o", str(kept)).returncode == 2
    assert not kept.exists()


def test_results_of_several_runs_are_joined(tmp_path: Path) -> None:
    first, second, kept = (tmp_path / n for n in ("a.json", "b.json", "kept.json"))
    store.write(first, [record(cases(["gemm"])[0], {})])
    store.write(second, [record(cases(["gemm"])[1], {})])
    assert command("--merge", str(first), str(second), "-o", str(kept)).returncode == 0
    assert [r["case"] for r in store.read(kept)] == [c.name for c in cases(["gemm"])[:2]]


def test_an_unknown_group_is_a_usage_error() -> None:
    done = command("nothing")
    assert done.returncode == 2
    assert "gemm" in done.stderr
