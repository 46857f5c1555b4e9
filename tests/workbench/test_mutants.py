"""The mutants of laws, and the evaluator that decides whether a change matters, on known cases."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nautile import rules
from nautile.rules.law import Rule

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from rule_meaning import differs  # noqa: E402
from rule_mutants import mutants  # noqa: E402


def law(text: str, section: str = "real") -> Rule:
    (rule,) = rules.parse(f"with {section}:\n    r = {text}\n")
    return rule


def test_every_condition_sign_and_operator_is_changed_once() -> None:
    rule = law("sum[j](a * b) >> sum[j](a) * -b, j not in b, a > 0")
    assert [(m.kind, m.text) for m in mutants(rule)] == [
        ("condition", "(sum[j](a * b) >> sum[j](a) * -b, a > 0)"),
        ("condition", "(sum[j](a * b) >> sum[j](a) * -b, j not in b)"),
        ("sign", "(sum[j](a * b) >> sum[j](a) * -b, j not in b, a < 0)"),
        ("operator", "(max[j](a * b) >> sum[j](a) * -b, j not in b, a > 0)"),
        ("operator", "(sum[j](a * b) >> sum[j](a) / -b, j not in b, a > 0)"),
        ("operator", "(sum[j](a / b) >> sum[j](a) * -b, j not in b, a > 0)"),
        ("operator", "(sum[j](a * b) >> max[j](a) * -b, j not in b, a > 0)"),
        ("sign", "(sum[j](a * b) >> sum[j](a) * b, j not in b, a > 0)"),
    ]


def test_the_arrow_is_no_operator() -> None:
    assert [m.text for m in mutants(law("exp(a - b) == exp(a) / exp(b)"))] == [
        "exp2(a - b) == exp(a) / exp(b)",
        "exp(a - b) == exp(a) * exp(b)",
        "exp(a + b) == exp(a) / exp(b)",
        "exp(a - b) == exp2(a) / exp(b)",
        "exp(a - b) == exp(a) / exp2(b)",
    ]


TRUE = [
    ("exact", "a - 0 >> a"),
    ("exact", "max[j](bf16(a)) >> bf16(max[j](a))"),
    ("real", "sum[j](a * b) >> sum[j](a) * b, j not in b"),
    ("real", "max[j](exp(a) * b) >> exp(max[j](a)) * b, j not in b, b > 0"),
    ("facts", "scale(exp(a), m, k, exp(r)), shift(a, m, k, r)"),
    ("facts", "scale(sum[d](a), m, k, sum[d](r)), scale(a, m, k, r), d not in m, d not in k"),
    ("fast", "a - a >> 0"),
]
FALSE = [
    ("exact", "a + 0 >> a"),
    ("exact", "(a + b) + c >> a + (b + c)"),
    ("real", "sum[j](a * b) >> sum[j](a) * b"),
    ("real", "exp(a - b) >> exp(a) / exp(b)"),  # overflows
    ("real", "a * (b - c) >> a * b - a * c"),  # loses digits
    ("real", "max[j](a * b) >> max[j](a) * b, j not in b"),
    ("real", "sum[j](a) >> sum[j](r) - m * sum[j](k), drop(a, m, k, r), j not in m, k >= 0"),
    ("facts", "scale(exp(a), m, k, exp(r)), scale(a, m, k, r)"),
    ("facts", "scale(sum[d](a), m, k, sum[d](r)), scale(a, m, k, r)"),
    ("fast", "a / b >> b / a"),
]


@pytest.mark.parametrize(("section", "text"), TRUE)
def test_brute_force_finds_nothing_against_a_true_law(section: str, text: str) -> None:
    assert differs(law(text, section), trials=40) is None


@pytest.mark.parametrize(("section", "text"), FALSE)
def test_brute_force_finds_what_is_wrong_with_a_false_law(section: str, text: str) -> None:
    assert differs(law(text, section), trials=150) is not None


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules.load(), ids=lambda r: r.name)
def test_brute_force_agrees_with_every_shipped_law(rule: Rule) -> None:
    assert differs(rule, trials=25) is None
