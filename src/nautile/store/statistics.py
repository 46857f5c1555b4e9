"""What is in a store, and why entries of one program are not one entry."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select, text

from . import migration
from .database import Database
from .objects import Objects
from .reports import Stats
from .schema import artifacts, entries, links, metadata

__all__ = ["stats", "totals"]

BATCH = 1000
BESIDE = {"term", "names"}  # what a key is not told apart by


def stats(database: Database, objects: Objects) -> Stats:
    """The figures, all of one state of the database."""
    with database.reading(snapshot=True) as connection:
        apart = _Apart()
        apart.count(_ingredients(connection))
        return Stats(
            place=database.name,
            backend=connection.dialect.name,
            schema=migration.current(connection) or "",
            **totals(connection),
            **_more(connection),
            database_bytes=_database_bytes(connection, database),
            quarantined=sum(1 for _ in objects.damaged()),
            terms=apart.terms,
            distinct={name: len(values) for name, values in sorted(apart.distinct.items())},
            apart=dict(sorted(apart.apart.items())),
        )


def totals(connection: Connection) -> dict[str, Any]:
    """Entries and artifacts, and their bytes."""
    records = select(func.count(), func.coalesce(func.sum(entries.c.size), 0))
    contents = select(func.count(), func.coalesce(func.sum(artifacts.c.bytes), 0))
    count, size = connection.execute(records.select_from(entries)).one()
    kinds, stored = connection.execute(contents.select_from(artifacts)).one()
    return {
        "entries": count,
        "artifacts": kinds,
        "record_bytes": int(size),
        "artifact_bytes": int(stored),
    }


def _more(connection: Connection) -> dict[str, Any]:
    more = (func.count() - 1).label("more")
    uses = select(links.c.digest, more).group_by(links.c.digest).subquery()
    same = uses.c.digest == artifacts.c.digest
    shared = select(func.sum(artifacts.c.bytes * uses.c.more)).join_from(artifacts, uses, same)
    times = select(
        func.coalesce(func.sum(entries.c.hits), 0),
        func.min(entries.c.created),
        func.max(entries.c.created),
    )
    hits, oldest, newest = connection.execute(times).one()
    made = select(entries.c.version, func.count().label("made")).group_by(entries.c.version)
    return {
        "shared_bytes": int(connection.execute(shared).scalar() or 0),
        "hits": int(hits),
        "oldest": oldest,
        "newest": newest,
        "versions": {row.version: row.made for row in connection.execute(made)},
    }


def _database_bytes(connection: Connection, database: Database) -> int:
    if database.sqlite:
        path = Path(database.url.database or "")
        files = [path, path.with_name(path.name + "-wal")]
        return sum(f.stat().st_size for f in files if f.exists())
    of_table = text("SELECT pg_total_relation_size(to_regclass(:name))")
    sizes = (connection.execute(of_table, {"name": n}).scalar() for n in metadata.tables)
    return sum(int(size or 0) for size in sizes)


def _ingredients(connection: Connection) -> Iterator[tuple[str | None, dict[str, Any]]]:
    ordered = select(entries.c.term, entries.c.ingredients).order_by(entries.c.term)
    for term, made_of in connection.execute(ordered.execution_options(yield_per=BATCH)):
        yield term, json.loads(made_of)


class _Apart:
    """How many values each ingredient has, and in how many entries of one term it differs."""

    def __init__(self) -> None:
        self.terms = 0
        self.distinct: dict[str, set[bytes]] = {}
        self.apart: Counter[str] = Counter()

    def count(self, found: Iterable[tuple[str | None, dict[str, Any]]]) -> None:
        """Count ingredients that come sorted by term, those of one term in memory at a time."""
        for term, group in groupby(found, key=lambda pair: pair[0]):
            members = [made_of for _, made_of in group] if term is not None else []
            self.terms += term is not None
            names = {name for made_of in members for name in made_of} - BESIDE
            for name in names:
                values = [_hash(made_of.get(name)) for made_of in members]
                self.distinct.setdefault(name, set()).update(values)
                if len(set(values)) > 1:
                    self.apart[name] += len(members)


def _hash(value: Any) -> bytes:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).digest()
