"""The profile of rules, against what plain saturation says and what a rule is known to do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nautile import lang, rules
from nautile.cli import main
from nautile.egraph import Limits, encode, job_of, saturate
from nautile.examples import paths
from nautile.extract.regions import cut
from nautile.workbench.profile import Profile, profile
from nautile.worker import Worker

ATTENTION = next(p for p in paths() if p.stem == "attention")
SHIPPED = rules.load(classes=("exact", "real"))
FACTORS = "def f(x: f32[N, M], y: f32[N], *, N=64, M=512) -> f32[N]:\n    z[n] = {}\n    return z\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def attention(worker: Worker) -> Profile:
    programs = lang.parse_file(ATTENTION)
    return profile(programs, SHIPPED, worker=worker, leave_out=True)


def test_e_nodes_of_rules_add_up_to_what_the_graph_grew_by(attention: Profile) -> None:
    (program,) = lang.parse_file(ATTENTION)
    (region,) = cut(program)
    alone = saturate(region.outputs, SHIPPED, limits=Limits(iterations=0))
    assert (
        attention.programs[0].growth[-1]
        == sum(r.nodes for r in attention.rules) + alone.report.rows
    )


def test_rules_alone_find_what_rules_together_find(worker: Worker, attention: Profile) -> None:
    (program,) = lang.parse_file(ATTENTION)
    (region,) = cut(program)
    together = worker.saturate(region.outputs, SHIPPED)
    assert attention.programs[0].growth[-1] == together.report.rows
    fired = {r.rule for r in attention.rules if r.fired}
    assert fired == {name for name, n in together.report.matches.items() if n}


def test_the_online_law_is_needed_and_another_form_of_a_product_is_not(attention: Profile) -> None:
    needed = {r.rule for r in attention.rules if r.needed}
    assert {"go_online", "exp_scale", "sub_shift", "max_shift"} <= needed
    assert needed <= {r.rule for r in attention.rules if r.chosen}
    assert "mul_comm" not in needed
    assert "argmax_exp" in attention.never


def test_a_rule_that_feeds_itself_is_named(worker: Worker) -> None:
    (program,) = lang.parse(FACTORS.format("sum[m](x[n, m] * y[n])"))
    own = rules.parse("with real:\n    grow = a * b >> (a * b + a * b) - a * (b + 0)\n")
    limits = Limits(rows=600, seconds=5.0)
    found = profile([program], [*SHIPPED, *own], limits=limits, worker=worker)
    assert found.programs[0].stop == "rows"
    assert "grow" in found.exploding
    assert max(found.rules, key=lambda r: r.nodes).rule == "grow"


def test_counts_of_one_rule(worker: Worker) -> None:
    """One product leaves one sum: a law that is tried alone matches once and adds what it says."""
    (program,) = lang.parse(FACTORS.format("sum[m](x[n, m] * y[n])"))
    law = rules.parse("with real:\n    out = sum[j](a * b) >> sum[j](a) * b, j not in b\n")
    found = profile([program], law, worker=worker)
    (only,) = found.rules
    assert (only.matches, only.nodes, only.chosen, found.never) == (1, 2, ["f"], ())


def test_tables_hold_what_analyses_know(worker: Worker) -> None:
    (program,) = lang.parse(FACTORS.format("sum[m](x[n, m] * y[n])"))
    (region,) = cut(program)
    job = job_of(encode(region.outputs), SHIPPED, Limits(), tables=True)
    frozen = worker.frozen(job, SHIPPED)
    assert dict(frozen.tables["fv"]) == frozen.free
    assert sorted(frozen.tables["ext"]) == [[0, 64.0], [1, 512.0]]


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "profile", str(ATTENTION), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    online = next(r for r in found["rules"] if r["rule"] == "go_online")
    assert online["fired"] == online["chosen"] == ["attention"]
    assert sum(online["growth"]) == online["nodes"] > 0
    assert found["exploding"] == []
