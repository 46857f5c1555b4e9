"""What may be asked of an executor, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from nautile.errors import InputError
from nautile.executor import Place, Pool


@pytest.mark.parametrize(
    "asked",
    [{"kind": "dask"}, {"address": "127.0.0.1:6379"}, {"measure": True}],
)
def test_what_does_not_fit_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(InputError) as refused:
        Place(**asked)  # type: ignore[arg-type]
    assert refused.value.code == "usage"


def test_the_pool_has_as_many_workers_as_asked() -> None:
    with Place(jobs=3).executor() as pool:
        assert isinstance(pool, Pool)
        assert pool.jobs == 3
