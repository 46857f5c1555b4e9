"""Negative controls of the laws behind online sums: no guard of theirs can be dropped.

Every side condition of the packs that follow running values is taken away in turn, and random
instances must refute what is left. Conditions that hold growth or digits, not truth, are explained.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautile import rules
from nautile.rules.check import check
from nautile.rules.law import Carrier, Condition, Kind, NotFree, Rule, Sign

PACKS = ("dependent", "moments")
TRUTH = (NotFree, Carrier, Sign)
# Conditions without which the law still holds, by law and condition, and why they are there.
EXPLAINED = {
    ("top_shift", "NotFree b"): "the relation holds position by position; go_online_top asks again",
    ("weighted_shift", "Sign w"): "weights of both signs may cancel in a running sum of weights",
    ("weighted_bend", "Sign w"): "weights of both signs may cancel in a running sum of weights",
    ("top_power", "Sign a"): "the relation holds for any sign; go_power asks again",
    ("pow_power", "Kind n"): "the relation holds for any exponent; repairs need a number",
    ("again_affine", "Carrier m"): "only a reduction has a running value: no law without it",
    ("covariance", "Carrier x"): "only a reduction has a running value: no law without it",
    ("covariance", "Carrier y"): "only a reduction has a running value: no law without it",
    ("drop_up", "Sign k"): "slopes of both signs may cancel: digits, not truth",
    ("drop_down", "Sign k"): "slopes of both signs may cancel: digits, not truth",
}


def bears_truth(condition: Condition) -> bool:
    """Whether a law would be wrong, rather than slow or less precise, without the condition."""
    if isinstance(condition, Kind):
        return condition.kind == "finite"
    return isinstance(condition, TRUTH)


def cases() -> list[object]:
    found = []
    for rule in rules.load():
        for condition in rule.conditions if rule.pack in PACKS else ():
            label = f"{type(condition).__name__} {condition.name}"
            if bears_truth(condition) and (rule.name, label) not in EXPLAINED:
                found.append(pytest.param(rule, condition, id=f"{rule.name}: {label}"))
    return found


def without(rule: Rule, condition: Condition) -> Rule:
    return replace(rule, conditions=tuple(c for c in rule.conditions if c != condition))


def test_there_are_guards() -> None:
    assert len(cases()) >= 20


@pytest.mark.parametrize(("rule", "condition"), cases())
def test_a_law_without_its_guard_is_refuted(rule: Rule, condition: Condition) -> None:
    assert check(without(rule, condition), trials=200).verdict == "unsound"


@pytest.mark.parametrize("name", ["go_online", "go_online_min", "go_online_top", "again"])
def test_a_running_form_that_may_overflow_is_refuted(name: str) -> None:
    (rule,) = (r for r in rules.load() if r.name == name)
    (tame,) = (c for c in rule.conditions if isinstance(c, Kind) and c.kind == "tame")
    assert check(without(rule, tame), trials=200).verdict == "unsound"
