"""The database of a store: SQLite in WAL mode, or PostgreSQL; transactions that are run again.

SQLite: `synchronous=FULL`, because an accepted job or a finished result must outlive a loss of
power, and in WAL mode `NORMAL` may lose the last commits then; one sync a commit is what it costs.
Writers take the write lock at BEGIN (a transaction that reads first and writes later could not
wait for it: SQLITE_BUSY_SNAPSHOT). PostgreSQL: READ COMMITTED, and advisory locks where the order
of processes matters; every wait for a lock ends.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError

from nautile.errors import StoreError

from .faults import clear, database_faults, transient

__all__ = ["Database", "address"]

T = TypeVar("T")
READ = "nautile_read"  # execution option: this connection only reads
PAUSE = 0.01, 1.0  # seconds between attempts: the first and the longest
CONNECTIONS = 8
DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def address(place: str | Path) -> URL:
    """The URL of a place: itself, or that of the SQLite database in the folder `place`."""
    if "://" not in str(place):
        return URL.create("sqlite", database=str(Path(place) / "store.db"))
    try:
        url = make_url(str(place))
    except ArgumentError as error:
        raise StoreError(f"not the URL of a database: {error}", code="store-usage") from error
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and not url.database):
        raise StoreError(
            f"no store in {url.render_as_string()}: "
            "known are sqlite:///FILE and postgresql://USER@HOST/DATABASE",
            code="store-usage",
        )
    return url


class Database:
    """Connections to the database at `url`; safe to use from several threads. `wait` is how
    many seconds a transaction is tried while others hold what it needs or the server is away."""

    def __init__(self, url: URL, *, read_only: bool = False, wait: float = 30.0) -> None:
        self.url, self.read_only, self.wait = url, read_only, wait
        self.name = url.render_as_string(hide_password=True)
        self.sqlite = url.get_backend_name() == "sqlite"
        self.engine = _sqlite(url, read_only, wait) if self.sqlite else _postgresql(url, wait)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[Connection]:
        """A connection that only reads. With `snapshot`, all reads see one state."""
        with database_faults(self.name), self._reader(snapshot) as connection:
            yield connection

    def _reader(self, snapshot: bool = False) -> Connection:
        options: dict[str, Any] = {READ: True} if self.sqlite else {"postgresql_readonly": True}
        if snapshot and not self.sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        return self.engine.execution_options(**options).connect()

    def transact(
        self, work: Callable[[Connection], T], *, write: bool = True, wait: float | None = None
    ) -> T:
        """What `work` returns, in one transaction, which is run again from its start when another
        process or a lost connection came in between: `work` has no effect but on the database, or
        one that may happen twice. Raises StoreError, `store-busy` after `wait` seconds (the
        database's own without)."""
        if write and self.read_only:
            raise StoreError(f"{self.name} is opened read-only", code="store-read-only")
        deadline = time.monotonic() + (self.wait if wait is None else wait)
        pause, longest = PAUSE
        while True:
            try:
                return self._once(work, write)
            except (DBAPIError, TimeoutError, sqlite3.Error) as error:
                if not transient(error) or time.monotonic() + pause > deadline:
                    raise clear(error, self.name) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, longest)

    def _once(self, work: Callable[[Connection], T], write: bool) -> T:
        with self.engine.begin() if write else self._reader() as connection:
            return work(connection)

    def compact(self) -> None:
        """Move what SQLite's write-ahead log holds into the database file, and empty the log; left
        for another time where somebody reads, or no space is left."""
        if not self.sqlite or self.read_only:
            return
        engine = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        with suppress(DBAPIError), engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def hold(self, connection: Connection, name: str, *, shared: bool = False) -> None:
        """Hold the lock of that name until the transaction ends. SQLite has one writer anyway."""
        if not self.sqlite:
            kind = "_shared" if shared else ""
            lock = text(f"SELECT pg_advisory_xact_lock{kind}(hashtextextended(:name, 0))")
            connection.execute(lock, {"name": f"nautile store {name}"})


def _sqlite(url: URL, read_only: bool, wait: float) -> Engine:
    engine = create_engine(
        "sqlite://",
        creator=lambda: _opened(Path(url.database or ""), read_only, wait),
        poolclass=_pool(),
        pool_size=CONNECTIONS,
        max_overflow=4 * CONNECTIONS,
        pool_timeout=wait,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("isolation_level") != "AUTOCOMMIT":
            reads = read_only or options.get(READ)
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _pool() -> Any:
    from sqlalchemy.pool import QueuePool

    return QueuePool


def _opened(path: Path, read_only: bool, wait: float) -> sqlite3.Connection:
    """A connection with the settings of the store, which begins no transaction by itself."""
    uri = path.absolute().as_uri() + ("?mode=ro" if read_only else "?mode=rwc")
    if read_only and not _writable(path.parent) and not _beside(path, "-wal").exists():
        uri += "&immutable=1"  # cleanly closed, on a disk where SQLite cannot make its index
    connection = sqlite3.connect(
        uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False
    )
    try:
        _set(connection, read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def _set(connection: sqlite3.Connection, read_only: bool) -> None:
    pragmas = ["foreign_keys=ON", "trusted_schema=OFF", "cell_size_check=ON", "synchronous=FULL"]
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if not read_only and mode != "wal" and not _foreign(connection):
        pragmas.append("journal_mode=WAL")
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _foreign(connection: sqlite3.Connection) -> bool:
    """Whether another program's tables are there: its file is left as it is."""
    marked = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(tables) and not marked


def _writable(folder: Path) -> bool:
    import os

    return os.access(folder, os.W_OK)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _postgresql(url: URL, wait: float) -> Engine:
    try:
        engine = create_engine(
            url,
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            max_overflow=4 * CONNECTIONS,
            pool_timeout=wait,
            connect_args={"connect_timeout": max(2, int(wait)), "application_name": "nautile"},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise StoreError(
            f"PostgreSQL needs a driver: pip install 'nautile[postgresql]' ({error})",
            code="store-driver",
        ) from error

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = {max(1, int(wait * 1000))}")
        connection.autocommit = False

    return engine
