"""What the handlers of requests share: the open store, the settings, and what runs beside them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nautile.store import Store

from . import tokens
from .database import Database
from .rates import Buckets
from .reading import Readers
from .settings import Settings
from .tokens import Token

if TYPE_CHECKING:
    from .streams import News

__all__ = ["Context"]

_REMEMBERED = 5.0  # seconds in which a revoked token may still work
_MOST = 10_000


@dataclass(slots=True)
class Context:
    """One service process. `everybody` is the token of all requests where there is no
    authentication. `draining` is set when the process is to end."""

    settings: Settings
    store: Store
    readers: Readers
    news: News
    ticket_key: bytes
    everybody: Token | None
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    buckets: Buckets = field(default_factory=Buckets)
    streams: dict[str, int] = field(default_factory=dict)
    _tokens: dict[bytes, tuple[float, Token | None]] = field(default_factory=dict)

    @property
    def database(self) -> Database:
        """Where jobs, runs and tokens are."""
        return self.store.database

    async def token(self, text: str) -> Token | None:
        """The token of that text; what the database said is remembered for a few seconds."""
        digest = hashlib.sha256(text.encode(errors="replace")).digest()
        moment = time.monotonic()
        found = self._tokens.get(digest)
        if found is None or found[0] < moment:
            token = await asyncio.to_thread(tokens.known, self.database, text)
            if len(self._tokens) >= _MOST:
                self._tokens.clear()
            self._tokens[digest] = found = (moment + _REMEMBERED, token)
        return found[1]
