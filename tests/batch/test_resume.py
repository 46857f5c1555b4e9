"""Resuming: after any interruption, any change of the inputs and any damage to the last line, a run
that comes to its end leaves one record for each input, and what a fresh run would leave."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.batch.doubles import Instant, batch, by_input, source

from nautile.batch.results import NAME, Results
from nautile.errors import InputError
from nautile.task import Task


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILE_CACHE", "off")


class Crash(BaseException):
    """A process that dies in the middle."""


def dying(after: int) -> Instant:
    """An executor whose process dies when so many outcomes were taken."""
    taken: list[Task] = []

    def before(task: Task) -> None:
        taken.append(task)
        if len(taken) > after:
            raise Crash

    return Instant(before=before)


names = st.sampled_from(["a.nau", "b.nau", "c.nau", "sub/d.nau"])
texts = st.sampled_from(
    [source(2), source(2, "other", "u", "v"), source(3), source(2) + "\n" + source(4, "g"), "bad"]
)


class Resumption(RuleBasedStateMachine):
    """Files come, change and go; runs end early or come to their end; lines are torn."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.inputs, self.out = Path(self.home.name) / "in", Path(self.home.name) / "out"
        self.inputs.mkdir()
        self.complete = True

    def teardown(self) -> None:
        self.home.cleanup()

    @rule(name=names, text=texts)
    def write(self, name: str, text: str) -> None:
        (self.inputs / name).parent.mkdir(exist_ok=True)
        (self.inputs / name).write_text(text)
        self.complete = False

    @rule(name=names)
    def remove(self, name: str) -> None:
        (self.inputs / name).unlink(missing_ok=True)
        self.complete = False

    @rule(after=st.integers(0, 3))
    def die(self, after: int) -> None:
        self.attempt(dying(after))

    @rule(cut=st.integers(1, 200))
    def tear(self, cut: int) -> None:
        path = self.out / NAME
        if path.exists() and path.stat().st_size > cut:
            os.truncate(path, path.stat().st_size - cut)
            self.complete = False

    @rule()
    def finish(self) -> None:
        self.attempt(Instant())

    def attempt(self, executor: Instant) -> None:
        try:
            batch(self.inputs, self.out, executor, resume=True)
            self.complete = True
        except Crash:
            self.complete = False
        except InputError as error:
            self.complete = False
            if error.code != "no-inputs":
                raise

    @invariant()
    def a_complete_run_has_one_record_for_each_input(self) -> None:
        if self.complete and (self.out / NAME).exists():
            fresh = self.out.with_name("fresh")
            batch(self.inputs, fresh)
            mine, theirs = by_input(self.out), by_input(fresh)
            assert {m: kept(r) for m, r in mine.items()} == {m: kept(r) for m, r in theirs.items()}


def kept(record: Any) -> Any:
    """What does not tell how the record came about."""
    return {
        k: record[k] for k in ("program", "source", "key", "status", "index", "chosen", "input")
    }


TestResumption = Resumption.TestCase
TestResumption.settings = settings(
    max_examples=12, stateful_step_count=10, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.nau").write_text(source(2))
    (inputs / "b.nau").write_text(source(3))
    batch(inputs, tmp_path / "out")
    return inputs, tmp_path / "out"


def resumed(two: tuple[Path, Path]) -> int:
    inputs, out = two
    summary, _ = batch(inputs, out, resume=True)
    assert len(by_input(out)) == 2
    return summary.resumed


def test_what_is_there_stays(two: tuple[Path, Path]) -> None:
    before = (two[1] / NAME).read_bytes()
    assert resumed(two) == 2
    assert (two[1] / NAME).read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:-40],
        lambda data: data.replace(b'{"', b'{{', 1),
        lambda data: data + b"\0\0\0\0",
        lambda data: data + b'{"input": 3}\n',
        lambda data: data + data.splitlines(keepends=True)[0],
    ],
)  # fmt: skip
def test_damage_costs_no_record(two: tuple[Path, Path], damage: Callable[[bytes], bytes]) -> None:
    path = two[1] / NAME
    path.write_bytes(damage(path.read_bytes()))
    assert 1 <= resumed(two) <= 2
    assert path.read_bytes().endswith(b"\n")


def test_a_bundle_that_was_removed_is_written_again(two: tuple[Path, Path]) -> None:
    manifest = two[1] / "bundles" / "a.nau" / "f" / "manifest.json"
    manifest.unlink()
    assert resumed(two) == 1
    assert manifest.is_file()


def test_without_resume_results_begin_anew(two: tuple[Path, Path]) -> None:
    inputs, out = two
    (inputs / "b.nau").unlink()
    summary, _ = batch(inputs, out)
    assert (summary.resumed, len(by_input(out))) == (0, 1)


def test_two_batches_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with Results(tmp_path, resume=False), pytest.raises(InputError) as caught:
        Results(tmp_path, resume=True)
    assert caught.value.code == "batch-busy"
    with Results(tmp_path, resume=True):
        pass


def test_a_full_disk_is_told_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    row = {"index": 0, "status": "ok", "input": {"path": "a", "program": "f", "digest": "d"}}
    row["input"] = {**row["input"], "settings": "s"}  # type: ignore[dict-item]

    def full(handle: int, data: bytes) -> int:
        if len(data) > 20:
            return real(handle, data[:20])
        raise OSError(28, "No space left on device")

    with Results(tmp_path, resume=False) as results:
        results.add(row)
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(InputError) as caught:
            results.add(row)
        monkeypatch.undo()
    assert caught.value.code == "unwritable-output"
    assert (tmp_path / NAME).read_bytes().count(b"\n") == 1
    assert (tmp_path / NAME).read_bytes().endswith(b"\n")
