"""Batches on disks that are full or may not be written: told by name, and completed by resuming."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.batch.doubles import Instant, by_input, source

from nautile.bundle import load_bundle
from nautile.cli import main
from nautile.executor import Place
from nautile.store import Store

FILES = 40
SIZES = {"results": "600k", "store": "2m", "both": "2m"}  # too little for so many files


class Workers(Instant):
    """An executor that finishes at once, as the command line takes one."""

    jobs = 2

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


@pytest.fixture(autouse=True)
def _at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Place, "executor", lambda place: Workers())


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(FILES):
        (folder / f"{n:02}.nau").write_text(source(2 + n // 2, name=f"p{n}"))
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, which `mounted` changes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "nautile", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def mounted(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def run(*arguments: object) -> int:
    return main(["batch", "--no-compile", "--quiet", "--resume", *map(str, arguments)])


def complete(out: Path, store: Path) -> None:
    """All that must be true of the batch at its end."""
    found = by_input(out)
    assert len(found) == FILES
    assert {r["status"] for r in found.values()} == {"ok"}
    for row in found.values():
        assert [p.name for p in load_bundle(out / row["bundle"]).manifest.programs] == [
            row["program"]
        ]
    assert json.loads((out / "summary.json").read_text())["complete"]
    left = [p for p in out.rglob(".*") if p.name != ".batch.lock"]
    assert left == [], "something half-made is left"
    with Store.open(store) as opened:
        assert opened.verify().sound


@pytest.mark.parametrize("full", SIZES)
def test_a_full_disk(
    full: str, inputs: Path, disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each record that was written before stays, and the batch ends with the reason."""
    out = (tmp_path if full == "store" else disk) / "out"
    store = (tmp_path if full == "results" else disk) / "store"
    mounted(disk, f"size={SIZES[full]}")
    assert run(inputs, "-o", out, "--store", store) == 2
    said = capsys.readouterr().err
    assert "No space left" in said or "full" in said
    assert str(disk) in said
    before = by_input(out)
    assert len(before) < FILES
    mounted(disk, "size=64m")
    assert run(inputs, "-o", out, "--store", store) == 0
    complete(out, store)
    after = by_input(out)
    assert {m: after[m] for m in before} == before


@pytest.mark.parametrize("where", ["results", "store"])
def test_a_disk_that_may_not_be_written(
    where: str, inputs: Path, disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = (disk if where == "results" else tmp_path) / "out"
    store = (disk if where == "store" else tmp_path) / "store"
    mounted(disk, "size=64m")
    few = inputs / "0*.nau"
    assert run(few, "-o", out, "--store", store) == 0
    before = by_input(out)
    mounted(disk, "ro")
    assert run(inputs, "-o", out, "--store", store) == 2
    said = capsys.readouterr().err
    assert "Read-only" in said or "read-only" in said
    assert str(disk) in said
    assert by_input(out).items() >= before.items()
    mounted(disk, "rw")
    assert run(inputs, "-o", out, "--store", store) == 0
    complete(out, store)
