"""Rules that one could do without, on packs where the answer is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nautile import lang, rules
from nautile.cli import main
from nautile.rules.law import Rule
from nautile.workbench.redundant import Derivation, idle, inverses, redundant
from nautile.worker import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def pack(*laws: str, section: str = "real") -> tuple[Rule, ...]:
    return rules.parse("\n    ".join([f"with {section}:", *laws]) + "\n")


def derive(laws: tuple[Rule, ...], worker: Worker) -> dict[str, Derivation]:
    return {d.rule: d for d in redundant(laws, laws, worker=worker)}


def test_the_other_order_of_a_product_is_derived(worker: Worker) -> None:
    found = derive(pack("comm = a * b == b * a", "one = a * 1 >> a", "also = 1 * a >> a"), worker)
    assert (found["also"].verdict, found["also"].by) == ("derived", ("comm", "one"))
    assert (found["one"].verdict, found["one"].by) == ("derived", ("comm", "also"))
    assert found["comm"].verdict == "needed"


def test_a_special_case_is_subsumed_and_the_general_law_is_needed(worker: Worker) -> None:
    laws = pack("out = sum[j](a * b) >> sum[j](a) * b, j not in b",
                "sure = sum[j](a * b) >> sum[j](a) * b, j not in b, b > 0",
                "both = sum[j](exp(c) * b) >> sum[j](exp(c)) * b, j not in b")  # fmt: skip
    found = derive(laws, worker)
    assert {n: (d.verdict, d.by) for n, d in found.items()} == {
        "out": ("needed", ()),
        "sure": ("subsumed", ("out",)),
        "both": ("subsumed", ("out",)),
    }


def test_a_law_without_its_condition_is_not_derived_from_the_one_that_has_it(
    worker: Worker,
) -> None:
    laws = pack("out = sum[j](a * b) >> sum[j](a) * b, j not in b",
                "unsound = sum[j](a * b) >> sum[j](a) * b")  # fmt: skip
    found = derive(laws, worker)
    assert found["unsound"].verdict == "needed"
    assert found["out"].verdict == "subsumed"


def test_nothing_is_made_of_the_right_side(worker: Worker) -> None:
    """Collecting terms is no way to distribute a product."""
    laws = pack("collect = a * b + a * c >> a * (b + c)", "spread = a * (b + c) >> a * b + a * c")
    found = derive(laws, worker)
    assert {d.verdict for d in found.values()} == {"needed"}
    assert [pair.rules for pair in inverses(laws)] == [("collect", "spread")]


def test_a_stricter_class_is_not_derived_from_a_looser_one(worker: Worker) -> None:
    laws = pack("loose = a / a >> 1", section="fast") + pack("strict = exp(a) / exp(a) >> 1")
    assert derive(laws, worker)["strict"].verdict == "needed"


def test_facts_are_derived_from_facts(worker: Worker) -> None:
    shipped = {rule.name: rule for rule in rules.load(None)}
    laws = [shipped[n] for n in ("mul_comm", "mul_scale", "times_scale", "exp_scale")]
    found = {d.rule: d for d in redundant(laws, laws, worker=worker)}
    assert found["mul_scale"].by == ("mul_comm", "times_scale")
    assert found["exp_scale"].verdict == "needed"


def test_inverse_pairs_are_found_up_to_names() -> None:
    laws = pack("in_ = log(a * b) >> log(a) + log(b), a > 0, b > 0",
                "out = log(x) + log(y) >> log(x * y)",
                "no = log(x) + log(y) >> log(y * y)")  # fmt: skip
    assert [pair.rules for pair in inverses(laws)] == [("in_", "out")]


def test_a_two_way_rule_that_opens_nothing_is_idle(worker: Worker) -> None:
    (program,) = lang.parse(
        "def f(x: f32[N, M], y: f32[N], *, N=64, M=512) -> f32[N]:\n"
        "    z[n] = sum[m](x[n, m] * y[n] + 1)\n    return z\n"
    )
    laws = pack("comm_add = a + b == b + a", "comm = a * b == b * a",
                "take = sum[j](b * a + c) >> sum[j](a) * b + sum[j](c), j not in b")  # fmt: skip
    (loop,) = idle(laws, [program], worker=worker)
    assert loop.rules == ("comm_add",)


def test_the_command_tells_rules_and_packs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "mine.nau"
    own.write_text("with real:\n    my_one = 1 * (a * 1) >> a\n")
    assert main(["rules", "redundant", "mine", "one_mul", "--rules", str(own), "--json"]) == 0
    found = {d["rule"]: d for d in json.loads(capsys.readouterr().out)["rules"]}
    assert found["one_mul"]["by"] == ["mul_comm", "mul_one"]
    assert found["my_one"]["verdict"] == "derived"
