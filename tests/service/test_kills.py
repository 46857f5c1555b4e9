"""Nothing accepted is lost or doubled, whatever is killed: a short form of `service.kills`."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.conftest import Place

from .kills import disturbed


@pytest.mark.slow  # test_execution kills one of each kind, each time
def test_kills_lose_nothing(sqlite: Place, tmp_path: Path) -> None:
    outcome = disturbed(sqlite.address, None, tmp_path, kills=4, seed=3, wait=240)
    assert outcome.problems == []
    assert outcome.kills.total() == 4
    assert outcome.accepted


@pytest.mark.slow
def test_many_kills_lose_nothing(place: Place, tmp_path: Path) -> None:
    outcome = disturbed(place.address, place.artifacts, tmp_path, kills=40, seed=4, wait=500)
    assert outcome.problems == []
    assert outcome.kills.keys() == {"server", "worker", "executor", "reader"}
