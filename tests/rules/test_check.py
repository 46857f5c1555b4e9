"""What `nautile rules check` says: classes, small counterexamples that reproduce, repairs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nautile import rules
from nautile.cli import main
from nautile.errors import InputError
from nautile.rules.check import Verdict, check

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))


def verdict(law: str, section: str, **more: bool) -> Verdict:
    (rule,) = rules.parse(f"with {section}:\n    r = {law}\n")
    return check(rule, trials=48, **more)


@pytest.mark.parametrize(
    ("law", "section", "missing"),
    [
        ("sum[j](a * b) >> sum[j](a) * b", "real", "j not in b"),
        ("max[j](a * c) >> max[j](a) * c, j not in c", "real", "c >= 0"),
        ("sqrt(a * a) >> a", "real", "a >= 0"),
        ("a / a >> 1", "real", "a != 0"),
        ("(n + m) // P >> n // P + m // P", "exact", "n % P == 0"),
        ("sum[j: J](x[j]) >> sum[p: J // Q](sum[q: Q](x[p*Q + q]))", "real", "J % Q == 0"),
        ("sum[j](a) >> sum[j](a) * (size(j) / size(j)) * where(size(j) > 1, 1, 2)", "real",
         "size(j) > 1"),
        ("a - a >> 0", "exact", "finite(a)"),
    ],
)  # fmt: skip
def test_a_missing_condition_is_named(law: str, section: str, missing: str) -> None:
    found = verdict(law, section, strongest=False)
    assert (found.verdict, found.missing_condition) == ("unsound", missing)


def test_what_no_condition_repairs_has_none() -> None:
    assert verdict("(a - b) - c >> a - (b - c)", "real", strongest=False).missing_condition is None


@pytest.mark.parametrize(
    ("law", "section", "values"),
    [
        ("a + 0 >> a", "exact", {"a": "-0.0"}),
        ("sqrt(a * a) >> a", "real", {"a": -1.0}),
        ("(n + m) // P >> n // P + m // P", "exact", {"n": 1, "m": 1}),
        ("max[j](a * c) >> max[j](a) * c, j not in c", "real",
         {"a": {"axes": ["j"], "data": [0.0, 1.0]}, "c": -1.0}),
    ],
)  # fmt: skip
def test_counterexamples_are_small(law: str, section: str, values: dict[str, object]) -> None:
    found = verdict(law, section, strongest=False, repair=False).counterexample
    assert found is not None
    assert found["values"] == values


@pytest.mark.parametrize(
    ("law", "section"),
    [
        ("a + 0 >> a", "exact"),
        ("sum[j](a * b) >> sum[j](a) * b", "real"),
        ("sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k > 0, "
         "j not in k, tame(r)", "real"),
        ("scale(a + b, m, k, r + b), scale(a, m, k, r)", "facts"),
    ],
)  # fmt: skip
def test_counterexamples_reproduce(law: str, section: str) -> None:
    found = verdict(law, section, strongest=False, repair=False).counterexample
    assert found is not None
    code = found["reproduce"].removeprefix('python -c "').removesuffix('"')
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    left, right = eval(text.stdout, {"nan": float("nan"), "inf": float("inf")})
    assert repr(left) != repr(right)


def test_values_must_fit_the_law() -> None:
    assert rules.evaluate("real: a * b >> b * a", {"a": 2.0, "b": ("j", [1, 3])}) == (
        [2.0, 6.0], [2.0, 6.0]
    )  # fmt: skip
    for law, values in (
        ("real: sqrt(a) >> sqrt(a), a > 0", {"a": -1.0}),
        ("real: a * b >> b * a", {"a": 1.0}),
        ("real: a * b >> b * a", {"a": [1.0], "b": 1.0}),
        ("a * b >> b * a", {"a": 1.0, "b": 1.0}),
    ):
        with pytest.raises(InputError):
            rules.evaluate(law, values)


@pytest.mark.parametrize(
    ("law", "stated", "established"),
    [
        ("sum[j: J](a) >> J * a, j not in a", "real", "real"),
        ("max[j](a + c) >> max[j](a) + c, j not in c", "real", "real"),
        ("a * b >> b * a", "fast", "exact"),
        ("a / b >> a * (1 / b)", "exact", "real"),
        ("a / a >> 1", "exact", "fast"),
        ("a / b >> b / a", "real", "none"),
    ],
)
def test_the_strongest_class_is_established(law: str, stated: str, established: str) -> None:
    assert verdict(law, stated, repair=False).established == established


def test_laws_that_never_apply_have_no_verdict() -> None:
    found = verdict("a * 1 >> a * 2, a > 1, a < -1", "real")
    assert (found.verdict, found.method) == (
        "unknown", "no values meet the law's conditions: it never applies"
    )  # fmt: skip


def test_time_that_runs_out_is_no_verdict() -> None:
    (rule,) = rules.parse("with real:\n    r = erf(a) * erf(b) * c >> c * erf(b) * erf(a) / 1.5\n")
    assert check(rule, seconds=0.0).verdict == "unknown"


def test_approximate_laws_are_held_to_their_bound() -> None:
    law = "sin(a) >> a, within({}), a < 0.5, a > -0.5"
    assert verdict(law.format(0.03), "approx").verdict == "sound"
    assert verdict(law.format(0.001), "approx", repair=False).verdict == "unsound"


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.nau"
    path.write_text("with exact:\n    bad = a + 0 >> a\n    good = -(-a) >> a\n")
    assert main(["rules", "check", str(path), "--json", "--trials", "20"]) == 3
    bad, good = map(json.loads, capsys.readouterr().out.splitlines())
    keys = ["rule", "pack", "stated", "established", "verdict", "method", "tried", "seconds"]
    assert {*keys, "counterexample", "missing_condition", "proved"} == set(bad)
    assert (bad["verdict"], good["verdict"], good["proved"]) == ("unsound", "sound", True)
    assert main(["rules", "check", f"{path}:good"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["verdict", "rule", "class", "instances", "time", "how"]
    assert "proof: " in text
    assert "1 rules: 1 sound, 0 unsound, 0 without a verdict; 1 proved (100%)" in text
    assert main(["rules", "check", f"{path}:bad"]) == 3
    text = capsys.readouterr().out
    assert "float32 bits: the bits differ" in text
    assert "it holds as real" in text
    path.write_text("with exact:\n    bad = a +\n")
    assert main(["rules", "check", str(path)]) == 2
    assert main(["rules", "check", "nothing"]) == 2


def test_random_rules_neither_crash_nor_hang_the_checker() -> None:
    from fuzz_rules import fuzz

    report = fuzz(40, seed=11, seconds=2.0, trials=4)
    assert report["wrong"] == []


@pytest.mark.slow
def test_many_random_rules() -> None:
    from fuzz_rules import fuzz

    assert fuzz(1500, seed=12, seconds=2.0)["wrong"] == []
