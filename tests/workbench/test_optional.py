"""Packs that are loaded by name are out of the way of everything else."""

from __future__ import annotations

from nautile import rules
from nautile.rules.library import OPTIONAL


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
