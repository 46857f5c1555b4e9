"""Garbage collection: entries that the policy gives up, then everything that no entry needs.

The bytes that go with an entry are its row's and those of artifacts that no later used entry has.
So the entries to remove for a limit are a prefix of all entries, least recently used first, whose
bytes add up to the excess: one query with two window functions, and nothing is held in memory.

A dry run does the same in one transaction and undoes it; it holds the database meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, func, select, tuple_

from nautile.errors import StoreError

from . import statistics
from .database import Database
from .entry import DIGEST
from .objects import Found, Objects
from .reports import Collected
from .schema import artifacts, entries, links

__all__ = ["Policy", "collect"]

T = TypeVar("T")
BATCH = 500
Victim = tuple[str, float]  # a key, and when it was used last


@dataclass(frozen=True, slots=True)
class Policy:
    """What to give up; see `Store.gc`. Seconds and bytes."""

    older_than: float | None
    max_bytes: int | None
    keep: frozenset[str]
    current: Mapping[str, Any] | None
    grace: float
    dry_run: bool

    def __post_init__(self) -> None:
        for name in ("older_than", "max_bytes", "grace"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise StoreError(f"{name} is {value}; it is 0 or more", code="store-usage")


@dataclass(slots=True)
class _Counts:
    entries: int = 0
    artifacts: int = 0
    orphans: int = 0
    leftovers: int = 0
    quarantined: int = 0
    bytes: int = 0


class _Undo(Exception):
    """The end of a dry run: carries its result out of the transaction."""

    def __init__(self, result: Collected) -> None:
        self.result = result


def collect(
    database: Database, objects: Objects, policy: Policy, clock: Callable[[], float]
) -> Collected:
    """Remove what the policy gives up, in small transactions, and tell what it was."""
    if not policy.dry_run:
        objects.release()
        try:
            return _Collection(database, objects, policy, clock(), database.transact).run()
        finally:
            objects.reserve()

    def work(connection: Connection) -> None:
        inside = _Collection(database, objects, policy, clock(), lambda w: w(connection))
        raise _Undo(inside.run())

    try:
        database.transact(work)
    except _Undo as end:
        return end.result
    raise AssertionError("a dry run ends in its undoing")


@dataclass(slots=True)
class _Collection:
    """One run. `transact` runs a function in a transaction: in one of its own, or, in a dry run,
    in the one that is undone."""

    database: Database
    objects: Objects
    policy: Policy
    now: float
    transact: Callable[[Callable[[Connection], Any]], Any]
    counts: _Counts = field(default_factory=_Counts)

    def run(self) -> Collected:
        """Files without rows first: where the disk is full, they make the room that the database
        needs for the rest. Then entries, then artifacts without entries."""
        self._files()
        for folder in self.objects.folders():
            self._orphans(folder)
        if not self.policy.dry_run:
            self.database.compact()
        self._expired()
        self._stale()
        self._excess()
        self._artifacts()
        left = self.transact(statistics.totals)
        c = self.counts
        return Collected(
            entries=c.entries,
            artifacts=c.artifacts,
            orphans=c.orphans,
            leftovers=c.leftovers,
            quarantined=c.quarantined,
            bytes=c.bytes,
            remaining_entries=left["entries"],
            remaining_bytes=left["record_bytes"] + left["artifact_bytes"],
            dry_run=self.policy.dry_run,
        )

    def _expired(self) -> None:
        if self.policy.older_than is not None:
            before = entries.c.used < self.now - self.policy.older_than
            self._remove(self.transact(lambda c: _victims(c, _oldest().where(before))))

    def _stale(self) -> None:
        """Entries of which a named ingredient is not the current one, or not known."""
        current = self.policy.current
        if current is None:
            return

        def work(connection: Connection) -> list[Victim]:
            every = select(entries.c.key, entries.c.used, entries.c.ingredients)
            rows = connection.execute(every.execution_options(yield_per=BATCH))
            return [(key, used) for key, used, text in rows if _differs(text, current)]

        self._remove(self.transact(work))

    def _excess(self) -> None:
        """The least recently used, until the rest fits; again, where some were used meanwhile."""
        if self.policy.max_bytes is None:
            return
        while victims := self.transact(self._beyond):
            if not self._remove(victims):
                return

    def _beyond(self, connection: Connection) -> list[Victim]:
        total = statistics.totals(connection)
        used = connection.execute(_linked()).scalar() or 0
        excess = total["record_bytes"] + int(used) - (self.policy.max_bytes or 0)
        victims: list[Victim] = []
        if excess <= 0:
            return victims
        for key, at, own in connection.execute(_weights().execution_options(yield_per=BATCH)):
            if excess <= 0:
                break
            if key not in self.policy.keep:
                victims.append((key, at))
                excess -= int(own)
        return victims

    def _remove(self, victims: Sequence[Victim]) -> int:
        """Remove entries that were not used since they were chosen; how many."""
        chosen = iter(v for v in victims if v[0] not in self.policy.keep)
        before = self.counts.entries
        while batch := list(islice(chosen, BATCH)):
            count, size = self.transact(partial(_removed, batch=batch))
            self.counts.entries += count
            self.counts.bytes += size
        return self.counts.entries - before

    def _artifacts(self) -> None:
        last = ""
        while last is not None:
            last = self.transact(partial(self._unlinked, after=last))

    def _unlinked(self, connection: Connection, after: str) -> str | None:
        """Remove a batch of artifacts that no entry has; the last one's digest."""
        self.database.hold(connection, "objects")
        rows = connection.execute(_unused(after)).all()
        for digest, size in rows:
            if not self.policy.dry_run:
                self.objects.remove(digest)
            self.counts.artifacts += 1
            self.counts.bytes += size
        digests = [digest for digest, _ in rows]
        connection.execute(delete(artifacts).where(artifacts.c.digest.in_(digests)))
        return digests[-1] if digests else None

    def _orphans(self, folder: str) -> None:
        files = (f for f in self.objects.found(folder) if DIGEST.fullmatch(f.name))
        old = self._past_grace(files)
        while batch := list(islice(old, BATCH)):
            self.transact(partial(self._unnamed, files=batch))

    def _unnamed(self, connection: Connection, files: Sequence[Found]) -> None:
        """Remove those files that no row names."""
        self.database.hold(connection, "objects")
        names = [f.name for f in files]
        named = set(
            connection.execute(
                select(artifacts.c.digest).where(artifacts.c.digest.in_(names))
            ).scalars()
        )
        for file in files:
            if file.name not in named:
                self.counts.orphans += 1
                self.counts.bytes += file.bytes
                if not self.policy.dry_run:
                    self.objects.remove(file.name)

    def _files(self) -> None:
        """Half-written files, and with an age, files in quarantine."""
        for file in self._past_grace(self.objects.leftovers()):
            self.counts.leftovers += 1
            self._discard(file, "tmp")
        age = self.policy.older_than
        for file in self.objects.damaged():
            if age is not None and file.changed < self.now - age:
                self.counts.quarantined += 1
                self._discard(file, "quarantine")

    def _discard(self, file: Found, where: str) -> None:
        self.counts.bytes += file.bytes
        if not self.policy.dry_run:
            self.objects.discard(where, file.name)

    def _past_grace(self, files: Iterator[Found]) -> Iterator[Found]:
        return (f for f in files if f.changed < self.now - self.policy.grace)


