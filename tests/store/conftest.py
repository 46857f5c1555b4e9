"""Each test runs on a SQLite store and on a PostgreSQL one: both keep the same promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nautile.store import Store
from store.postgresql import postgresql

__all__ = ["postgresql"]


@dataclass(frozen=True)
class Place:
    """Where a store is: what `Store.open` takes."""

    address: str
    artifacts: Path
    backend: str

    def open(self, **options: Any) -> Store:
        return Store.open(self.address, self.artifacts, **options)

    def object(self, digest: str) -> Path:
        """The file of an artifact, found without the store's own code."""
        return self.artifacts / "objects" / digest[:2] / digest[2:]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place on each kind of database."""
    if request.param == "sqlite":
        return Place(str(tmp_path / "store"), tmp_path / "store", "sqlite")
    server = request.getfixturevalue("postgresql")
    return Place(server.database(), tmp_path / "artifacts", "postgresql")


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    """An empty place of a SQLite store."""
    return Place(str(tmp_path / "store"), tmp_path / "store", "sqlite")
