"""Transactions of the service on the store's database (nautile.store.database says how they wait,
and when they are run again)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from nautile.errors import StoreError
from nautile.store.database import Database

__all__ = ["Database", "now", "skip_locked", "written"]

_T = TypeVar("_T")
_ATTEMPTS = 8


def written(database: Database, work: Callable[[sa.Connection], _T]) -> _T:
    """What `work` returns, after its transaction was committed. It may run several times: its only
    effects are on the connection. Another process may have inserted the same row between a look and
    an insertion here (PostgreSQL alone: SQLite has one writer), so that is run again, too."""
    for _ in range(_ATTEMPTS):
        try:
            return database.transact(work)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            last = error
    raise last


def now(connection: sa.Connection) -> float:
    """Seconds since 1970 by the clock that all processes of the service share: the server's on
    PostgreSQL, this machine's on SQLite, which only serves one machine."""
    if connection.dialect.name == "postgresql":
        value = connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())"))
        return float(value or 0)
    return time.time()


def skip_locked(query: sa.Select[Any], *tables: sa.Table) -> sa.Select[Any]:
    """The query, passing over rows that another transaction holds (SQLite has no such rows: its
    writers come one after the other, and its dialect leaves the clause away)."""
    return query.with_for_update(skip_locked=True, of=list(tables))
