"""OUT/results.jsonl: one record an input program, each a whole line.

A record is the object of `optimize --json`, and says which input it belongs to:

```
"index"     its number in the order of the inputs
"input"     {"path", "program", "digest" of the text, "settings" digest}
"cached"    whether it was in the store, or came from a program of the same key in this run
"same_as"   the program that it was made for, where that is another one: {"path", "program"}
"bundle"    the folder of its bundle below OUT, or null
"worker_seconds"  what it took a worker
```

Lines are appended by one write each. A process that dies leaves whole lines and at most one torn
one, which the next run drops. An input is its path and its program; where its text or the settings
have changed, its record is made again, and the old one goes when the batch is complete. So it is
with a program that failed for a reason outside of it: a lost worker or e-graph process, or a limit
of time or memory.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

from nautile.errors import InputError

__all__ = ["NAME", "Before", "Results", "records", "status_of"]

NAME = "results.jsonl"
PASSING = frozenset({"worker-died", "saturation", "time-limit", "memory-limit", "cancelled"})
"""Codes of errors that may not come again: such programs are tried again by a run that resumes."""

_LOCK = ".batch.lock"
_SYNC = 1.0  # seconds between syncs to the disk
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Before:
    """What is remembered of a record of an earlier run: what it was made from, its number, and what
    the summary counts."""

    state: bytes
    index: int
    status: str
    code: str
    key: bytes
    cached: bool
    bundle: str | None


class Results:
    """The file of results, open to append, held by one batch at a time. `before` are the records
    of an earlier run that are resumed, by input."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        """Raises InputError where the folder cannot be written, or another batch holds it."""
        self.path = folder / NAME
        self.before: dict[bytes, Before] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / _LOCK)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self.path, flags | (0 if resume else os.O_TRUNC), 0o644)
        except OSError as error:
            raise _unwritable(folder, error) from error
        self._synced = time.monotonic()
        self._renewed: set[bytes] = set()
        self._kept: set[bytes] = set()
        self._moved: dict[bytes, int] = {}
        self._repeated = 0
        if resume:
            self._resume()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)
        os.close(self._lock)

    def done(
        self, path: str, program: str, state: str, index: int, whole: Callable[[Before], bool]
    ) -> Before | None:
        """The record that there is of this input in this state and that is `whole`, which then
        stays; else None."""
        mark = _mark(path, program)
        found = self.before.get(mark)
        if found is None or found.state != _state(state) or found.code in PASSING:
            return None
        if not whole(found):
            return None
        self._kept.add(mark)
        if found.index != index:
            self._moved[mark] = index
        return found

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record. InputError where the disk refuses; the file then ends as it did."""
        given = record["input"]
        line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        end = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
            if time.monotonic() - self._synced > _SYNC:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, end)
            raise _unwritable(self.path.parent, error) from error
        self._renewed.add(_mark(given["path"], given["program"] or ""))

    def settle(self) -> None:
        """After a complete run: leave one record an input, none of inputs that are no more, and
        number those that stayed by their place now."""
        stale = self.before.keys() - self._kept
        if not stale and not self._moved and not self._repeated:
            return
        aside = self.path.with_name(f".{NAME}.{os.getpid()}")
        try:
            with aside.open("wb") as file:
                for line in self._current():
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise _unwritable(self.path.parent, error) from error

    def _current(self) -> Iterator[bytes]:
        """The lines that stay: of each input of this run the last one."""
        last = {mark: number for number, (mark, _, _) in enumerate(_lines(self.path))}
        for number, (mark, record, line) in enumerate(_lines(self.path)):
            if last[mark] != number or mark not in self._kept | self._renewed:
                continue
            if mark in self._moved and mark not in self._renewed:
                record["index"] = self._moved[mark]
                line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
            yield line

    def _resume(self) -> None:
        """Read what an earlier run has written, and cut off a line that it did not finish."""
        whole = 0
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    whole += len(line)
        os.ftruncate(self._file, whole)
        for mark, record, _ in _lines(self.path):
            given = record["input"]
            self.before[mark] = Before(
                state=_state(given["digest"] + given["settings"]),
                index=record["index"],
                status=status_of(record),
                code=str((record.get("error") or {}).get("code", "")),
                key=str(record.get("key") or "").encode(),
                cached=bool(record.get("cached")),
                bundle=record.get("bundle"),
            )
        with self.path.open("rb") as file:
            self._repeated = sum(1 for _ in file) - len(self.before)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of results, one after the other."""
    return (record for _, record, _ in _lines(path))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any], bytes]]:
    """Whole lines that are records, each with the mark of its input."""
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
                given = record["input"]
                mark = _mark(given["path"], given["program"] or "")
                known = given["digest"] + given["settings"], record["index"] + 0
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if line.endswith(b"\n") and known:
                yield mark, record, line


def status_of(record: Mapping[str, Any]) -> str:
    """ok, failed, or uncertified (found, but its certificate failed)."""
    if record.get("status") != "ok":
        return "failed"
    return "ok" if (record.get("certificate") or {}).get("verdict") == "pass" else "uncertified"


def _mark(path: str, program: str) -> bytes:
    return blake2b(f"{path}\0{program}".encode(errors="replace"), digest_size=16).digest()


def _state(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _locked(path: Path) -> int:
    """A lock that ends with this process. InputError where another one has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        message = f"{path.parent}: another batch writes here now"
        raise InputError(message, code="batch-busy") from None
    return handle


def _unwritable(folder: Path, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(f"{folder} cannot be written: {reason}", code="unwritable-output")
