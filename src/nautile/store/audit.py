"""A look at everything: every row against its checksum, every artifact against its digest.

```
rows          checksum; links against `files`
artifacts     missing, damaged                         by folder of two digits, rows beside files
files         orphan (no row), foreign (no artifact), leftover, quarantined
database      SQLite's integrity_check and foreign_key_check
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, select

from nautile.errors import StoreError

from . import rows
from .database import Database
from .entry import DIGEST, Blob, decode
from .objects import Objects
from .reports import Problem, Verified
from .schema import artifacts, links

__all__ = ["verify"]

SHOWN = 20  # keys named with one artifact; an artifact may be in every entry
BATCH = 500
Progress = Callable[[int], None]


def verify(
    database: Database,
    objects: Objects,
    repair: bool,
    clock: Callable[[], float],
    progress: Progress | None,
) -> Verified:
    """What is wrong, after repairing it where that is wanted."""
    look = _Look(database, objects, repair, progress or (lambda _: None))
    found: list[Problem] = []
    try:
        for step in (look.damage_of_database, look.artifacts, look.rows, look.files):
            found.extend(step())
    except StoreError as error:
        if error.code != "store-corrupt":
            raise
        found.append(Problem("database", error.message))
    return Verified(look.entries, look.contents, look.bytes, tuple(found))


@dataclass(slots=True)
class _Look:
    database: Database
    objects: Objects
    repair: bool
    progress: Progress
    entries: int = 0
    contents: int = 0
    bytes: int = 0
    lost: set[str] = field(default_factory=set)

    def damage_of_database(self) -> Iterator[Problem]:
        """What SQLite finds in its own pages and references."""
        if not self.database.sqlite:
            return
        with self.database.reading() as connection:
            for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(100)"):
                if line != "ok":
                    yield Problem("database", line)
            for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
                yield Problem("database", f"row {row[1]} of {row[0]} refers to none of {row[2]}")

    def artifacts(self) -> Iterator[Problem]:
        """Artifacts with a row whose content is missing or damaged."""
        last = ""
        while named := self._named_after(last):
            for blob in named:
                yield from self._artifact(blob)
            self.progress(len(named))
            last = named[-1].digest

    def _named_after(self, last: str) -> list[Blob]:
        rows = select(artifacts.c.digest, artifacts.c.bytes).where(artifacts.c.digest > last)
        with self.database.reading() as connection:
            found = connection.execute(rows.order_by(artifacts.c.digest).limit(BATCH))
            return [Blob(digest, size) for digest, size in found]

    def _artifact(self, blob: Blob) -> Iterator[Problem]:
        whole = self.objects.whole(blob.digest)
        self.contents += 1
        self.bytes += blob.bytes
        if whole:
            return
        if whole is not None and self.repair:
            self.objects.set_aside(blob.digest)
        with self.database.reading() as connection:
            keys = connection.execute(_users(blob.digest)).scalars().all()
        if whole is None and not keys:
            return  # a row that the next `gc` removes
        self.lost.update(keys)
        kind = "missing" if whole is None else "damaged"
        yield Problem(kind, blob.digest, tuple(keys[:SHOWN]), repaired=self.repair)

    def rows(self) -> Iterator[Problem]:
        """Entries that are damaged themselves; with `repair`, these and those that lost an
        artifact are removed."""
        bad = list(self._bad_rows())
        if self.repair:
            gone = sorted(self.lost | {p.name for p in bad})
            for at in range(0, len(gone), BATCH):
                self._drop(gone[at : at + BATCH])
            bad = [replace(p, repaired=True) for p in bad]
        yield from bad

    def _bad_rows(self) -> Iterator[Problem]:
        with self.database.reading(snapshot=True) as connection:
            stream = rows.stream(connection)
            while batch := list(islice(stream, BATCH)):
                self.entries += len(batch)
                linked = _linked(connection, [row["key"] for row in batch])
                for row in batch:
                    entry, key = decode(row), row["key"]
                    if entry is None:
                        yield Problem("row", key, (key,))
                    elif set(entry.artifacts.values()) != linked.get(key, set()):
                        yield Problem("links", key, (key,))

    def _drop(self, keys: Sequence[str]) -> None:
        self.database.transact(lambda c: rows.remove(c, keys))

    def files(self) -> Iterator[Problem]:
        """Files that belong to no row. They do no harm; `gc` removes the old ones."""
        for folder in self.objects.folders():
            with self.database.reading() as connection:
                named = set(connection.execute(_named(folder)).scalars())
            for file in self.objects.found(folder):
                if not DIGEST.fullmatch(file.name):
                    yield Problem("foreign", file.name)
                elif file.name not in named:
                    yield Problem("orphan", file.name)
        yield from (Problem("leftover", f.name) for f in self.objects.leftovers())
        yield from (Problem("quarantined", f.name) for f in self.objects.damaged())


def _named(prefix: str) -> Select[Any]:
    after, before = artifacts.c.digest >= prefix, artifacts.c.digest < prefix + "g"
    return select(artifacts.c.digest).where(after, before)


def _users(digest: str) -> Select[Any]:
    return select(links.c.key).where(links.c.digest == digest).order_by(links.c.key)


def _linked(connection: Connection, keys: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key, digest in connection.execute(select(links).where(links.c.key.in_(keys))):
        found.setdefault(key, set()).add(digest)
    return found
