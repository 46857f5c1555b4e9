"""Packs that are loaded by name: sound as stated, and out of the way of everything else."""

from __future__ import annotations

import pytest

from nautile import rules
from nautile.rules.check import check
from nautile.rules.library import OPTIONAL

LAWS = rules.load(OPTIONAL)


@pytest.mark.parametrize("rule", LAWS, ids=lambda r: r.name)
def test_a_law_of_an_optional_pack_is_sound(rule: rules.Rule) -> None:
    verdict = check(rule, trials=20)
    assert (verdict.verdict, verdict.counterexample) == ("sound", None)


def test_optional_packs_are_loaded_by_name_alone() -> None:
    default = {rule.pack for rule in rules.load()}
    assert default.isdisjoint(OPTIONAL)
    assert {rule.pack for rule in rules.load(rules.packs())} == default | set(OPTIONAL)


def test_there_are_laws_of_every_kind() -> None:
    every = rules.load(rules.packs())
    assert len(every) >= 150
    assert {
        "algebra",
        "elementwise",
        "reductions",
        "contractions",
        "dependent",
        "casts",
        "masks",
    } <= {rule.pack for rule in every}
