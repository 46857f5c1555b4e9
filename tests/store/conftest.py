"""Each test runs on a SQLite store and on a PostgreSQL one: both keep the same promises."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
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


class Processes:
    """Processes that run functions of `store.work`, forked from a server that has loaded it. They
    see an empty main module, so that they do not load pytest again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["store.work"])
        tests = str(Path(__file__).parents[1])
        patch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))

    def start(self, work: Callable[..., None], *given: object) -> Any:
        process = self.context.Process(target=work, args=given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
            process.start()
        return process

    def pipe(self) -> Any:
        return self.context.Pipe(duplex=False)


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with pytest.MonkeyPatch.context() as patch:
        yield Processes(patch)


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    """An empty place of a SQLite store."""
    return Place(str(tmp_path / "store"), tmp_path / "store", "sqlite")
