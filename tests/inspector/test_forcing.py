"""What a question forces is of use: kernels that would stand idle are given a reader."""

from __future__ import annotations

import pytest

from nautile.extract.exact import Exact
from nautile.inspector.why_not.forcing import cheapest
from nautile.inspector.why_not.inquiry import Inquiry

from .explained import chosen, parts_of
from .questions import worker
from .test_candidates import without_idlers


@pytest.mark.parametrize("name", ["two"])
def test_a_column_that_would_stand_idle_is_read(name: str) -> None:
    """Forced alone, some columns run beside the best program, and nobody reads what they make. The
    truth is the cheapest of all sets of which no column could be left out."""
    _, pool, _ = parts_of(name)
    sets = list(without_idlers(pool.columns, pool.roots))
    idle = 0
    for k in range(len(pool.columns)):
        alone = Exact(force=frozenset([k]))(pool.columns, pool.roots)
        least = min((sum(pool.columns[j].cost for j in s) for s in sets if k in s), default=None)
        if alone is None or least is None or alone.cost >= least * (1 - 1e-6):
            continue
        idle += 1
        found = cheapest(Inquiry(chosen(name), worker()), pool, [[k]])
        assert found is not None
        assert found.seconds == pytest.approx(least, rel=0.02)
        assert found.seconds > alone.cost * 1.04
    assert idle
