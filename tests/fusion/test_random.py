"""Random programs, end to end without a compiler: the chosen program equals the oracle."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pytest

from nautile.worker import Worker

from .random_runs import body_of, chunk
from .random_trial import numerics_of, trial

PARTS, QUICK, LONG = 3, 50, 3000
SEED = 2027


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_equal_the_oracle(part: int, worker: Worker) -> None:
    _try_many(worker, islice(_distinct(2), part * QUICK, (part + 1) * QUICK))


@pytest.mark.slow
def test_many_random_programs_equal_the_oracle(worker: Worker) -> None:
    _try_many(worker, islice(_distinct(5), LONG))


def _try_many(worker: Worker, texts: Iterable[str]) -> None:
    """Distinct programs (bench/fuzz_fusion.py shrinks what fails). Rules for dependent reductions
    take part in a third of the plans that need them, or the programs would prove little."""
    features: Counter[str] = Counter()
    count = 0
    for text in texts:
        found = trial(text, worker, numerics_of(text))
        assert not found.failures, "\n".join([text, *found.failures])
        features.update(found.features)
        count += 1
    assert features["dependent"] > count // 3
    assert features["dependent online"] >= features["dependent"] / 3
    assert features["streams"] > count // 2


def _distinct(most: int) -> Iterator[str]:
    seen: set[str] = set()
    for text in chain.from_iterable(chunk(n, SEED, most=most) for n in range(1 << 16)):
        if body_of(text) not in seen:
            seen.add(body_of(text))
            yield text


def test_equal_seeds_give_equal_programs() -> None:
    first = chunk(7, 1, size=20)
    assert first == chunk(7, 1, size=20)
    assert first != chunk(8, 1, size=20)


FOUND = tomllib.loads(Path(__file__).with_name("found.toml").read_text())


@pytest.mark.parametrize("name", FOUND)
def test_what_random_programs_found_stays_right(name: str, worker: Worker) -> None:
    assert trial(FOUND[name], worker).failures == []
