"""`nautile store`: what it prints, its JSON, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nautile.cli import main
from nautile.store import Store
from store.conftest import Place


@pytest.fixture
def full(sqlite: Place) -> Place:
    """A store of three results of two programs."""
    with sqlite.open() as store:
        for n, term in enumerate("aab"):
            made_of = {"term": term, "target": f"gpu{n}"}
            store.put(f"k{n}", {"n": n}, {"a": b"same", "b": bytes([n])}, ingredients=made_of)
    return sqlite


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["store", *map(str, arguments)])
    return status, *capsys.readouterr()


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    status, out, _ = run(capsys, *arguments, "--json")
    return status, json.loads(out)


def test_stats(full: Place, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = as_json(capsys, "stats", full.artifacts)
    assert (status, found["entries"], found["terms"], found["shared_bytes"]) == (0, 3, 2, 8)
    status, out, _ = run(capsys, "stats", full.artifacts)
    assert status == 0
    assert "3 results of 2 programs" in out
    assert "2 results of programs that are there again differ in target" in out


def test_verify_and_repair(full: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verify", full.artifacts)[0] == 0
    with full.open() as store:
        entry = store.get("k1")
        assert entry is not None
        full.object(entry.artifacts["b"]).unlink()
    status, out, _ = run(capsys, "verify", full.artifacts)
    assert status == 1
    assert f"missing     {entry.artifacts['b']} of k1" in out
    assert run(capsys, "verify", full.artifacts, "--repair")[0] == 0
    status, found = as_json(capsys, "verify", full.artifacts)
    assert (status, found["sound"], found["entries"]) == (0, True, 2)


def test_gc(full: Place, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = as_json(capsys, "gc", full.artifacts, "--max-bytes", "0", "--dry-run")
    assert (status, found["entries"], found["dry_run"]) == (0, 3, True)
    assert as_json(capsys, "gc", full.artifacts, "--older-than", "1.5h")[1]["entries"] == 0
    assert as_json(capsys, "gc", full.artifacts, "--max-bytes", "20G")[1]["entries"] == 0
    found = as_json(capsys, "gc", full.artifacts, "--max-bytes", "0", "--keep", "k1")[1]
    assert (found["entries"], found["remaining_entries"]) == (2, 1)


def test_gc_of_results_of_other_releases(full: Place, capsys: pytest.CaptureFixture[str]) -> None:
    from nautile import task

    with full.open() as store:
        store.put("current", {}, ingredients=task.versions() | {"term": "c"})
    assert as_json(capsys, "gc", full.artifacts, "--stale")[1]["entries"] == 3
    with full.open() as store:
        assert list(store.keys()) == ["current"]


@pytest.mark.parametrize("option", ["--older-than=soon", "--max-bytes=5X", "--grace=-1h"])
def test_measures_that_are_none(
    full: Place, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    status, _, error = run(capsys, "gc", full.artifacts, option)
    assert status == 2
    assert "a number and one of" in error


def test_export_and_import(full: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = as_json(capsys, "export", full.artifacts, tmp_path / "a.tar")
    assert (status, found["entries"], found["artifacts"]) == (0, 3, 4)
    Store.open(tmp_path / "other").close()
    status, found = as_json(capsys, "import", tmp_path / "other", tmp_path / "a.tar")
    assert (status, found["added"]) == (0, 3)
    (tmp_path / "a.tar").write_bytes(b"damaged")
    status, _, error = run(capsys, "import", tmp_path / "other", tmp_path / "a.tar")
    assert (status, "a.tar" in error) == (2, True)


@pytest.mark.parametrize("command", ["stats", "verify", "gc"])
def test_no_store_is_made_by_looking_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status, out, error = run(capsys, command, tmp_path / "none")
    assert (status, out) == (2, "")
    assert "there is no store at" in error
    assert not (tmp_path / "none").exists()


def test_a_server_is_named_by_its_url(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as store:
        store.put("k", {}, {"a": b"1"})
    monkeypatch.setenv("NAUTILE_STORE", place.address)
    monkeypatch.setenv("NAUTILE_ARTIFACTS", str(place.artifacts))
    status, found = as_json(capsys, "stats")
    assert (status, found["backend"], found["entries"]) == (0, place.backend, 1)


def test_the_command_line_starts_without_a_database() -> None:
    code = (
        "import sys, nautile.cli; print([m for m in ('sqlalchemy', 'alembic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
