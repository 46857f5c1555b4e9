"""The statements of entries: load, save, remove. All run in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, bindparam, delete, insert, select

from nautile import __version__

from .entry import Draft, Entry, decode
from .schema import artifacts, entries, links

__all__ = ["keys", "load", "remove", "save", "stream"]

LOG = logging.getLogger("nautile.store")
LOAD = select(entries).where(entries.c.key == bindparam("key"))
REMOVE = delete(entries).where(entries.c.key == bindparam("of"))
BATCH = 500  # rows at a time; SQLite takes 32,766 parameters


def load(connection: Connection, key: str) -> Entry | None:
    """The entry of that key; None where there is none, or its row is damaged."""
    row = connection.execute(LOAD, {"key": key}).mappings().first()
    if row is None:
        return None
    entry = decode(dict(row))
    if entry is None:
        LOG.warning("the row of entry %s is damaged", key)
    return entry


def save(connection: Connection, draft: Draft, now: float, created: float | None = None) -> Entry:
    """Write the entry in place of the one that was there, if any."""
    blobs = sorted({(b.digest, b.bytes) for b in draft.blobs.values()})
    if blobs:
        new = [{"digest": digest, "bytes": size, "created": now} for digest, size in blobs]
        connection.execute(_unless_there(connection), new)
    connection.execute(REMOVE, {"of": draft.key})
    row = draft.row(now, __version__, created)
    connection.execute(insert(entries), [row])
    if blobs:
        connection.execute(insert(links), [{"key": draft.key, "digest": d} for d, _ in blobs])
    entry = decode(row)
    assert entry is not None
    return entry


def remove(connection: Connection, gone: Sequence[str]) -> int:
    """Remove the entries of these keys; how many there were."""
    return connection.execute(delete(entries).where(entries.c.key.in_(gone))).rowcount


def keys(connection: Connection) -> Iterator[str]:
    """All keys, sorted."""
    ordered = select(entries.c.key).order_by(entries.c.key)
    result = connection.execute(ordered.execution_options(yield_per=BATCH))
    yield from result.scalars()


def stream(connection: Connection, only: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """All rows, or those of the keys, sorted, a few in memory at a time."""
    if only is None:
        ordered = select(entries).order_by(entries.c.key)
        result = connection.execute(ordered.execution_options(yield_per=BATCH))
        yield from (dict(row) for row in result.mappings())
        return
    for key in sorted(set(only)):
        row = connection.execute(LOAD, {"key": key}).mappings().first()
        if row is not None:
            yield dict(row)


def _unless_there(connection: Connection) -> Insert:
    from sqlalchemy.dialects import postgresql, sqlite

    if connection.dialect.name == "sqlite":
        return sqlite.insert(artifacts).on_conflict_do_nothing()
    return postgresql.insert(artifacts).on_conflict_do_nothing()
