"""What changed between two runs, and why: against the runs' own plans, and by running again."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautile import extract
from nautile.cli import main
from nautile.errors import InputError
from nautile.inspector.diff import Difference, diff
from nautile.inspector.diff.difference import compared
from nautile.inspector.diff.live import Setting, run, side_of
from nautile.stages import Optimization, Options

from .questions import ATTENTION, POINTWISE, TWICE, result, worker


def whole(found: Difference) -> dict[str, Any]:
    """The difference as JSON; its text names the program."""
    plain: dict[str, Any] = json.loads(json.dumps(found.as_dict()))
    assert found.as_text().startswith(plain["program"])
    return plain


def record(found: Optimization) -> dict[str, Any]:
    return json.loads(json.dumps(found.as_dict()))


def test_equal_runs_are_equal() -> None:
    found = diff(result(ATTENTION), result(ATTENTION))
    assert found.equal
    assert found.same_program
    assert found.changes == ()
    assert whole(found)["causes"] == []


def test_programs_are_matched_up_to_renaming() -> None:
    renamed = ATTENTION.replace("[h,", "[u,").replace("attend", "zz").replace("Q", "A0")
    renamed = renamed.replace("O[", "R[").replace("return O", "return R")
    found = diff(result(ATTENTION), result(renamed))
    assert found.same_program, [c.text for c in found.changes]
    assert not any(t.differs for t in found.totals.values())


def test_without_a_rule_the_kernel_is_another() -> None:
    large = ATTENTION.replace("H=2, T=256, S=256", "H=32, T=4096, S=4096")
    (program,) = [result(large).program]
    without = Setting(Options(), frozenset(["go_online"]))
    other = run(program, without, worker())
    found = diff(result(large), other)
    assert not found.equal
    assert other.plan.seconds > result(large).plan.seconds
    assert found.totals["seconds"].after == other.plan.seconds
    changed = {c.kind for c in found.changes}
    assert "rules" in changed
    assert "terms" in changed or "kernel-split" in changed


@pytest.mark.slow
def test_a_stricter_class_splits_the_kernel_and_its_rules_are_named() -> None:
    a, b = result(ATTENTION), result(ATTENTION, numerics="exact")
    found = diff(a, b)
    plain = whole(found)
    assert plain["settings"] == {"numerics": {"from": "real", "to": "exact"}}
    assert plain["totals"]["kernels"] == {
        "from": len(a.plan.kernels),
        "to": len(b.plan.kernels),
        "ratio": len(b.plan.kernels) / len(a.plan.kernels),
    }
    split = next(c for c in found.changes if c.kind.startswith("kernel"))
    assert set(split.after) == {k.name for k in b.plan.kernels}
    (cause,) = found.causes
    assert cause.factor == "numerics"
    assert cause.alone
    assert cause.needed
    missed = cause.detail.get("missed", cause.detail.get("rules", []))
    assert "go_online" in missed or cause.detail.get("rounding")
    used = {r for k in a.plan.kernels for r in k.rules}
    assert set(missed) <= used


@pytest.mark.slow
def test_the_device_and_the_figures_that_make_the_change() -> None:
    a, b = result(ATTENTION), result(ATTENTION, target="a100")
    found = diff(a, b)
    (cause,) = found.causes
    assert cause.factor == "target"
    assert cause.alone
    figures = cause.detail.get("figures", ())
    if figures:  # with those figures in the first device's profile, the second program is chosen
        from nautile.inspector.diff.parts import mixed

        mine, theirs = extract.device("h200"), extract.device("a100")
        profile = mixed(mine, theirs, figures)
        again = run(a.program, Setting(Options(), device=profile), worker())
        tiles = [p.tiles for k in again.plan.kernels for p in k.parts]
        assert tiles == [p.tiles for k in b.plan.kernels for p in k.parts]


@pytest.mark.slow
def test_two_settings_are_exchanged_one_by_one() -> None:
    a, b = result(POINTWISE), result(POINTWISE, target="l40s", numerics="fast")
    found = diff(a, b)
    assert {c.factor for c in found.causes} <= {"target", "numerics"}
    by = {c.factor: c for c in found.causes}
    assert not by["numerics"].needed  # nothing in it is what `fast` is for
    assert by["target"].seconds == pytest.approx(b.plan.seconds)
    assert whole(found)["totals"]["seconds"]["to"] == b.plan.seconds


def test_sizes_differ() -> None:
    larger = POINTWISE.replace("N=512", "N=8192")
    found = diff(result(POINTWISE), result(larger))
    assert {c.factor for c in found.causes} == {"sizes"}
    assert "shape" in {c.kind for c in found.changes}
    assert found.totals["bytes"].after == 16 * found.totals["bytes"].before


# ---- records -------------------------------------------------------------------------------------


def test_records_and_runs_at_hand_compare_alike() -> None:
    a, b = result(ATTENTION), result(ATTENTION, numerics="exact")
    live = compared(side_of(a, "a"), side_of(b, "b"))
    kept = diff(record(a), record(b))
    assert kept.totals["seconds"].as_dict() == live.totals["seconds"].as_dict()
    assert kept.totals["bytes"].as_dict() == live.totals["bytes"].as_dict()
    assert any(c.kind == "kernel-split" for c in kept.changes)
    assert kept.causes == ()
    assert any("causes cannot be told" in n for n in kept.notes)
    assert diff(record(a), record(a)).equal
    assert diff(a, record(a)).same_program


def test_one_changed_field_of_a_record_is_found() -> None:
    first = record(result(ATTENTION))
    for path, value, kind in (
        (("tile", "t"), 17, "tile"),
        (("streams",), ["zz"], "streams"),
        (("split",), {"s": 4}, "split"),
        (("seconds",), 1.0, "seconds"),
        (("writes_bytes",), 12, "writes_bytes"),
        (("rules",), ["zz"], "rules"),
    ):
        second = copy.deepcopy(first)
        place = second["chosen"]["kernels"][0]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        found = diff(first, second)
        assert [c.kind for c in found.changes] == [kind]
        assert not found.equal


def test_kernels_added_removed_and_merged_in_records() -> None:
    first = record(result(ATTENTION))
    second = copy.deepcopy(first)
    extra = {**second["chosen"]["kernels"][0], "name": "more", "outputs": ["more"]}
    second["chosen"]["kernels"].append(extra)
    added = [c for c in diff(first, second).changes if c.kind == "kernel-added"]
    assert [c.where for c in added] == ["more"]
    removed = [c for c in diff(second, first).changes if c.kind == "kernel-removed"]
    assert [c.where for c in removed] == ["more"]
    part = {**second["chosen"]["kernels"][0], "name": "part", "outputs": ["O_part1"]}
    second["chosen"]["kernels"] = [part, first["chosen"]["kernels"][0]]
    assert "kernel-split" in {c.kind for c in diff(first, second).changes}
    assert "kernel-merged" in {c.kind for c in diff(second, first).changes}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.pop("program"),
        lambda r: r.update(chosen=None),
        lambda r: r["chosen"].update(kernels={}),
        lambda r: r["chosen"]["kernels"][0].update(name=7),
        lambda r: r["chosen"]["kernels"][0].update(outputs="O"),
        lambda r: r["chosen"]["kernels"][0].update(tile={"t": "x"}),
        lambda r: r["chosen"]["kernels"][0].update(tile=[1]),
        lambda r: r["chosen"]["kernels"][0].update(rules=[1]),
        lambda r: r["chosen"]["kernels"][0].update(terms=3),
        lambda r: r.update(settings=[1]),
        lambda r: r.update(baseline=[1]),
    ],
)
def test_malformed_records_name_the_field(spoil: Any) -> None:
    good = record(result(ATTENTION))
    bad = copy.deepcopy(good)
    spoil(bad)
    with pytest.raises(InputError) as caught:
        diff(good, bad)
    assert caught.value.code == "not-a-run"


def test_a_run_that_failed_says_so() -> None:
    good = record(result(ATTENTION))
    bad = {**good, "status": "error", "error": {"code": "x", "message": "nothing fits"}}
    bad["chosen"] = None
    found = diff(good, bad)
    assert any("nothing fits" in n for n in found.notes)
    assert not found.equal


# ---- the command line ----------------------------------------------------------------------------


def test_the_command_compares_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = record(result(ATTENTION)), record(result(ATTENTION, numerics="exact"))
    for name, rows in (("a", [a]), ("b", [b]), ("both", [a, record(result(POINTWISE))])):
        (tmp_path / f"{name}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    paths = [str(tmp_path / f"{n}.json") for n in ("a", "b", "both")]
    assert main(["diff", paths[0], paths[0]]) == 0
    assert "equal" in capsys.readouterr().out
    assert main(["diff", paths[0], paths[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["kernels"]["from"] == 1
    assert main(["diff", paths[0], paths[2]]) == 0
    told = capsys.readouterr()
    assert "equal" in told.out
    assert "pointwise: in" in told.err
    (tmp_path / "other.json").write_text(json.dumps([{**a, "program": "zz"}] * 2))
    assert main(["diff", paths[2], str(tmp_path / "other.json")]) == 2
    assert "no program in common" in capsys.readouterr().err


def test_the_command_runs_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.nau"
    path.write_text(POINTWISE)
    assert main(["diff", str(path), "--dims", "N=512:1024,C=128", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["settings"]["sizes"]["from"] == {"N": 512, "C": 128}
    assert plain["settings"]["sizes"]["to"] == {"N": 1024, "C": 128}
    assert main(["diff", str(path), "--target", "h200,a100"]) == 0
    assert "target h200 -> a100" in capsys.readouterr().out
    assert main(["diff", str(path)]) == 0
    assert "equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.json", "missing.json"],
        ["{p}", "--target", "h200,a100,l40s"],
        ["{p}", "--target", "nothing"],
        ["{p}", "--numerics", "odd,fast"],
        ["{p}", "--without", "go_onlin"],
        ["{p}", "--dims", "N=x"],
        ["{p}", "--rules", "no_such_pack"],
        ["{p}", "{j}"],
        ["{j}"],
        ["{j}", "{p}"],
        ["{t}", "{t}"],
        ["{p}", "{p}", "{p}"],
        ["{d}", "{d}"],
    ],
)
def test_malformed_usage_is_status_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {n: tmp_path / f for n, f in (("p", "p.nau"), ("j", "j.json"), ("t", "t.txt"))}
    paths["p"].write_text(POINTWISE)
    paths["j"].write_text("[]")
    paths["t"].write_bytes(b"\xff\xfe{{{")
    made = [a.format(d=tmp_path, **paths) for a in arguments]
    assert main(["diff", *made]) == 2
    assert capsys.readouterr().err.startswith("error:")


@pytest.mark.slow
def test_bundles_are_compared(tmp_path: Path) -> None:
    from nautile.bundle import write_bundle
    from nautile.stages import optimize

    runs = {}
    for name, numerics in (("a", "real"), ("b", "exact")):
        runs[name] = optimize(result(TWICE).program, replace(Options(), numerics=numerics))
        write_bundle(tmp_path / name, runs[name])
    same = diff(tmp_path / "a", tmp_path / "a")
    assert same.equal
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.totals["kernels"].before == len(runs["a"].plan.kernels)
    assert any("matched by names" in n for n in found.notes)
