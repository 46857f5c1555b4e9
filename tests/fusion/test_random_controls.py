"""Negative controls of random programs: what is broken on purpose is found among few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from nautile import rules
from nautile.codegen import interpret, lower, products
from nautile.codegen.tile import Fold
from nautile.rules import Rule
from nautile.worker import Worker

from . import random_trial
from .random_runs import chunk
from .random_trial import trial

WITHIN = 100  # random programs; the requirement is 300


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def programs() -> Iterator[str]:
    for number in range(WITHIN):
        yield from chunk(number, 11)


def first_failure(worker: Worker) -> str:
    """The first program of a run that fails, with what failed; empty where none does."""
    for text in islice(programs(), WITHIN):
        failures = trial(text, worker).failures
        if failures:
            return text + failures[0]
    return ""


LAWS = {
    "a sign": ("sub_shift", "shift(a - b, m, k, a - r), shift(b, m, k, r)"),
    "a slope": ("exp_scale", "scale(exp(a), m, 2 * k, exp(r)), shift(a, m, k, r)"),
    "a mask": ("where_mul", "where(c, a, 0) * b >> a * b"),
}


SLOW = dict.fromkeys(("a sign", "a mask"), pytest.mark.slow)


def broken(name: str, text: str) -> Callable[[str], tuple[Rule, ...]]:
    """The laws of `real`, one of them replaced."""
    sound = random_trial.loaded("real")
    (old,) = (r for r in sound if r.name == name)
    (new,) = rules.parse(f"with {old.numerics}:\n    {name} = {text}\n")
    return lambda numerics: tuple(new if r is old else r for r in sound)


@pytest.mark.parametrize("what", [pytest.param(w, marks=SLOW.get(w, ())) for w in LAWS])
def test_a_wrong_law_is_found(what: str, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_trial, "loaded", broken(*LAWS[what]))
    assert first_failure(worker)


def test_old_running_values_taken_for_new_ones_are_found(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = interpret._Block._fold

    def swapped(self: interpret._Block, statement: Fold) -> None:
        fold(self, statement)
        if statement.before is not None:
            self.values[statement.before.name] = self.values[statement.target.name]

    monkeypatch.setattr(interpret._Block, "_fold", swapped)
    found = first_failure(worker)
    assert "tile programs" in found or "certificate" in found


def test_a_repair_that_is_left_out_is_found(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lower, products):
        monkeypatch.setattr(module, "moves", lambda term: (None, None))
    found = first_failure(worker)
    assert "tile programs" in found or "certificate" in found
