"""Many bundles in one process under a tool, and what was found told of the right one. The tool is a
program that finds fault with bundles of a name."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import compute_sanitizer
from compute_sanitizer import looked_at

TOOL = """#!{python}
import pathlib, sys, time
_, _, tool, *rest = sys.argv
log = pathlib.Path(__file__).with_suffix(".log")
with log.open("a") as out:
    out.write(tool + " " + " ".join(pathlib.Path(a).name for a in rest if "/" in a) + "\\n")
if any("slow" in a for a in rest):
    time.sleep(60)
if any("bad" in a for a in rest) and tool != "synccheck":
    print("========= COMPUTE-SANITIZER")
    print("========= Error: Race reported between Write access at k_O+0x10")
    print("========= ERROR SUMMARY: 1 error")
    sys.exit(86)
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_text(TOOL.format(python=sys.executable))
    path.chmod(0o755)
    return path


def looked(
    tool: Path, tools: list[str], names: list[str], jobs: int, seconds: float = 60.0
) -> dict[tuple[str, str], str]:
    folders = [Path("/x") / n for n in names]
    until = time.perf_counter() + seconds
    command = lambda *folders: [str(f) for f in folders]  # noqa: E731
    found = looked_at(str(tool), tools, folders, command, jobs, until)
    return {(tool, folder.name): said for tool, folder, said in found}


def processes(tool: Path) -> list[str]:
    return tool.with_suffix(".log").read_text().splitlines()


def test_clean_bundles_share_processes(tool: Path) -> None:
    names = [f"b{n}" for n in range(6)]
    found = looked(tool, ["synccheck", "initcheck"], names, jobs=4)
    assert found == {(t, n): "clean" for t in ("synccheck", "initcheck") for n in names}
    assert sorted(processes(tool)) == [
        "initcheck b0 b1 b2", "initcheck b3 b4 b5", "synccheck b0 b1 b2", "synccheck b3 b4 b5",
    ]  # fmt: skip


def test_slow_tools_have_a_process_for_each(tool: Path) -> None:
    assert set(looked(tool, ["racecheck"], ["a", "b"], jobs=1).values()) == {"clean"}
    assert sorted(processes(tool)) == ["racecheck a", "racecheck b"]


def test_a_fault_stands_with_its_own_bundle(tool: Path) -> None:
    found = looked(tool, ["memcheck", "synccheck"], ["a", "bad", "c"], jobs=2)
    assert found.pop(("memcheck", "bad")) == (
        "========= Error: Race reported between Write access at k_O+0x10 | "
        "========= ERROR SUMMARY: 1 error"
    )
    assert set(found.values()) == {"clean"}
    assert len(found) == 5
    assert sorted(processes(tool)) == [
        "memcheck a", "memcheck a bad c", "memcheck bad", "memcheck c", "synccheck a bad c",
    ]  # fmt: skip


def test_what_takes_too_long_was_not_run(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sanitizer, "LEAST", 0.5)
    found = looked(tool, ["initcheck"], ["slow", "b"], jobs=1, seconds=2.0)
    assert found == {("initcheck", "slow"): "not run", ("initcheck", "b"): "not run"}
    assert processes(tool) == ["initcheck slow b"]
