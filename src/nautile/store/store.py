"""The store: entries in the database, their artifacts in the folder, and the rules between them.

The order of a `put` is what makes it safe to die anywhere: artifacts first, synced; then one
transaction that looks whether they are all (still) there and writes the row with its links. So a
row never names what is not on disk; a death in between leaves files that no row names, which `gc`
removes. `gc` looks and removes under the lock that this transaction shares.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, MetaData

from nautile.errors import StoreError

from . import rows
from .database import Database
from .entry import Draft, Entry, checked_key, checked_paths
from .hits import Hits
from .materials import materialize
from .objects import Objects
from .opening import opened
from .reports import Collected, Exported, Imported, Stats, Verified
from .schema import metadata

__all__ = ["Store"]

T = TypeVar("T")
GRACE = 3600.0  # seconds for which `gc` leaves alone what no row names: it may be being written
TRIES = 100  # of a put, when a `gc` without grace removes what it has just written
LOG = logging.getLogger("nautile.store")


class Store:
    """An open store; safe to use from several threads, not across a fork. Every method raises
    StoreError where the disk or the database refuses."""

    def __init__(
        self, database: Database, objects: Objects, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.database, self.objects, self.clock = database, objects, clock
        self._hits = Hits(database, clock)
        self._closed = False

    @classmethod
    def open(
        cls,
        place: str | Path,
        artifacts: Path | None = None,
        *,
        read_only: bool = False,
        wait: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """The store in the folder `place`, or in the database at the URL `place`; it is made where
        there is none, and brought to this release's schema where it is older.

        `artifacts` is the folder of the artifacts: without, that of the SQLite file; a PostgreSQL
        store needs one, shared by all its hosts. `wait` is how many seconds to try while others
        hold the database. Raises StoreError (`store-foreign`, `store-newer`, `store-missing` when
        read-only, `store-permission`, `store-unreachable`, ...).
        """
        return cls(*opened(place, artifacts, read_only=read_only, wait=wait), clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the counts of hits, and close the connections. It may be called again."""
        if not self._closed:
            self._closed = True
            self._hits.flush()
            self.database.close()

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, for tables of others in the same database; see `transact`."""
        return self.database.engine

    @property
    def schema(self) -> MetaData:
        """The store's tables."""
        return metadata

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that only reads, for tables of others in the same database."""
        with self.database.reading() as connection:
            yield connection

    def transact(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, run in one writing transaction, and again from its start when
        another process came in between or the connection was lost."""
        self._open()
        return self.database.transact(work)

    def get(self, key: str) -> Entry | None:
        """The entry of that key, and counts a hit; None where there is none, or where its row or
        one of its artifacts is damaged or missing."""
        entry = self.peek(key)
        if entry is not None and not self.database.read_only:
            self._hits.count(entry.key)
        return entry

    def peek(self, key: str) -> Entry | None:
        """As `get`, and counts nothing."""
        self._open()
        checked_key(key)
        return self._whole(self.database.transact(lambda c: rows.load(c, key), write=False), key)

    def put(
        self,
        key: str,
        record: Mapping[str, Any],
        artifacts: Mapping[str, bytes | Path] | None = None,
        *,
        ingredients: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> Entry:
        """Store a result, and return what the key holds now: the first result of a key stays,
        unless it is damaged or `replace` is set. On return it is on disk.

        `artifacts` are contents, or files to copy, by relative path; `ingredients` are the JSON
        values that the key was made of. Raises StoreError, and then nothing has changed.
        """
        contents = dict(artifacts or {})
        Draft.of(key, record, ingredients or {}, {})
        checked_paths(contents)
        if not replace and (there := self.peek(key)) is not None:
            return there
        self._writable()
        for _ in range(TRIES):
            blobs = {path: self.objects.add(content) for path, content in contents.items()}
            draft = Draft.of(key, record, ingredients or {}, blobs)
            if entry := self.keep(draft, replace=replace):
                return entry
        raise StoreError(f"artifacts of {key} are removed again and again", code="store-busy")

    def keep(
        self, draft: Draft, *, replace: bool = False, created: float | None = None
    ) -> Entry | None:
        """Write the row of artifacts that are in the folder; None where one of them is gone again,
        so that it has to be added once more."""

        def work(connection: Connection) -> Entry | None:
            self.database.hold(connection, "objects", shared=True)
            self.database.hold(connection, f"key {draft.key}")
            there = None if replace else self._whole(rows.load(connection, draft.key), draft.key)
            if there is not None:
                return there
            if not all(self.objects.holds(blob) for blob in draft.blobs.values()):
                return None
            return rows.save(connection, draft, self.clock(), created)

        self._writable()
        return self.database.transact(work)

    def remove(self, key: str) -> bool:
        """Remove an entry; whether there was one. Its artifacts stay until the next `gc`."""
        self._writable()
        return self.database.transact(lambda c: rows.remove(c, [checked_key(key)]) > 0)

    def keys(self) -> Iterator[str]:
        """All keys, sorted, as they are now."""
        self._open()
        with self.database.reading() as connection:
            yield from rows.keys(connection)

    def read(self, digest: str) -> bytes | None:
        """The content of that digest; None where it is missing, or damaged and so moved aside."""
        self._open()
        return self.objects.read(digest)

    def materialize(self, entry: Entry, folder: Path) -> bool:
        """Write the entry's artifacts below `folder`, which is made where it is missing, each whole
        or not at all. False where one is missing or damaged: a miss, and nothing is written."""
        self._open()
        return materialize(self.objects, entry, Path(folder))

    def stats(self) -> Stats:
        """What is in the store, and by which ingredients of their keys entries differ."""
        from .statistics import stats

        self._open()
        self._hits.flush()
        return stats(self.database, self.objects)

    def verify(
        self, repair: bool = False, *, progress: Callable[[int], None] | None = None
    ) -> Verified:
        """Look at every row and read every artifact. With `repair`, damaged artifacts are moved to
        quarantine, and entries that lost something are removed, so that they are made anew."""
        from .audit import verify

        self._writable() if repair else self._open()
        return verify(self.database, self.objects, repair, self.clock, progress)

    def gc(
        self,
        older_than: float | None = None,
        max_bytes: int | None = None,
        *,
        keep: Collection[str] = (),
        current: Mapping[str, Any] | None = None,
        grace: float = GRACE,
        dry_run: bool = False,
    ) -> Collected:
        """Remove entries that were not used for `older_than` seconds, or whose ingredients differ
        from `current` in one that it names, and then the least recently used ones until at most
        `max_bytes` are left; never those in `keep`, nor one that is used meanwhile. Then what no
        entry needs: artifacts at once, files that no row names after `grace` seconds."""
        from .collection import Policy, collect

        self._open() if dry_run else self._writable()
        self._hits.flush()
        policy = Policy(older_than, max_bytes, frozenset(keep), current, grace, dry_run)
        return collect(self.database, self.objects, policy, self.clock)

    def export(self, path: Path, keys: Iterable[str] | None = None) -> Exported:
        """Write all entries, or those of `keys`, with their artifacts to one file, `path`."""
        from .archive import export

        self._open()
        return export(self.database, self.objects, Path(path), keys)

    def import_(self, path: Path, *, replace: bool = False) -> Imported:
        """Add the entries of an archive; keys that are here stay, unless `replace` is set. Raises
        StoreError (`store-archive`) where the file is malformed; what came before stays added."""
        from .archive import import_

        self._writable()
        return import_(self, Path(path), replace)

    def _whole(self, entry: Entry | None, key: str) -> Entry | None:
        """The entry, if all its artifacts are there."""
        if entry is None:
            return None
        missing = [path for path, blob in entry.blobs.items() if not self.objects.holds(blob)]
        if missing:
            LOG.warning("entry %s has lost %s", key, ", ".join(sorted(missing)))
        return None if missing else entry

    def _open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", code="store-closed")

    def _writable(self) -> None:
        self._open()
        if self.database.read_only:
            raise StoreError(f"{self.database.name} is opened read-only", code="store-read-only")
