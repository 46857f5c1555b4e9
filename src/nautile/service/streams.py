"""Server-sent events: what happens to a job, told until its end (WHATWG HTML, 9.2).

```
id: 3
event: started
data: {"attempt": 1, "time": "2026-12-01T10:00:00.000+00:00"}
```

Events are numbered within a job; a client that comes back with `Last-Event-ID` gets what it has
missed. One task looks for news of all jobs that are listened to, so that a stream costs no query
while nothing happens to its job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress

from starlette.concurrency import run_in_threadpool

from nautile.errors import NautileError, RequestError

from . import jobs
from .context import Context
from .database import Database
from .jobs import Told
from .logs import event
from .metrics import STREAMS
from .models import moment

__all__ = ["News", "check_place", "events_of", "place"]

_MANY = 500  # jobs of one query


class News:
    """Wakes those who listen to a job when something happened to it."""

    def __init__(self, database: Database, seconds: float) -> None:
        self._database, self._seconds = database, seconds
        self._listening: dict[str, set[asyncio.Event]] = {}
        self._seen: dict[str, tuple[bool, int]] = {}

    @contextmanager
    def of(self, id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each news of the job."""
        news = asyncio.Event()
        self._listening.setdefault(id, set()).add(news)
        try:
            yield news
        finally:
            self._listening[id].discard(news)
            if not self._listening[id]:
                del self._listening[id]
                self._seen.pop(id, None)

    def wake(self) -> None:
        """Wake everybody."""
        for listeners in self._listening.values():
            for one in listeners:
                one.set()

    async def run(self) -> None:
        """Look for news until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._look()
            except NautileError as error:
                event("no news", logging.WARNING, reason=error.message)

    async def _look(self) -> None:
        ids = list(self._listening)
        for start in range(0, len(ids), _MANY):
            part = ids[start : start + _MANY]
            found = await run_in_threadpool(jobs.versions, self._database, part)
            for id, version in found.items():
                if self._seen.get(id) != version:
                    self._seen[id] = version
                    for one in self._listening.get(id, ()):
                        one.set()


def check_place(context: Context, token: str) -> None:
    """Raises RequestError where the token has, or all have, too many streams."""
    settings, taken = context.settings, context.streams
    if taken.get(token, 0) >= settings.streams_of_token:
        message = f"this token listens to {settings.streams_of_token} streams, its limit"
        raise RequestError(message, code="too-many-streams", http_status=429, retry_after=10)
    if sum(taken.values()) >= settings.streams:
        message = f"{settings.streams} streams are open, the limit"
        raise RequestError(message, code="busy", http_status=503, retry_after=10)


@contextmanager
def place(context: Context, token: str) -> Iterator[None]:
    """One stream of the token's, counted while it is open."""
    taken = context.streams
    taken[token] = taken.get(token, 0) + 1
    STREAMS.inc()
    try:
        yield
    finally:
        STREAMS.dec()
        taken[token] -= 1
        if not taken[token]:
            del taken[token]


async def events_of(context: Context, id: str, after: int) -> AsyncGenerator[bytes, None]:
    """The stream of a job's events above the number `after`; it ends with the job, after
    `stream_seconds`, or when the service stops: the client then comes back for the rest."""
    settings = context.settings
    until = time.monotonic() + settings.stream_seconds
    yield b"retry: 1000\n\n"
    with context.news.of(id) as news:
        while True:
            news.clear()
            found = await run_in_threadpool(jobs.follow, context.database, id, after)
            if found is None:
                return
            job, told = found
            for one in told:
                yield _written(one)
                after = one.number
            if job.final or context.draining.is_set() or time.monotonic() > until:
                return
            if not await _waited(news, settings.beat_seconds):
                yield b": still here\n\n"


async def _waited(news: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()
            return True
    return False


def _written(told: Told) -> bytes:
    data = json.dumps({**told.data, "time": moment(told.created)})
    return f"id: {told.number}\nevent: {told.kind}\ndata: {data}\n\n".encode()
