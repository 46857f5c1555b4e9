"""Runs of a batch over an executor that finishes at once: sharing, keeping, failing, resuming."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from tests.batch.doubles import Instant, batch, by_input, rows, source

from nautile.batch import Stopped
from nautile.batch.inputs import Shard
from nautile.bundle import load_bundle
from nautile.errors import ExecutionError, ExtractionError, NautileError
from nautile.executor import Done
from nautile.task import Settings, Task


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Six programs in five files, of three keys; and three files that hold none."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.nau").write_text(source(2) + "\n" + source(3, "g"))
    (folder / "b.nau").write_text(source(2, "other", "left", "right", "Length"))
    (folder / "c.nau").write_text(source(3, "f", "u", "v"))
    (folder / "sub" / "d.nau").write_text(source(4))
    (folder / "sub" / "e.nau").write_text(source(2))
    (folder / "bad.nau").write_text("def broken(")
    (folder / "binary.nau").write_bytes(b"\xff\xfe\0")
    (folder / "empty.nau").write_text("")
    return folder


def test_each_key_is_computed_once(inputs: Path, tmp_path: Path) -> None:
    summary, executor = batch(inputs, tmp_path / "out")
    assert len(executor.tasks) == len({t.key for t in executor.tasks}) == 3
    assert (summary.inputs, summary.ok, summary.failed) == (9, 6, 3)
    assert (summary.computed, summary.cached, summary.distinct) == (3, 3, 3)
    assert summary.exit_status == 1


def test_every_input_has_one_record_with_its_own_names(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out")
    found = by_input(tmp_path / "out")
    assert [r["index"] for r in rows(tmp_path / "out")] == list(range(9))
    other = found[str(inputs / "b.nau"), "other"]
    assert (other["program"], other["source"]) == ("other", str(inputs / "b.nau"))
    assert [k["outputs"] for k in other["chosen"]["kernels"]] == [["right"]]
    assert other["same_as"] == {"path": str(inputs / "a.nau"), "program": "f"}
    codes = {Path(p).name: r["error"]["code"] for (p, _), r in found.items() if r["error"]}
    assert codes == {"bad.nau": "syntax", "binary.nau": "not-text", "empty.nau": "no-program"}


def test_bundles_load_and_have_their_own_names(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out")
    for row in rows(tmp_path / "out"):
        if row["bundle"]:
            loaded = load_bundle(tmp_path / "out" / row["bundle"])
            assert [p.name for p in loaded.manifest.programs] == [row["program"]]
    bundle = load_bundle(tmp_path / "out" / "bundles" / "b.nau" / "other")
    assert [b.name for b in bundle.manifest.buffers] == ["left", "right"]
    assert {p.name for p in (tmp_path / "out" / "bundles" / "a.nau").iterdir()} == {"f", "g"}


def test_a_second_run_computes_nothing_and_parses_nothing(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(inputs, tmp_path / "out")
    for name in ("bad", "binary", "empty"):
        (inputs / f"{name}.nau").unlink()

    def parsed(*arguments: object) -> None:
        raise AssertionError("a file was parsed again")

    monkeypatch.setattr("nautile.lang.parse", parsed)
    summary, executor = batch(inputs, tmp_path / "second")
    assert executor.tasks == []
    assert (summary.ok, summary.cached, summary.computed) == (6, 6, 0)
    for row in rows(tmp_path / "second"):
        load_bundle(tmp_path / "second" / row["bundle"])


def test_other_settings_are_other_results(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out")
    summary, executor = batch(inputs, tmp_path / "out", settings=Settings(numerics="exact"))
    assert len(executor.tasks) == 3
    assert summary.cached == 3


def test_a_damaged_artifact_is_computed_again(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out")
    damaged = 0
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and path.read_bytes().startswith(b'{\n "version"'):  # a reference
            path.chmod(0o644)
            path.write_bytes(b"[" + path.read_bytes()[1:])
            damaged += 1
    assert damaged
    summary, executor = batch(inputs, tmp_path / "again")
    assert len(executor.tasks) > 0
    assert summary.ok == 6
    for row in rows(tmp_path / "again"):
        if row["bundle"]:
            load_bundle(tmp_path / "again" / row["bundle"])


def failing(code: str) -> Instant:
    """Every program times three fails."""
    error = (
        ExtractionError("no schedule") if code == "extraction" else ExecutionError("", code=code)
    )
    return Instant(lambda task: error if "3.0" in task.text and task.program != "f" else None)


@pytest.mark.parametrize("code", ["extraction", "worker-died"])
def test_a_failure_is_shared_by_programs_of_its_key(
    code: str, inputs: Path, tmp_path: Path
) -> None:
    summary, executor = batch(inputs, tmp_path / "out", failing(code))
    assert len(executor.tasks) == 3
    assert summary.errors[code] == 2
    failed = [r for r in rows(tmp_path / "out") if (r["error"] or {}).get("code") == code]
    assert [Path(r["source"]).name for r in failed] == ["a.nau", "c.nau"]
    assert failed[1]["same_as"]["program"] == "g"


def test_failures_that_a_program_has_by_itself_are_kept(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out", failing("extraction"))
    summary, executor = batch(inputs, tmp_path / "second")
    assert executor.tasks == []
    assert summary.errors["extraction"] == 2


@pytest.mark.parametrize("code", ["memory-limit", "saturation"])
def test_failures_of_the_machine_are_tried_again(code: str, inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out", failing(code))
    summary, executor = batch(inputs, tmp_path / "out", resume=True)
    assert len(executor.tasks) == 1
    assert (summary.ok, summary.resumed) == (6, 7)
    assert len(by_input(tmp_path / "out")) == 9


def test_fail_fast_stops_at_the_first_failure_and_resume_goes_on(
    inputs: Path, tmp_path: Path
) -> None:
    (inputs / "a.nau").rename(inputs / "z.nau")
    with pytest.raises(Stopped):
        batch(inputs, tmp_path / "out", fail_fast=True)
    assert sum(bool(r["error"]) for r in rows(tmp_path / "out")) == 1
    summary, _ = batch(inputs, tmp_path / "out", resume=True)
    assert (summary.inputs, summary.ok) == (9, 6)
    assert len(by_input(tmp_path / "out")) == 9


def test_dims_apply_where_a_program_has_the_size(inputs: Path, tmp_path: Path) -> None:
    _, executor = batch(inputs, tmp_path / "out", dims={"N": 128})
    assert {t.dims.get("N") for t in executor.tasks if "Length" not in t.text} == {128}
    assert all("Length" not in t.text or t.dims == {} for t in executor.tasks)


def test_shards_over_one_store_are_the_whole(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "whole")
    made: list[tuple[str, str | None]] = []
    for number in range(1, 13):  # some of them are empty
        out = tmp_path / f"part{number}"
        summary, executor = batch(inputs, out, shard=Shard(number, 12), dims={"Length": 64})
        assert not executor.tasks  # the store has them from the run over all
        assert summary.complete
        made += by_input(out)
    assert sorted(map(str, made)) == sorted(map(str, by_input(tmp_path / "whole")))


class Timed(Instant):
    """Gives outcomes that were measured."""

    def next(self, timeout: float | None = None) -> Done | None:
        done = super().next(timeout)
        if done is None:
            return None
        report = {"program": done.task.program, "ms": 2.0}
        record = {**done.outcome.record, "measurement": report}
        outcome = msgspec.structs.replace(done.outcome, record=record)
        return Done(done.ticket, done.task, outcome)


def test_what_was_never_timed_is_timed_once(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "untimed")
    _, first = batch(inputs, tmp_path / "first", Timed(), measure=True)
    _, second = batch(inputs, tmp_path / "second", Timed(), measure=True)
    assert (len(first.tasks), len(second.tasks)) == (3, 0)
    timed = [r for r in rows(tmp_path / "second") if r["status"] == "ok"]
    assert [r["measurement"]["program"] for r in timed] == [r["program"] for r in timed]
    assert len(timed) == 6


def test_a_size_that_no_program_has_is_told(inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(NautileError) as caught:
        batch(inputs, tmp_path / "out", dims={"Z": 128})
    assert caught.value.code == "unknown-name"


def test_the_task_holds_all_that_is_needed(inputs: Path, tmp_path: Path) -> None:
    _, executor = batch(inputs, tmp_path / "out")
    for task in executor.tasks:
        assert isinstance(task, Task)
        assert task.text == Path(task.filename).read_text()


def test_records_are_whole_json_lines(inputs: Path, tmp_path: Path) -> None:
    batch(inputs, tmp_path / "out")
    text = (tmp_path / "out" / "results.jsonl").read_text()
    assert text.endswith("\n")
    for line in text.splitlines():
        row = json.loads(line)
        assert {"program", "source", "key", "status", "error", "certificate", "index"} <= row.keys()
        assert row["input"].keys() == {"path", "program", "digest", "settings"}


def test_pipes_and_folders_are_no_files(inputs: Path, tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for without end."""
    os.mkfifo(inputs / "pipe.nau")
    (inputs / "folder.nau").mkdir()
    (inputs / "folder.nau" / "inside.nau").write_text(source(2))
    os.symlink("/dev/zero", inputs / "zero.nau")
    summary, _ = batch(inputs, tmp_path / "out")
    found = {Path(p).name: r for (p, _), r in by_input(tmp_path / "out").items()}
    assert found["pipe.nau"]["error"]["code"] == found["zero.nau"]["error"]["code"] == "not-a-file"
    assert found["inside.nau"]["status"] == "ok"
    assert summary.errors["not-a-file"] == 2


def test_a_file_of_many_programs_is_one_input_each(inputs: Path, tmp_path: Path) -> None:
    many = "\n".join(source(2 + n % 3, f"p{n}") for n in range(60))
    (inputs / "many.nau").write_text(many)
    summary, executor = batch(inputs, tmp_path / "out")
    assert summary.inputs == 69
    assert len(executor.tasks) == 3
    assert len(by_input(tmp_path / "out")) == 69


LONG = "n" * 400
WIDE = "ñ" * 180  # 360 bytes


def test_names_that_no_folder_can_have_cost_nothing(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    deep = inputs.joinpath(*["d" * 90] * 14)
    deep.mkdir(parents=True)
    (inputs / "a.nau").write_text(source(2))
    (inputs / "b.nau").write_text(source(2, LONG, "x" * 400) + "\n" + source(2, WIDE, "größe"))
    (deep / "c.nau").write_text(source(2, "größe", "ü"))
    summary, _ = batch(inputs, tmp_path / "out")
    assert (summary.ok, summary.failed) == (4, 0)
    for row in rows(tmp_path / "out"):
        loaded = load_bundle(tmp_path / "out" / row["bundle"])
        assert [p.name for p in loaded.manifest.programs] == [row["program"]]
