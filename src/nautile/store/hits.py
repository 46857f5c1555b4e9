"""How often each entry was used, counted in memory and written now and then.

A `get` must not cost a synced write. Counts steer `gc` and are shown by `stats`; the ones since the
last flush are lost with the process, which costs nothing but their accuracy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import BindParameter, Connection, bindparam, case, update

from nautile.errors import StoreError

from .database import Database
from .schema import entries

__all__ = ["Hits"]

MOST, LONGEST = 1000, 30.0  # counts, and seconds since the first of them, before they are written
LOG = logging.getLogger("nautile.store")

USED: BindParameter[float] = bindparam("at")
COUNT = (
    update(entries)
    .where(entries.c.key == bindparam("of"))
    .values(
        hits=entries.c.hits + bindparam("more"),
        used=case((entries.c.used < USED, USED), else_=entries.c.used),
    )
)


class Hits:
    """Counts by key that are not in the database yet."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, float]] = {}
        self._first = 0.0

    def count(self, key: str) -> None:
        """One more use of the key, now."""
        now = self._clock()
        with self._lock:
            if not self._counts:
                self._first = now
            self._counts[key] = self._counts.get(key, (0, 0.0))[0] + 1, now
            due = len(self._counts) >= MOST or now - self._first >= LONGEST
        if due:
            self.flush()

    def flush(self) -> None:
        """Write the counts. Where the database refuses, they are dropped, with a warning."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts or self._database.read_only:
            return
        values = [{"of": k, "more": n, "at": at} for k, (n, at) in sorted(counts.items())]

        def work(connection: Connection) -> None:
            connection.execute(COUNT, values)

        try:
            self._database.transact(work)
        except StoreError as error:
            LOG.warning("the uses of %d entries are not counted: %s", len(values), error)
