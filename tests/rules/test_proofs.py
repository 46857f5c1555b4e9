"""Proofs: what is proved, that nothing wrong is, and that the shipped laws mostly are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nautile import rules
from nautile.rules.instance import instantiate
from nautile.rules.normal import proved_by_normal_form
from nautile.rules.proof import proof_of
from nautile.rules.setting import Chance
from nautile.rules.smt import proved_by_z3
from nautile.rules.trials import methods
from nautile.rules.values import violated

from .test_soundness import WRONG

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "identities.json"
IDENTITIES = json.loads(CORPUS.read_text())["identities"]
# Of these only the bits, the finiteness or the digits are wrong, not the equation over the reals.
REAL_EQUATIONS = {
    "r = exp(a - b) >> exp(a) / exp(b)",
    "r = a * (b - c) >> a * b - a * c",
    "r = exp(a) * (b - c) >> exp(a) * b - exp(a) * c",
    "r = exp(-a) * (b - c) >> exp(-a) * b - exp(-a) * c",
    "r = max(-a, 0) * (b - c) >> max(-a, 0) * b - max(-a, 0) * c",
    "r = a * (b + c) >> a * b + a * c, b >= 0",
    "r = mean[j]((a - mean[j](a)) * (a - mean[j](a))) >> mean[j](a * a) - mean[j](a) * mean[j](a)",
}


def one(law: str, section: str = "real") -> rules.Rule:
    (rule,) = rules.parse(f"with {section}:\n    {law}\n")
    return rule


@pytest.mark.parametrize(
    "law",
    [
        "r = sum[j](sum[k](a[j] * b[k])) >> sum[j](a) * sum[k](b)",
        "r = sum[k](sum[j](a * b) * c) >> sum[j](a * sum[k](b * c)), k not in a, j not in c",
        "r = mean[j]((a - mean[j](a)) * (a - mean[j](a))) >> "
        "mean[j](a * a) - mean[j](a) * mean[j](a)",
        "r = softmax[j](a + c) >> softmax[j](a), j not in c",
        "r = log(sum[j](exp(a))) >> max[j](a) + log(sum[j](exp(a - max[j](a))))",
        "r = sigmoid(-a) >> 1 - sigmoid(a)",
        "r = tanh(a) >> 2 * sigmoid(2 * a) - 1",
        "r = max[j](a * c + d) >> max[j](a) * c + d, j not in c, j not in d, c > 0",
        "r = (n * P + m) // P >> n + m // P",
        "r = where(c or d, a, b) >> where(c, a, where(d, a, b))",
        "r = argmax[j](exp(a) / sum[j](exp(a))) >> argmax[j](a)",
    ],
)
def test_a_true_equation_has_one_normal_form(law: str) -> None:
    assert proved_by_normal_form(one(law))


@pytest.mark.parametrize(
    "law",
    [
        "r = sum[j](a * b) >> sum[j](a) * b",
        "r = sum[j](a[j]) * sum[j](b[j]) >> sum[j](a * b)",
        "r = sum[j](sum[k](a * b)) >> sum[j](a) * sum[k](b)",
        "r = max[j](a * c) >> max[j](a) * c, j not in c",
        "r = max[j](sum[k](a)) >> sum[k](max[j](a))",
        "r = sqrt(a * a) >> a",
        "r = log(a * b) >> log(a) + log(b)",
        "r = argmax[j](log(a)) >> argmax[j](a)",
        "r = argmax[j](a * b) >> argmax[j](a), j not in b",
        "r = (n + m) // P >> n // P + m // P",
        "r = where(c, a, b) >> where(c, b, a)",
        "r = (a - b) + b >> a / b * b",
    ],
)
def test_a_wrong_equation_or_one_undefined_on_the_right_has_no_proof(law: str) -> None:
    assert not proved_by_normal_form(one(law))


@pytest.mark.parametrize(
    ("section", "law"), [(s, law) for s, laws in WRONG.items() for law in laws]
)
def test_what_trials_refute_is_not_proved(section: str, law: str) -> None:
    kind = "bits" if section == "exact" else "reals"
    assert (proof_of(one(law, section), kind) is not None) == (law in REAL_EQUATIONS)


@pytest.mark.parametrize("identity", IDENTITIES, ids=lambda i: i["name"])
def test_only_true_identities_are_proved(identity: dict[str, str]) -> None:
    rule = one(identity["rule"], identity["claimed"])
    if identity["class"] == "none":
        assert proof_of(rule, "reals") is None
    if identity["claimed"] == "exact" and identity["verdict"] == "unsound":
        assert proof_of(rule, "bits") is None


@pytest.mark.parametrize(
    ("law", "proved"),
    [
        ("r = a - 0 >> a", True),
        ("r = a + 0 >> a", False),
        ("r = (-a) * b >> -(a * b)", True),
        ("r = a + a >> 2 * a", True),
        ("r = a / 2 >> 0.5 * a", True),
        ("r = a / 3 >> (1 / 3) * a", False),
        ("r = (a + b) + c >> a + (b + c)", False),
        ("r = max(a, min(a, b)) >> a", False),
        ("r = bf16(bf16(a)) >> bf16(a)", True),
        ("r = bf16(f16(a)) >> bf16(a)", False),
        ("r = abs(a * b) >> abs(a) * abs(b)", True),
    ],
)
def test_bits_by_z3(law: str, proved: bool) -> None:
    pytest.importorskip("z3")
    assert proved_by_z3(one(law, "exact"), "bits") == proved


@pytest.mark.parametrize(
    ("law", "proved"),
    [
        ("r = max(a, min(a, b)) >> a", True),
        ("r = max(a, 0) * max(a, 0) >> max(a, 0) * a", True),
        ("r = abs(a) >> a, a >= 0", True),
        ("r = abs(a) >> a", False),
        ("r = a / b >> a * (1 / b)", True),
        ("r = (a - b) + b >> a / b * b", False),
    ],
)
def test_reals_by_z3(law: str, proved: bool) -> None:
    pytest.importorskip("z3")
    assert proved_by_z3(one(law), "reals") == proved


def test_most_shipped_laws_are_proved() -> None:
    shipped = [r for r in rules.load(rules.packs()) if r.numerics != "exact"]
    assert 2 * sum(map(proved_by_normal_form, shipped)) > len(shipped)


def test_proved_laws_hold_of_instances() -> None:
    """The oracle knows nothing of normal forms."""
    for rule in rules.load(rules.packs()):
        kind = "bits" if rule.numerics == "exact" else "reals"
        both = [rule, *([replace(rule, left=rule.right, right=rule.left)] if rule.two_way else [])]
        if kind == "bits" or not all(map(proved_by_normal_form, both)):
            continue
        method = methods(rule, rule.numerics)[0]
        for turn in range(6):
            rng = np.random.default_rng([7, turn])
            instance = instantiate(rule, Chance(rng), turn)
            found = method.attempt(instance, rng)
            assert found is None or violated(instance, found[0]), rule.text
