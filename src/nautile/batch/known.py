"""What texts were found to hold, by their contents: a batch that comes again parses none of them.

A table on disk, from the digest of a text (and of the language, and of sizes) to its programs. It
is only a cache: where it cannot be read or written, files are parsed. It lies in `$NAUTILE_CACHE`
(`off` turns it off), else in the user's cache folder.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from nautile.task import Names

__all__ = ["Known", "Read", "default_path"]

_MOST = 500_000  # rows; more are dropped, oldest first
_BATCH = 256  # rows between commits


class Read(msgspec.Struct, frozen=True):
    """A program of a text: its key up to names (`lang.key`), and its names."""

    term: str
    names: Names


_ROWS = msgspec.msgpack.Decoder(tuple[Read, ...])


def default_path() -> Path | None:
    """Where the table lies, or None when caches are off."""
    chosen = os.environ.get("NAUTILE_CACHE", "")
    if chosen.lower() == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~")) / ".cache"
    return (Path(chosen).expanduser() if chosen else root / "nautile") / "read.sqlite3"


class Known:
    """The table. Use it as a context manager; any failure of the disk turns it off."""

    def __init__(self, path: Path | None) -> None:
        self._connection: sqlite3.Connection | None = None
        self._unsaved = 0
        if path is not None:
            with suppress(OSError, sqlite3.Error):
                self._connection = _opened(path)

    def __enter__(self) -> Known:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.commit()
            self._connection.close()
            self._connection = None

    def get(self, digest: bytes) -> tuple[Read, ...] | None:
        """The programs of the text of that digest, or None where they are not known."""
        if self._connection is None:
            return None
        try:
            query = "SELECT programs FROM texts WHERE digest = ?"
            row = self._connection.execute(query, (digest,)).fetchone()
            return _ROWS.decode(row[0]) if row else None
        except (sqlite3.Error, msgspec.MsgspecError):
            self._off()
            return None

    def put(self, digest: bytes, programs: tuple[Read, ...]) -> None:
        """Keep what a text holds."""
        if self._connection is None:
            return
        try:
            data = msgspec.msgpack.encode(programs)
            self._connection.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (digest, data))
            self._unsaved += 1
            if self._unsaved >= _BATCH:
                self._connection.commit()
                self._unsaved = 0
        except sqlite3.Error:
            self._off()

    def _off(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=5.0)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # a cache: what is lost is parsed again
        columns = "digest BLOB PRIMARY KEY, programs BLOB"
        connection.execute(f"CREATE TABLE IF NOT EXISTS texts ({columns})")
        most = "SELECT max(rowid) - ? FROM texts"
        connection.execute(f"DELETE FROM texts WHERE rowid <= ({most})", (_MOST,))
        connection.commit()
    except sqlite3.Error:
        connection.close()
        raise
    return connection
