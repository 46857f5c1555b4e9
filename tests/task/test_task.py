"""Tasks: what their keys depend on, and what running one gives."""

from __future__ import annotations

from dataclasses import replace as replaced
from pathlib import Path

import msgspec
import pytest

from nautile import lang, provenance
from nautile.errors import NautileError
from nautile.options import Options
from nautile.stages import Optimization
from nautile.task import Outcome, Pack, Settings, Task, pack_of, run, tasks_of

ADD = "def add(x: f32[N], y: f32[N], *, N=4096) -> f32[N]:\n    z[n] = x[n] + y[n]\n    return z\n"
SOUND = "with exact:\n    mine = a - 0 >> a\n"
UNSOUND = "with exact:\n    wrong = a + 1 >> a\n"


def key(settings: Settings = Settings(), text: str = ADD, **dims: int) -> str:  # noqa: B008
    return tasks_of(text, settings, dims=dims)[0].key


def test_the_key_is_that_of_the_stages(tmp_path: Path) -> None:
    path = tmp_path / "own.nau"
    path.write_text(SOUND)
    settings = Settings(
        numerics="fast", rules=(pack_of(str(path)), Pack("casts")), accept=("mine",), compile=True,
        architectures=("sm_80",), candidates=3, rows=77, seconds=0.5, memory=1 << 30, seed=3,
    )  # fmt: skip
    (program,) = lang.parse(ADD)
    options = settings.options((str(path), "casts"))
    assert key(settings) == Optimization(program, options).key


@pytest.mark.parametrize(
    "changed",
    [
        {"target": "a100"},
        {"numerics": "exact"},
        {"rules": (Pack("mine.nau", SOUND),)},
        {"rules": (Pack("casts"),)},
        {"accept": ("mine",)},
        {"rows": 1},
        {"seconds": 1.0},
        {"memory": 1 << 20},
        {"compile": True},
        {"candidates": 2},
        {"seed": 1},
    ],
    ids=lambda c: next(iter(c)),
)
def test_every_setting_that_matters_is_in_the_key(changed: dict[str, object]) -> None:
    assert key(msgspec.structs.replace(Settings(), **changed)) != key()


def test_architectures_matter_where_something_is_compiled() -> None:
    own, two = Settings(compile=True), Settings(compile=True, architectures=("sm_80", "sm_90"))
    assert key(own) != key(two)
    assert key(Settings(architectures=("sm_80",))) == key()


def test_sizes_and_types_are_in_the_key_and_names_are_not() -> None:
    other = ADD.replace("N", "Length").replace("x", "left").replace("z", "total")
    assert key(text=other) == key()
    assert key(N=8192) != key()
    assert key(text=ADD.replace("f32", "f16")) != key()


def test_a_pack_counts_by_its_text_not_by_its_name() -> None:
    first, second = (Settings(rules=(Pack(n, SOUND),)) for n in ("a.nau", "b.nau"))
    assert key(first) == key(second)
    assert key(Settings(rules=(Pack("a.nau", SOUND + "\n"),))) != key(first)


def test_the_code_and_the_device_profile_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = provenance.ingredients("t", Options())
    monkeypatch.setattr(provenance, "code_version", lambda: "another")
    monkeypatch.setattr(provenance, "_profile", lambda target: "measured")
    after = provenance.ingredients("t", Options())
    assert {n for n in before if before[n] != after[n]} == {"code", "profile"}
    assert provenance.key_of(before) != provenance.key_of(after)


def test_the_code_version_sees_every_stage_and_nothing_that_only_carries() -> None:
    home = Path(provenance.__file__).parent
    seen = {
        p.relative_to(home).parts[0] for top in home.iterdir() for p in provenance._sources(top)
    }
    assert {"rules", "extract", "codegen", "egraph", "certificate", "lang", "stages.py"} <= seen
    assert not {"service", "store", "batch", "cli.py"} & seen


def test_running_a_task_gives_what_optimize_gives() -> None:
    (task,) = tasks_of(ADD, filename="add.nau")
    outcome = run(task)
    assert outcome.certified
    assert (outcome.key, outcome.names) == (task.key, task.names)
    assert outcome.ingredients == task.ingredients
    assert outcome.record["program"] == "add"
    assert outcome.record["source"] == "add.nau"
    assert {"manifest.json", "certificate.json"} <= outcome.artifacts.keys()
    assert any(n.endswith(".cu") for n in outcome.artifacts)


def test_tasks_and_outcomes_travel_as_plain_data() -> None:
    (task,) = tasks_of(ADD, Settings(rules=(Pack("m.nau", SOUND),)), dims={"N": 64})
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=Task)
    assert again == task
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task


def test_an_unsound_pack_is_refused_under_the_users_name() -> None:
    (task,) = tasks_of(ADD, Settings(rules=(Pack("mine.nau", UNSOUND),)))
    error = run(task).record["error"]
    assert error["code"] == "unsound-rule"
    assert "mine.nau:2" in error["message"]
    assert "/tmp" not in error["message"]


@pytest.mark.parametrize("name", ["../../evil.nau", "/etc/x.nau"])
def test_a_pack_is_written_into_its_own_folder_only(name: str) -> None:
    assert key(Settings(rules=(Pack(name, SOUND),))) == key(Settings(rules=(Pack("m.nau", SOUND),)))


@pytest.mark.parametrize("name", ["a\0b.nau", "..", "", ".nau"])
def test_a_pack_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(NautileError) as caught:
        key(Settings(rules=(Pack(name, SOUND),)))
    assert caught.value.code == "pack"


def test_a_defect_costs_the_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("nautile.stages.optimize", broken)
    (task,) = tasks_of(ADD)
    outcome = run(task)
    assert not outcome.ok
    assert outcome.record["error"]["code"] == "internal"
    assert "ZeroDivisionError: by zero (broken, line" in outcome.record["error"]["message"]


def test_an_unknown_program_is_an_error_by_name() -> None:
    (task,) = tasks_of(ADD)
    outcome = run(msgspec.structs.replace(task, program="other"))
    assert outcome.record["error"]["code"] == "unknown-name"


def test_unknown_devices_and_classes_are_refused_before_anything_runs() -> None:
    for settings, code in ((Settings(target="x1"), "unknown-device"),
                           (Settings(numerics="no"), "unknown-numerics")):  # fmt: skip
        with pytest.raises(NautileError) as caught:
            tasks_of(ADD, settings)
        assert caught.value.code == code


def test_threads_change_no_key() -> None:
    (program,) = lang.parse(ADD)
    assert Optimization(program, replaced(Options(), threads=3)).key == key()


def test_versions_are_the_ingredients_that_tell_releases_apart() -> None:
    (task,) = tasks_of(ADD, Settings(target="a100", compile=True, rows=5))
    found = provenance.versions()
    assert found == {name: task.ingredients[name] for name in ("code", "libraries", "packs")}


ENDS = {"saturated": True, "rows": True, "iterations": True, "time": False, "memory": False}


@pytest.mark.parametrize(("stop", "kept"), ENDS.items())
def test_what_the_clock_or_the_memory_cut_short_does_not_last(stop: str, kept: bool) -> None:
    record = {"status": "ok", "certificate": {"verdict": "pass"}, "saturation": {"stop": stop}}
    (task,) = tasks_of(ADD)
    assert Outcome(task.key, {}, task.names, record).lasting is kept
    failed = record | {"certificate": {"verdict": "fail"}}
    assert not Outcome(task.key, {}, task.names, failed).lasting
