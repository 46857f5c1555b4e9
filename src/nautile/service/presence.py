"""Which workers live: each tells of itself now and then."""

from __future__ import annotations

import os
import socket

import sqlalchemy as sa

from .database import Database, now, written
from .tables import workers

__all__ = ["ALIVE", "came", "living", "name", "seen", "went"]

ALIVE = 60.0  # seconds since the last sign of life, after which a worker does not count
_FORGOTTEN = 86_400.0


def name() -> str:
    """What this process is called: its host, its number, and when it came."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}:{os.urandom(4).hex()}"


def came(database: Database, id: str) -> None:
    """Tell that this worker is there; those of long ago are forgotten."""

    def work(connection: sa.Connection) -> None:
        moment = now(connection)
        connection.execute(sa.delete(workers).where(workers.c.seen < moment - _FORGOTTEN))
        row = {"id": id, "host": id.partition(":")[0], "pid": os.getpid()}
        connection.execute(sa.insert(workers).values(**row, started=moment, seen=moment))

    written(database, work)


def seen(database: Database, id: str) -> None:
    """Tell that it lives."""
    query = sa.update(workers).where(workers.c.id == id)
    written(database, lambda c: c.execute(query.values(seen=now(c))))


def went(database: Database, id: str) -> None:
    """Tell that it is no longer there."""
    written(database, lambda c: c.execute(sa.delete(workers).where(workers.c.id == id)))


def living(database: Database) -> int:
    """How many workers live."""
    with database.reading() as connection:
        alive = workers.c.seen > now(connection) - ALIVE
        return connection.scalar(sa.select(sa.func.count()).where(alive)) or 0
