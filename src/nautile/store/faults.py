"""What the operating system or a database says, as a StoreError with a stable code.

SQLite's numbers are those of https://www.sqlite.org/rescode.html (the low byte is the primary
code); PostgreSQL's are the SQLSTATE classes of its manual, appendix A.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from nautile.errors import StoreError

__all__ = ["clear", "database_faults", "of_system", "transient", "translated"]

SYSTEM = {
    errno.ENOSPC: ("store-full", "no space is left"),
    errno.EDQUOT: ("store-full", "the quota is used up"),
    errno.EFBIG: ("store-full", "the limit on a file's size is reached"),
    errno.EROFS: ("store-read-only", "the file system is read-only"),
    errno.EACCES: ("store-permission", "no permission"),
    errno.EPERM: ("store-permission", "no permission"),
    errno.ENOENT: ("store-missing", "there is no such file or folder"),
    errno.ENOTDIR: ("store-foreign", "a file stands where a folder is expected"),
}
SQLITE = {
    sqlite3.SQLITE_FULL: ("store-full", "no space is left for the database"),
    sqlite3.SQLITE_READONLY: ("store-read-only", "the database is read-only"),
    sqlite3.SQLITE_PERM: ("store-permission", "no permission for the database"),
    sqlite3.SQLITE_CANTOPEN: ("store-permission", "the database cannot be opened or created"),
    sqlite3.SQLITE_BUSY: ("store-busy", "another process holds the database"),
    sqlite3.SQLITE_LOCKED: ("store-busy", "another connection holds the database"),
    sqlite3.SQLITE_CORRUPT: ("store-corrupt", "the database is damaged; restore a backup"),
    sqlite3.SQLITE_NOTADB: ("store-foreign", "the file is not a SQLite database"),
    sqlite3.SQLITE_IOERR: ("store-io", "the database file cannot be read or written"),
}
SQLSTATE = {
    "08": ("store-unreachable", "the connection to the database was lost"),
    "28": ("store-permission", "the database refuses this user"),
    "3D": ("store-missing", "there is no such database"),
    "53": ("store-full", "the database has no resources left"),
    "55": ("store-busy", "another process holds what is needed"),
    "57": ("store-unreachable", "the database is shutting down or starting"),
    "XX": ("store-corrupt", "the database reports damage"),
}
SQLSTATES = {
    "25006": ("store-read-only", "the database is read-only"),
    "40001": ("store-busy", "transactions of other processes came in between"),
    "40P01": ("store-busy", "transactions of other processes came in between"),
    "42501": ("store-permission", "the database refuses this user"),
}
RETRIED = {"store-busy", "store-unreachable"}


@contextmanager
def database_faults(where: object) -> Iterator[None]:
    """Errors of the database inside are raised as StoreError; others pass as they are."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        raise clear(error, where) from error


@contextmanager
def translated(where: object) -> Iterator[None]:
    """Errors of the operating system and the database inside are raised as StoreError."""
    try:
        with database_faults(where):
            yield
    except OSError as error:
        raise of_system(error, where) from error


def of_system(error: OSError, where: object) -> StoreError:
    """What the operating system refused, and where."""
    code, text = SYSTEM.get(error.errno or 0, ("store-io", error.strerror or str(error)))
    return StoreError(f"{error.filename or where}: {text}", code=code)


def clear(error: Exception, where: object) -> StoreError:
    """What the database refused, without SQL and without passwords."""
    origin = getattr(error, "orig", None) or error
    if isinstance(origin, OSError):
        return of_system(origin, where)
    code, text = _kind(error, origin)
    return StoreError(f"{where}: {text} ({_first(origin)})", code=code)


def transient(error: Exception) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    origin = getattr(error, "orig", None) or error
    return _kind(error, origin)[0] in RETRIED


def _kind(error: Exception, origin: BaseException) -> tuple[str, str]:
    number = getattr(origin, "sqlite_errorcode", None)
    if number is not None:
        return SQLITE.get(number & 0xFF, ("store", "the database refused"))
    state = getattr(origin, "sqlstate", None)
    if state:
        other = ("store", "the database refused")
        return SQLSTATES.get(state) or SQLSTATE.get(state[:2], other)
    lost = getattr(error, "connection_invalidated", False)
    if lost or isinstance(error, exc.OperationalError | exc.TimeoutError):
        return "store-unreachable", "no connection to the database"
    return "store", "the database refused"


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