def _victims(connection: Connection, query: Select[Any]) -> list[Victim]:
    return [(key, used) for key, used in connection.execute(query)]


def _oldest() -> Select[Any]:
    return select(entries.c.key, entries.c.used).order_by(entries.c.used, entries.c.key)


def _differs(text: str, current: Mapping[str, Any]) -> bool:
    made_of = json.loads(text)
    return any(name not in made_of or made_of[name] != value for name, value in current.items())


def _linked() -> Select[Any]:
    """The bytes of all artifacts that entries have."""
    used = select(links.c.digest).distinct().subquery()
    return select(func.sum(artifacts.c.bytes)).join(used, used.c.digest == artifacts.c.digest)


def _weights() -> Select[Any]:
    """Key, last use and bytes that go with it, of all entries, least recently used first."""
    later = (entries.c.used.desc(), entries.c.key.desc())
    place = func.row_number().over(partition_by=links.c.digest, order_by=later).label("place")
    owned = (
        select(links.c.key, artifacts.c.bytes, place)
        .join_from(links, entries)
        .join(artifacts, artifacts.c.digest == links.c.digest)
        .subquery()
    )
    own = (
        select(owned.c.key, func.sum(owned.c.bytes).label("bytes"))
        .where(owned.c.place == 1)
        .group_by(owned.c.key)
        .subquery()
    )
    weight = entries.c.size + func.coalesce(own.c.bytes, 0)
    return (
        select(entries.c.key, entries.c.used, weight)
        .outerjoin_from(entries, own, own.c.key == entries.c.key)
        .order_by(entries.c.used, entries.c.key)
    )


def _removed(connection: Connection, batch: Sequence[Victim]) -> tuple[int, int]:
    """Remove those of the batch whose last use is still the one seen; how many, and their bytes."""
    same = tuple_(entries.c.key, entries.c.used).in_(batch)
    found = connection.execute(select(entries.c.key, entries.c.size).where(same)).all()
    gone = [key for key, _ in found]
    connection.execute(delete(entries).where(entries.c.key.in_(gone)))
    return len(gone), sum(size for _, size in found)


def _unused(after: str) -> Select[Any]:
    linked = select(links.c.key).where(links.c.digest == artifacts.c.digest).exists()
    return (
        select(artifacts.c.digest, artifacts.c.bytes)
        .where(artifacts.c.digest > after, ~linked)
        .order_by(artifacts.c.digest)
        .limit(BATCH)
    )
