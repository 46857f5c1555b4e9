"""Derivations of random programs replay; the fewest rules against all subsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tests.fusion.random_programs import programs

from nautile import lang, stages
from nautile.errors import NautileError
from nautile.inspector.derivation import derive, replays
from nautile.inspector.derivation.fewest import fewest
from nautile.options import Options
from nautile.stages import Optimization
from nautile.worker import Worker

from .test_derivation import connected


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as own:
        yield own


def check(text: str, worker: Worker) -> None:
    """Connected and complete, or with a gap that says why; every step of a law by itself."""
    (program,) = lang.parse(text)
    result = Optimization(program, Options())
    try:
        stages.saturate(result, worker)
        stages.choose(result)
    except NautileError:
        return
    found = derive(result, worker)
    connected(result, found)
    assert found.complete or all(gap.reason for gap in found.gaps)
    assert not [s for s in found.steps if s.check == "failed"]
    alone = [s for s in found.steps if s.check == "alone"]
    assert all(replays(step, result, worker) for step in alone[:1])


_SETTINGS = settings(
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@given(text=programs())
@settings(_SETTINGS, max_examples=4)
def test_random_programs_are_derived(text: str, worker: Worker) -> None:
    check(text, worker)


@pytest.mark.slow
@given(text=programs())
@settings(_SETTINGS, max_examples=150)
def test_many_random_programs_are_derived(text: str, worker: Worker) -> None:
    check(text, worker)


# ---- fewest rules --------------------------------------------------------------------------------


@given(
    goals=st.lists(st.frozensets(st.integers(0, 6), max_size=4), min_size=1, max_size=4),
    guess=st.frozensets(st.integers(0, 6)),
)
@example([frozenset({0, 1, 2, 3}), frozenset({0, 1, 4}), frozenset({0, 1, 5})], frozenset())
@settings(deadline=None, max_examples=200)
def test_fewest_against_all_subsets(goals: list[frozenset[int]], guess: frozenset[int]) -> None:
    """Whatever reaches a goal reaches it with more rules, too: one of some sets must be there."""
    asked: list[frozenset[int]] = []

    def reaches(rules: Collection[int]) -> bool:
        asked.append(frozenset(rules))
        return any(goal <= frozenset(rules) for goal in goals)

    whole = frozenset(range(7))
    sizes = [n for n in range(8) for s in combinations(whole, n) if reaches(s)]
    least = min(sizes)
    smallest = {frozenset(s) for s in combinations(whole, least) if reaches(s)}
    found = fewest(reaches, whole, guess)
    assert found is not None
    assert reaches(found.rules)
    assert all(not reaches(found.rules - {rule}) for rule in found.rules)
    assert found.smallest
    assert found.rules in smallest
    assert {found.rules, *found.others} == smallest


def test_no_rules_reach_what_all_do_not() -> None:
    assert fewest(lambda rules: False, {1, 2, 3}, {1}) is None
