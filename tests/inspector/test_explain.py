"""`nautile explain`: what it tells is true, whole, readable, and survives what may go wrong."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nautile
from nautile import lang, rules, stages
from nautile.cli import main
from nautile.dtypes import DTYPES
from nautile.errors import InputError
from nautile.inspector import explain
from nautile.oracle import run
from nautile.stages import Optimization, Options

from .explained import PROGRAMS, chosen, explained, parts_of, told

NAMES = ("attention", "chain", "norms", "two")
FIELDS = {
    "program", "source", "key", "target", "numerics", "status", "error", "text", "chosen",
    "baseline", "bound", "gap", "runners_up", "candidates", "margin", "margins", "derivation",
    "rules_needed", "saturation", "measured", "reproduce",
}  # fmt: skip
H200 = json.loads((Path(nautile.__file__).parent / "extract/devices/h200.json").read_text())
PEAKS = {
    "dram": H200["memory_bandwidth"], "l2": H200["l2_bandwidth"], "fp32": H200["fp32"],
    "special": H200["special"],
}  # fmt: skip
SMALL = """
def smooth(X: f32[N,M], b: f32[M], *, N=64, M=128) -> f32[N,M]:
    y[n,m] = softmax[m](X[n,m] + b[m])
    return y
"""


def command(*words: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["explain", *words])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "smooth.nau"
    path.write_text(SMALL)
    return path


# ---- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_object_has_all_fields_and_is_plain_json(name: str) -> None:
    assert set(told(name)) >= FIELDS
    again = json.loads(json.dumps(told(name), allow_nan=False))
    assert again["program"] == chosen(name).program.name


@pytest.mark.parametrize("name", NAMES)
def test_shares_bound_and_roofline_follow_from_the_profile(name: str) -> None:
    plan, _, _ = parts_of(name)
    for row, kernel in zip(told(name)["chosen"]["kernels"], plan.kernels, strict=True):
        p = kernel.prediction
        assert row["shares"] == dict(p.shares)
        assert row["bound"] == max(row["shares"], key=lambda r: row["shares"][r])
        assert row["shares"]["launch"] == H200["launch_seconds"]
        work = {
            "dram": row["reads_bytes"] + row["writes_bytes"],
            "fp32": row["vector_flops"],
            "special": row["special_ops"],
        }
        for resource, amount in work.items():
            use = row["roofline"][resource]
            assert use["peak"] == PEAKS[resource]
            expected = amount / row["seconds"] / PEAKS[resource]
            assert use["achieved_fraction"] == pytest.approx(expected)
        for use in row["roofline"].values():
            assert 0 <= use["achieved_fraction"] <= 1
        if row["tensor_flops"]:
            path = H200["tensor"]["wgmma" if kernel.path == "wgmma" else "mma.sync"]
            assert row["roofline"]["tensor"]["peak"] == path["bf16"]


@pytest.mark.parametrize("name", NAMES)
def test_what_kernels_read_are_tensors_of_the_program_and_of_kernels_before(name: str) -> None:
    sizes = {b.name: b.size * DTYPES[b.dtype].bytes for b in chosen(name).program.inputs}
    for row in told(name)["chosen"]["kernels"]:
        for read in row["reads"]:
            assert 0 < read["bytes"] <= sizes[read["buffer"]]
        assert sum(r["bytes"] for r in row["reads"]) <= row["reads_bytes"] * 1.001
        sizes |= {w["buffer"]: w["bytes"] for w in row["writes"]}
    returned = {o.buffer.name for o in chosen(name).program.outputs}
    assert returned <= set(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_come_from_lines_that_hold_arithmetic(name: str) -> None:
    """Every definition stands in some kernel; none stands in the signature."""
    lines = {n for k in told(name)["chosen"]["kernels"] for n in k["source_lines"]}
    assert lines == {d.line for d in chosen(name).program.definitions}


@pytest.mark.parametrize("name", ["chain", "norms"])
def test_the_chosen_text_is_a_program_that_computes_the_same(name: str) -> None:
    """Read back at small sizes, evaluated by the oracle: what is told is what was asked for."""
    (program,) = lang.parse(PROGRAMS[name])
    small = {n: min(size, 24) for n, size in program.sizes.items()}
    text = told(name)["chosen"]["text"]
    for large, size in sorted(((program.sizes[n], small[n]) for n in small), reverse=True):
        text = text.replace(f" {large}]", f" {size}]").replace(f"[{large},", f"[{size},")
        text = text.replace(f"/ {large}.0", f"/ {size}.0").replace(f"[{large}]", f"[{size}]")
    (source,), (again,) = lang.parse(PROGRAMS[name], dims=small), lang.parse(text)
    draw = np.random.default_rng(1)
    inputs = {b.name: draw.standard_normal(b.shape) for b in source.inputs}
    expected, actual = run(source, inputs), run(again, inputs)
    for output in source.outputs:
        np.testing.assert_allclose(
            actual[output.buffer.name], expected[output.buffer.name], rtol=0.02, atol=0.05
        )


@pytest.mark.parametrize("name", NAMES)
def test_runners_up_are_other_sets_of_candidates_at_their_prices(name: str) -> None:
    plan, _, taken = parts_of(name)
    for n, runner in enumerate(told(name)["runners_up"], 1):
        columns = {int(c[1:]) for c in runner["columns"]}
        assert runner["id"] == f"r{n}"
        assert columns != taken
        assert {int(c[1:]) for c in runner["only_here"]} == columns - taken
        assert {int(c[1:]) for c in runner["only_chosen"]} == taken - columns
        total = sum(k["seconds"] for k in runner["kernels"])
        assert runner["seconds"] == pytest.approx(total)
        assert runner["slower_by"] == pytest.approx(total / plan.seconds - 1)
        assert runner["text"].startswith("def ")


@pytest.mark.parametrize("name", NAMES)
def test_the_course_adds_up_to_the_report(name: str) -> None:
    result = chosen(name)
    for number, snapshot in enumerate(result.snapshots):
        steps = [c for c in told(name)["saturation"]["course"] if c["region"] == number]
        assert [c["iteration"] for c in steps] == list(range(1, snapshot.report.iterations + 1))
        assert [c["rows"] for c in steps] == list(snapshot.report.growth)
        total: dict[str, int] = {}
        for step in steps:
            for rule, n in step["matches"].items():
                total[rule] = total.get(rule, 0) + n
        assert total == {r: n for r, n in snapshot.report.matches.items() if n}
        assert sum(c["seconds"] for c in steps) <= snapshot.report.seconds


def test_rules_that_match_too_often_are_told_to_rest() -> None:
    kinds = [("f32[N,C]", "[n,c]"), ("f32[N]", "[n]"), ("f32[C]", "[c]")]
    inputs = ", ".join(f"x{i}: {kinds[i % 3][0]}" for i in range(24))
    product = " * ".join(f"x{i}{kinds[i % 3][1]}" for i in range(24))
    text = (
        f"def f({inputs}, *, N=64, C=64) -> f32[N]:\n    z[n] = sum[c]({product})\n    return z\n"
    )
    (program,) = lang.parse(text)
    result = Optimization(program, Options(rows=2000))
    stages.saturate(result)
    (snapshot,) = result.snapshots
    course = snapshot.report.course
    rests = {name for step in course for name in step.rests}
    assert snapshot.report.stop == "rows"
    assert len(course) == len(snapshot.report.growth) + 1  # the iteration that was cut
    assert course[-1].rows > 2000
    assert rests
    assert rests <= {"facts"} | {
        rule.name for rule in rules.select(rules.load(), ("exact", "real"))
    }


# ---- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "pointwise"])
def test_the_text_keeps_to_its_width_and_tells_the_main_things(name: str) -> None:
    text = explained(name).as_text()
    assert max(map(len, text.splitlines())) <= 100
    for word in ("before", "chosen", "kernel", "bound by", "margin", "e-graph", "again"):
        assert word in text
    assert "~" not in text


def test_kernels_are_told_in_steps_under_the_sources_names() -> None:
    (kernel,) = told("attention")["chosen"]["kernels"]
    steps = [s for term in kernel["terms"] for s in term["steps"]]
    assert steps[0].startswith("u[b, h, t, s] = sum[d](A[b, h, t, d] * G[b, h, s, d]) * ")
    assert steps[1] == "w[b, h, t, s] = where(s <= t, u[b, h, t, s], -inf)"
    assert steps[-1].startswith("Z[b, h, t, e] = online[s](")


def test_reproduce_explains_the_same_program_again(small: Path) -> None:
    status, out, _ = command(str(small), "--dims", "N=32", "--json", "--no-derivation", "-q")
    assert status == 0
    first = json.loads(out)
    words = first["reproduce"].split()
    assert words[:2] == ["nautile", "explain"]
    status, out, _ = command(*words[2:], "--json")
    second = json.loads(out)
    for name in ("key", "chosen", "candidates", "margins", "reproduce"):
        assert first[name] == second[name]


# ---- the command -------------------------------------------------------------------------------


def test_the_command_answers_why_not_and_writes_a_page(small: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    status, out, err = command(
        str(small), "--why-not", "exp(X[n, m])", "--html", str(page), "--no-derivation"
    )
    assert status == 0
    assert "exp(X[n, m])" in out
    assert (page / "index.html").exists()
    assert str(page / "index.html") in err


def test_a_malformed_file_is_an_object_and_a_status(tmp_path: Path) -> None:
    bad = tmp_path / "bad.nau"
    bad.write_text("def f(x: f32[N], *, N=8) -> f32[N]:\n    y[n] = x[n] +\n    return y\n")
    status, out, err = command(str(bad), "--json")
    found = json.loads(out)
    assert status == 2
    assert found["status"] == "error"
    assert set(found) >= FIELDS
    assert found["error"]["code"] in err or found["error"]["message"].splitlines()[0] in err


def test_one_bad_program_does_not_hide_the_others(small: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.nau"
    bad.write_text("def f(\n")
    status, out, _ = command(str(bad), str(small), "--json", "--no-derivation", "--no-margins")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 2
    assert [r["status"] for r in rows] == ["error", "ok"]


def test_unknown_names_are_refused(small: Path) -> None:
    assert command(str(small), "--target", "h900")[0] == 2
    assert command(str(small), "--program", "other")[0] == 2
    assert command(str(small), "--graph", "graph.png")[0] == 2
    assert command(str(small), "--measured", "nowhere.json", "--no-derivation")[0] == 2


def test_a_certificate_that_fails_is_explained_with_status_3(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(result: Optimization) -> None:
        certify(result)
        own = result.certificate
        assert own is not None
        worse = [replace(c, passed=False, detail="off by 1") for c in own.checks]
        result.certificate = replace(own, checks=tuple(worse))

    certify = stages.certify
    monkeypatch.setattr(stages, "certify", failing)
    status, out, _ = command(str(small), "--no-derivation", "--no-margins")
    assert status == 3
    assert "certified  fail" in out
    assert "off by 1" in out


def test_a_later_stage_that_fails_is_told_beside_the_explanation(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nautile.errors import CompileError

    def failing(result: Optimization) -> None:
        raise CompileError("no schedule passes")

    monkeypatch.setattr(stages, "build", failing)
    status, out, _ = command(str(small), "--json", "--no-derivation", "--no-margins")
    found = json.loads(out)
    assert status == 1
    assert found["status"] == "error"
    assert found["error"]["message"] == "no schedule passes"
    assert found["chosen"]["kernels"]
    assert found["candidates"]


# ---- measurements ------------------------------------------------------------------------------


def measured(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "bench.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_measurements_stand_beside_predictions(tmp_path: Path) -> None:
    (program,) = lang.parse(SMALL)
    result = Optimization(program, Options())
    stages.saturate(result)
    stages.choose(result)
    stages.build(result)
    way = result.built[0].best
    report = {
        "program": "smooth", "gpu": "a card", "ms": 0.004,
        "contests": [
            {"launch": result.built[0].kernel.name, "implementations": [
                {"schedule": way.schedule, "ms": 0.006, "picked": True},
                {"schedule": "another", "ms": 0.005, "picked": False},
            ]},
        ],
    }  # fmt: skip
    other = {"program": "not this one", "gpu": "a card", "ms": 1.0}
    path = measured(tmp_path, {"programs": [other, report]})
    found = explain(result, derivation=False, margin=False, measured=[path])
    rows = found.as_dict()["measured"]
    assert [(r["kernel"], r["measured"], r["gpu"]) for r in rows] == [
        (None, 4e-6, "a card"), ("y", 6e-6, "a card"), ("y", 5e-6, "a card"),
    ]  # fmt: skip
    assert result.plan is not None
    assert rows[0]["ratio"] == pytest.approx(4e-6 / result.plan.seconds)
    assert rows[1]["ratio"] == pytest.approx(6e-6 / way.kernel.prediction.seconds)
    assert rows[1]["picked"] is True
    assert rows[2]["predicted"] is None
    assert "measured" in found.as_text()


@pytest.mark.parametrize("value", ["{", '{"ms": 1', "\x00", "[" * 100_000])
def test_files_that_hold_no_measurements_are_refused(tmp_path: Path, value: str) -> None:
    path = measured(tmp_path, value)
    with pytest.raises(InputError, match="no measurements"):
        explain(chosen("pointwise"), derivation=False, margin=False, measured=[path])


@pytest.mark.parametrize(
    "value", [3, [], {"program": "pointwise", "ms": "fast"}, {"program": "pointwise", "ms": True},
              {"program": "pointwise", "contests": {"launch": 1}}, {"programs": 7}]
)  # fmt: skip
def test_values_that_are_no_times_are_left_out(tmp_path: Path, value: Any) -> None:
    path = measured(tmp_path, value)
    found = explain(chosen("pointwise"), derivation=False, margin=False, measured=[path])
    assert found.measured == ()


# ---- Python ------------------------------------------------------------------------------------


def test_results_explain_themselves() -> None:
    result = chosen("chain")
    rows = result.cost()
    assert [r["name"] for r in rows] == [k["name"] for k in told("chain")["chosen"]["kernels"]]
    assert rows[0]["roofline"] == told("chain")["chosen"]["kernels"][0]["roofline"]
    own = result.explain(derivation=False, margin=False).as_dict()
    assert own["chosen"] == told("chain")["chosen"]
    assert result.why_not("h[m, n]").as_dict()["question"] == "h[m, n]"
    assert nautile.explain is explain


def test_an_unfinished_result_runs_what_it_lacks() -> None:
    (program,) = lang.parse(SMALL)
    result = Optimization(program, Options())
    assert result.cost() == []
    assert "No program has been chosen yet" in result._repr_html_()
    found = result.explain(derivation=False, margin=False).as_dict()
    assert found["status"] == "ok"
    assert result.plan is not None
    assert found["certificate"] is None


def test_notebooks_show_names_as_text() -> None:
    program = replace(chosen("chain").program, name="<script>alert(1)</script>", filename="<b>")
    result = replace(chosen("chain"), program=program)
    html = result._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>)" not in html
    assert html.count("<tr>") == 1 + len(parts_of("chain")[0].kernels)
