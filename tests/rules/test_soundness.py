"""Every shipped law is tried against the oracle, and the trial has teeth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nautile import rules
from nautile.rules.check import check

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "identities.json"
IDENTITIES = json.loads(CORPUS.read_text())["identities"]
SHIPPED = rules.load(rules.packs())


@pytest.mark.parametrize("rule", SHIPPED, ids=lambda r: r.name)
def test_a_shipped_law_is_sound(rule: rules.Rule) -> None:
    verdict = check(rule, trials=20, strongest=False)
    assert (verdict.verdict, verdict.counterexample) == ("sound", None)


WRONG = {
    "exact": [
        "r = a + 0 >> a",
        "r = a - a >> 0",
        "r = (a + b) + c >> a + (b + c)",
        "r = a / b >> a * (1 / b)",
        "r = max(a, b) >> a",
        "r = sum[j](a * b) >> sum[j](a) * b, j not in b",
        "r = where(c, a, b) >> where(c, b, a)",
        "r = max[j](a) >> a",
        "r = exp(a) * exp(b) >> exp(a + b)",
    ],
    "real": [
        "r = sum[j](a * b) >> sum[j](a) * b",
        "r = sum[j](a) >> a, j not in a",
        "r = max[j](a * c) >> max[j](a) * c, j not in c",
        "r = exp(a - b) >> exp(a) / exp(b)",
        "r = a * (b - c) >> a * b - a * c",
        # Of size 1000, the first factors are infinite or 0, and no digit is seen to be lost.
        "r = exp(a) * (b - c) >> exp(a) * b - exp(a) * c",
        "r = exp(-a) * (b - c) >> exp(-a) * b - exp(-a) * c",
        "r = max(-a, 0) * (b - c) >> max(-a, 0) * b - max(-a, 0) * c",
        "r = a * (b + c) >> a * b + a * c, b >= 0",
        "r = (a + b) + c >> a + (b - c)",
        "r = sum[j](a * a) >> sum[j](a) * sum[j](a)",
        "r = sum[k](sum[j](a * b) * c) >> sum[j](a * sum[k](b * c)), k not in a",
        "r = mean[j]((a - mean[j](a)) * (a - mean[j](a))) >> "
        "mean[j](a * a) - mean[j](a) * mean[j](a)",
        # The wrong sign, the wrong carrier and a running form that may overflow.
        "r = sum[j](a) >> online[j](m, -k, r), scale(a, m, k, r), m == max[j](b), tame(r), "
        "j not in k",
        "r = sum[j](a) >> online[j](m, k, r), scale(a, l, k, r), m == max[j](b), l == max[j](c), "
        "k < 0, j not in k, tame(r)",
        "r = sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k < 0, j not in k",
        "r = sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k > 0, "
        "j not in k, tame(r)",
        "r = sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k < 0, tame(r)",
    ],
    "fast": ["r = a / b >> b / a", "r = sum[j](a + b) >> sum[j](a) - sum[j](b)", "r = a / a >> 2"],
    "facts": [
        "r = shift(a - b, m, k, a - r), shift(b, m, k, r)",
        "r = scale(a / b, m, k, a / r), scale(b, m, k, r)",
        "r = scale(sum[d](a), m, k, sum[d](r)), scale(a, m, k, r)",
        "r = scale(sum[d](a), m, k, sum[d](r)), scale(a, m, k, r), d not in k",
        "r = scale(a + b, m, k, r + b), scale(a, m, k, r)",
        "r = scale(a, m, k, r), shift(a, m, k, r)",
        "r = scale(where(c, a, 1), m, k, where(c, r, 1)), scale(a, m, k, r)",
        "r = scale(a * b, m, k, r * q), scale(a, m, k, r), scale(b, m, l, q)",
    ],
}


@pytest.mark.parametrize(
    ("section", "law"), [(s, law) for s, laws in WRONG.items() for law in laws]
)
def test_a_wrong_law_is_refuted(section: str, law: str) -> None:
    (rule,) = rules.parse(f"with {section}:\n    {law}\n")
    verdict = check(rule, trials=200, strongest=False, repair=False)
    assert verdict.verdict == "unsound"
    assert verdict.counterexample is not None
    assert repr(verdict.counterexample["left"]) != repr(verdict.counterexample["right"])


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda i: i["name"])
def test_published_verdicts_are_reproduced(identity: dict[str, str]) -> None:
    (rule,) = rules.parse(f"with {identity['claimed']}:\n    {identity['rule']}\n")
    verdict = check(rule, trials=64, repair=False)
    assert (verdict.verdict, verdict.established) == (identity["verdict"], identity["class"])


def test_a_law_that_no_instance_fits_is_unknown() -> None:
    (rule,) = rules.parse("with facts:\n    r = scale(exp(a), m, k, r), shift(-a, m, k, r)\n")
    assert check(rule).verdict == "unknown"
