"""Results in the store, and a job's own view of them.

Jobs of one key share an entry, made under the names of the program that was optimized first. What a
job is shown carries its own names: the record is rewritten, and so are the files of the bundle that
hold names (its manifest, certificate and reference).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nautile.errors import RequestError
from nautile.store import Entry, Store
from nautile.task import Names, Outcome, Task, renamed, renamed_files

from .jobs import Job

__all__ = ["Bundle", "bundle_of", "finite", "record_of", "saved", "task_of"]

_TASK = msgspec.msgpack.Decoder(Task)


def task_of(data: bytes) -> Task:
    """The task of a job's or run's bytes."""
    return _TASK.decode(data)


def saved(store: Store, outcome: Outcome, run: int) -> Entry:
    """Keep a certified outcome under its key; the first one of a key stays. What may be better the
    next time (the clock has stopped its saturation) answers its own run's jobs alone."""
    names = msgspec.to_builtins(outcome.names)
    ingredients = {**outcome.ingredients, "names": names}
    key = outcome.key if outcome.lasting else _own_key(outcome.key, run)
    return store.put(key, outcome.record, outcome.artifacts, ingredients=ingredients)


def _own_key(key: str, run: int) -> str:
    return f"{key}:run:{run}"


def record_of(store: Store, job: Job) -> dict[str, Any]:
    """What `optimize --json` would print for the job's program.

    Raises RequestError: 409 `not-finished`, `cancelled`, `dead`; 410 `result-gone` where the store
    holds it no longer.
    """
    if job.record is not None:
        record: dict[str, Any] = finite(job.record)
        return record | {"program": job.program}
    entry = _entry(store, job)
    task = task_of(job.task)
    shown = renamed(entry.record, _names(entry), task.names, task.filename)
    found: dict[str, Any] = finite(shown)
    return found


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a job's bundle: digests of those that it shares, contents of its own."""

    store: Store
    shared: Mapping[str, str]
    sizes: Mapping[str, int]
    own: Mapping[str, bytes]

    def listed(self) -> list[tuple[str, int]]:
        """Paths and lengths in bytes, in order."""
        files = {p: self.sizes[p] for p in self.shared} | {p: len(d) for p, d in self.own.items()}
        return sorted(files.items())

    def read(self, path: str) -> bytes | None:
        """One file, or None where there is none of that path. Raises RequestError (410)."""
        if path in self.own:
            return self.own[path]
        if path not in self.shared:
            return None
        data = self.store.read(self.shared[path])
        if data is None:
            raise _gone()
        return data


def bundle_of(store: Store, job: Job) -> Bundle:
    """The job's bundle. Raises as `record_of`, and 409 `no-result` for a failed job."""
    if job.state == "failed":
        raise RequestError("the optimization failed", code="no-result", http_status=409)
    entry = _entry(store, job)

    def read(path: str) -> bytes:
        data = store.read(entry.artifacts[path])
        if data is None:
            raise _gone()
        return data

    names = task_of(job.task).names
    own, gone = renamed_files(read, entry.record, _names(entry), names)
    shared = {p: d for p, d in entry.artifacts.items() if p not in gone and p not in own}
    return Bundle(store, shared, entry.sizes, own)


def _entry(store: Store, job: Job) -> Entry:
    if job.state in ("cancelled", "dead"):
        message = f"the job is {job.state}: it has no result"
        raise RequestError(message, code=job.state, http_status=409)
    if not job.final:
        message = f"the job is {job.state}; come back later, or listen to its events"
        raise RequestError(message, code="not-finished", http_status=409, retry_after=1)
    entry = store.get(job.key)
    if entry is None and job.run is not None:
        entry = store.get(_own_key(job.key, job.run))
    if entry is None:
        raise _gone()
    return entry


def _gone() -> RequestError:
    message = "the store holds this result no longer; submit the program again"
    return RequestError(message, code="result-gone", http_status=410)


def _names(entry: Entry) -> Names:
    return msgspec.convert(entry.ingredients["names"], Names)


def finite(value: Any) -> Any:
    """The value with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
