"""Queues on both databases, and real servers on the loopback device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store.conftest import Place, place, sqlite
from store.postgresql import postgresql

from nautile.service.database import Database
from nautile.store import Store

__all__ = ["place", "postgresql", "sqlite"]


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """An empty store on each kind of database."""
    with place.open() as opened:
        yield opened


@pytest.fixture
def database(store: Store) -> Database:
    """Its database."""
    return store.database
