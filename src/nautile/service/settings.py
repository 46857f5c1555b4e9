"""What the operator chooses, from the environment; each name is NAUTILE_ and the field's name.

Sizes are bytes, times are seconds. The command line's options take precedence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from nautile.errors import InputError

__all__ = ["PREFIX", "Settings"]

PREFIX = "NAUTILE_"


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's limits and places."""

    store: str = "nautile-store"  # a folder (SQLite), or the URL of a PostgreSQL database
    artifacts: str = ""  # the artifacts' folder, where the store is a URL
    host: str = "127.0.0.1"
    port: int = 8087
    workers: int = 1  # processes that execute, beside the one that answers

    executor: str = "pool"  # of a worker: a process beside it, or "ray"
    ray_address: str = ""  # of the cluster; without, one is started here

    body_bytes: int = 1 << 20
    text_bytes: int = 256 << 10  # of an expression text
    pack_bytes: int = 64 << 10  # of one rule pack
    packs: int = 8  # rule packs of one submission
    terms: int = 20_000  # distinct nodes of one program
    read_seconds: float = 10.0  # to parse and check one submission
    read_memory: int = 2 << 30
    readers: int = 2  # processes that parse

    header_seconds: float = 10.0  # a client has to send its headers, and between requests
    header_bytes: int = 32 << 10
    body_seconds: float = 20.0  # and its body
    send_seconds: float = 30.0  # and to take each piece of an answer
    connections: int = 2_000
    streams: int = 1_000  # of events, at once
    streams_of_token: int = 500
    stream_seconds: float = 3_600.0
    beat_seconds: float = 15.0  # between signs of life in a stream
    poll_seconds: float = 0.25  # between looks for news

    queue: int = 10_000  # runs that may wait
    attempts: int = 3
    lease_seconds: float = 30.0
    claim_seconds: float = 0.5  # between looks for work
    task_seconds: float = 600.0
    task_memory: int = 8 << 30
    explain_seconds: float = 1_200.0
    drain_seconds: float = 30.0
    free_bytes: int = 256 << 20  # less on the artifacts' disk, and the service is not ready
    keep_days: float = 30.0  # jobs that have ended are listed
    ticket_seconds: float = 3_600.0  # that a link to an explanation works

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < 1 << 53:
                raise _wrong(field.name, value)
            if field.name not in ("workers", "port", "free_bytes") and value == 0:
                raise _wrong(field.name, value)

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """The settings of an environment (this process's), with those `given` that are not None.
        Raises InputError, code "usage", for a value that does not fit."""
        known = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = known.get(PREFIX + field.name.upper())
            if text:
                values[field.name] = _read(field.name, str(field.type), text)
        return cls(**values | {name: v for name, v in given.items() if v is not None})

    def environment(self) -> dict[str, str]:
        """The same as environment variables, for child processes."""
        return {PREFIX + f.name.upper(): str(getattr(self, f.name)) for f in fields(self)}


def _read(name: str, kind: str, text: str) -> int | float | str:
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        raise _wrong(name, text) from None


def _wrong(name: str, value: object) -> InputError:
    return InputError(f"{PREFIX}{name.upper()}: {value!r} is no value for it", code="usage")
