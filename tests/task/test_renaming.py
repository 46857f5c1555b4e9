"""An outcome with the names of a duplicate, against optimizing the duplicate itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.task.programs import PAIRS

from nautile.bundle import load_bundle
from nautile.task import Names, Outcome, Task, renamed, renamed_files, run, tasks_of
from nautile.worker import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


def both(name: str) -> tuple[Task, Task]:
    first, second = PAIRS[name]
    return tasks_of(first, filename="a.nau")[0], tasks_of(second, filename="b.nau")[0]


@pytest.fixture(scope="module", params=PAIRS)
def case(request: pytest.FixtureRequest, worker: Worker) -> tuple[Outcome, Outcome]:
    """What optimizing each of the two programs gave."""
    first, second = both(request.param)
    return run(first, worker), run(second, worker)


def structure(record: Mapping[str, Any]) -> Any:
    """What does not depend on the time or on sample values; CUDA keeps the names of its symbols."""
    kept = {k: v for k, v in record.items() if k not in ("timings", "saturation", "certificate")}
    kept = json.loads(json.dumps(kept))
    for kernel in kept["chosen"]["kernels"]:
        for way in kernel["implementations"]:
            del way["kernels"]
    checks = record["certificate"]["checks"]
    said = {(c["name"], c["passed"], tuple(sorted(c["detail"].split("; ")))) for c in checks}
    return kept, said


def test_keys_agree_and_outcomes_are_certified(case: tuple[Outcome, Outcome]) -> None:
    first, second = case
    assert first.key == second.key
    assert first.names != second.names
    assert first.certified
    assert second.certified


def test_what_was_measured_is_called_by_the_new_names(case: tuple[Outcome, Outcome]) -> None:
    first, second = case
    ways = [
        [w["schedule"] for w in k["implementations"]] for k in first.record["chosen"]["kernels"]
    ]
    report = {"program": first.names.program, "ms": 1.5, "implementations": ways[0]}
    record = {**first.record, "measurement": {**report, "recorded": "tuned.json"}}
    pick = {"launch": 0, "sources": ["d" * 32], "ms": {"0: a schedule": 1.5}}
    tuned = {"version": 1, "devices": {"a card": {first.names.program: [pick]}}}
    files = {**first.artifacts, "tuned.json": json.dumps(tuned).encode()}
    made = renamed(record, first.names, second.names, "b.nau")["measurement"]
    wanted = [w["schedule"] for w in second.record["chosen"]["kernels"][0]["implementations"]]
    assert (made["program"], made["implementations"]) == (second.names.program, wanted)
    changed, _ = renamed_files(files.__getitem__, record, first.names, second.names)
    devices = json.loads(changed["tuned.json"])["devices"]
    assert devices == {"a card": {second.names.program: [pick]}}
    assert "tuned.json" not in json.loads(changed["manifest.json"])["files"]


def test_the_record_is_that_of_the_duplicate(case: tuple[Outcome, Outcome]) -> None:
    first, second = case
    made = renamed(first.record, first.names, second.names, "b.nau")
    assert structure(made) == structure(second.record)


def test_renaming_there_and_back_changes_nothing(case: tuple[Outcome, Outcome]) -> None:
    first, second = case
    there = renamed(first.record, first.names, second.names, "b.nau")
    assert renamed(there, second.names, first.names, "a.nau") == first.record


def bundle(outcome: Outcome, names: Names) -> dict[str, bytes]:
    old = outcome.artifacts
    changed, gone = renamed_files(old.__getitem__, outcome.record, outcome.names, names)
    return {n: d for n, d in old.items() if n not in gone} | changed


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_the_bundle_loads_and_says_what_that_of_the_duplicate_says(
    case: tuple[Outcome, Outcome], tmp_path: Path
) -> None:
    first, second = case
    made = load_bundle(written(tmp_path / "made", bundle(first, second.names)))
    direct = load_bundle(written(tmp_path / "direct", second.artifacts))
    assert made.manifest.programs == direct.manifest.programs
    assert made.manifest.buffers == direct.manifest.buffers
    for one, other in zip(made.manifest.launches, direct.manifest.launches, strict=True):
        assert [w.schedule for w in one.implementations] == [
            w.schedule for w in other.implementations
        ]
        for mine, theirs in zip(one.kernels, other.kernels, strict=True):
            assert (mine.arguments, mine.maps, mine.zeroed) == (
                theirs.arguments, theirs.maps, theirs.zeroed
            )  # fmt: skip
            assert (mine.grid, mine.threads) == (theirs.grid, theirs.threads)


def test_samples_are_drawn_by_the_names_that_the_reference_was_made_with(
    case: tuple[Outcome, Outcome],
) -> None:
    first, second = case
    (name,) = [n for n in bundle(first, second.names) if n.endswith(".expected.json")]
    made = json.loads(bundle(first, second.names)[name])
    inputs = dict(zip(second.names.buffers, first.names.buffers, strict=True))
    assert made["drawn_as"] == {n: inputs[n] for n in made["cases"][0]["kinds"]}
    original = json.loads(
        next(d for n, d in first.artifacts.items() if n.endswith("expected.json"))
    )
    for mine, theirs in zip(made["cases"], original["cases"], strict=True):
        for one, other in zip(mine["outputs"], theirs["outputs"], strict=True):
            assert one["buffer"] == inputs_of(second, first)[other["buffer"]]
            assert one["reference"] == other["reference"]


def inputs_of(new: Outcome, old: Outcome) -> dict[str, str]:
    return dict(zip(old.names.buffers, new.names.buffers, strict=True))


def test_no_old_name_is_left_where_names_stand_for_themselves(
    case: tuple[Outcome, Outcome],
) -> None:
    first, second = case
    made = json.loads(bundle(first, second.names)["manifest.json"])
    old = set(first.names.buffers) - set(second.names.buffers)
    text = json.dumps({k: made[k] for k in ("programs", "buffers")})
    assert not {n for n in old if re.search(rf'"{n}"', text)}


def test_a_made_tensor_does_not_take_a_name_of_the_program() -> None:
    """`x_part1` of the one would be `y_part1` of the other, which is an input there."""
    old = Names("f", ("x", "w"), ("i",))
    new = Names("g", ("y", "y_part1"), ("i",))
    row = {"name": "x_part1", "outputs": ["x_part1"], "tile": {}, "streams": [], "split": {}}
    record = {"chosen": {"kernels": [row]}, "certificate": None}
    (kernel,) = renamed(record, old, new, "g.nau")["chosen"]["kernels"]
    assert kernel["outputs"] == ["y_part2"]
