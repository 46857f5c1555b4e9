"""Why a rule did not match: what is told, against egglog's own counts and known obstacles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nautile import lang, rules
from nautile.cli import main
from nautile.errors import InputError
from nautile.rules.egglog import print_rule
from nautile.workbench.places import Places, lines_of
from nautile.workbench.query import Database
from nautile.workbench.runs import saturated
from nautile.workbench.why import Answer, attempt, why
from nautile.worker import Worker

SHIPPED = rules.load(classes=("exact", "real"))
PROGRAMS = Path(__file__).parents[1] / "fusion" / "programs"
SOFTMAX = """def softmax(x: f32[N, S], *, N=64, S=512) -> f32[N, S]:
    m[n] = max[s](x[n, s])
    e[n, s] = exp(x[n, s] - m[n])
    p[n, s] = e[n, s] / sum[s](e[n, s])
    return p
"""
HEAD = "def f(x: f32[N, M], y: f32[N], w: f32[M], *, N=64, M=512) -> f32[N]:\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def answer(law: str, body: str, worker: Worker, section: str = "real") -> Answer:
    (rule,) = rules.parse(f"with {section}:\n    r = {law}\n")
    (program,) = lang.parse(f"{HEAD}    z[n] = {body}\n    return z\n")
    return why(rule, program, SHIPPED, worker=worker)


@pytest.mark.parametrize("name", ["softmax_gradient", "router_choice", "log_of_weighted"])
def test_what_never_fired_fails_somewhere_and_what_fires_holds(name: str, worker: Worker) -> None:
    """The evaluation of queries agrees with egglog's counts, for every shipped law. A law that
    drops what it matched may hold nowhere at the end."""
    program = next(p for p in lang.parse_file(PROGRAMS / "softmax.nau") if p.name == name)
    runs = saturated(program, SHIPPED, worker, tables=True)
    lines = lines_of(program, runs)
    for number, rule in enumerate(SHIPPED):
        matches = sum(run.frozen.matches.get(number, 0) for run in runs)
        found = [
            attempt(p.text, i, rule, Database(run.frozen), Places(run, lines, SHIPPED))
            for run in runs
            for i, p in enumerate(print_rule(rule, 0))
        ]
        holds = any(a.absent is None and not a.failures for a in found)
        assert holds == (matches > 0) or (rule.is_normal and matches > 0), rule.name


def test_a_factor_that_depends_on_the_axis_is_told_with_its_axes(worker: Worker) -> None:
    found = answer("sum[j](a * b) >> sum[j](a) * b, j not in b", "sum[m](x[n, m] * w[m])", worker)
    (failure,) = found.closest.failures
    assert failure.condition == "j not in b"
    assert "depends on m" in failure.reason or "depends on n, m" in failure.reason
    assert found.closest.place is not None
    assert found.closest.place.line == 2
    assert found.closest.bindings["j"] == "m"


def test_a_sign_that_is_not_known_is_told(worker: Worker) -> None:
    found = answer("log(a * b) >> log(a) + log(b), a > 0, b > 0", "log(y[n] * exp(w[0]))", worker)
    (failure,) = found.closest.failures
    assert failure.condition == "a > 0"
    assert failure.reason.startswith("of y[n] is known: f32")


def test_a_missing_part_is_told_with_what_stands_there(worker: Worker) -> None:
    found = answer("max[j](exp(a) / b) >> exp(max[j](a)) / b, j not in b, b > 0",
                   "max[m](exp(x[n, m]) + y[n])", worker)  # fmt: skip
    assert found.closest.absent == "div(..., b) in place of exp(x[n, m]) + y[n], which is add"
    assert (found.closest.found, found.closest.parts) == (1, 3)


def test_a_missing_fact_is_told_with_its_subject(worker: Worker) -> None:
    law = "sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k < 0"
    found = answer(law, "sum[m](x[n, m] - y[n])", worker)
    first, *others = found.closest.failures
    assert first.condition == "scale(a, m, k, r)"
    assert first.reason.startswith("no scale is known of ")
    assert {f.condition for f in others if not f.tried} >= {"what k is"}


def test_of_several_places_the_closest_is_told(worker: Worker) -> None:
    """Both sums are of products; only of the second does no factor depend on n alone."""
    found = answer("sum[j](a * b) >> sum[j](a) * b, j not in b, b > 0",
                   "sum[m](w[m] * w[m]) + sum[m](exp(y[n]) * exp(x[n, m]))", worker)  # fmt: skip
    assert not found.closest.failures
    assert found.closest.place is not None
    assert "exp(y[n])" in found.closest.place.term


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.nau"
    path.write_text(SOFTMAX)
    return path


def test_the_command_quotes_the_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "why", "top_power", str(path)]) == 0
    text = capsys.readouterr().out
    assert "fails: a >= 0" in text
    assert "softmax.nau:2: m[n] = max[s](x[n, s])" in text


def test_the_command_knows_a_rule_that_the_class_bars(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "why", "fast_or_not", str(path)]) == 2
    assert main(["rules", "why", "reductions:unshift_softmax", str(path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["rule"], first["allowed"], first["matches"]) == ("unshift_softmax", False, 0)
    assert first["closest"]["failures"] == []


def test_a_law_that_is_only_checked_is_refused(worker: Worker) -> None:
    split = "sum[j: J](x[j]) >> sum[p: P](sum[q: Q](x[p*Q + q])), J == P*Q"
    with pytest.raises(InputError, match="a law to check"):
        answer(split, "sum[m](x[n, m])", worker)
