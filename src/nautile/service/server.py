"""The HTTP server: uvicorn, with a limit on the time in which a client sends its headers, and a
drain that ends event streams."""

from __future__ import annotations

import asyncio
import json
import socket
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .context import Context
from .logs import event
from .problems import MEDIA_TYPE

__all__ = ["Server", "configured"]


class _Protocol(H11Protocol):
    """A connection whose next request begins, and has its headers whole, in time."""

    seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "abort": transport.abort}
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._arrived()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self._expect()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or headers that are too long, with a problem as everywhere."""
        content = {"type": "/problems/bad-request", "title": "Bad Request", "status": 400}
        data = json.dumps(content | {"code": "bad-request", "detail": msg}).encode()
        headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(data)))]
        response = h11.Response(status_code=400, headers=[*headers, ("connection", "close")])
        for part in (response, h11.Data(data=data), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def _expect(self) -> None:
        self._arrived()
        self._late = self.loop.call_later(self.seconds, self._give_up)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class Server(uvicorn.Server):
    """A server that tells its handlers when it is to end."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second one ends at once."""
        event("draining", signal=sig)
        self._context.draining.set()
        self._context.news.wake()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell where."""
        await super().startup(sockets)
        addresses = [
            "{}:{}".format(*s.getsockname()[:2]) for server in self.servers for s in server.sockets
        ]
        event("listening", addresses=addresses)


def configured(app: Any, context: Context) -> uvicorn.Config:
    """uvicorn's settings for this application."""
    settings = context.settings
    protocol = type("Protocol", (_Protocol,), {"seconds": settings.header_seconds})
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=2 * settings.connections,
        timeout_keep_alive=max(1, int(settings.header_seconds)),
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
        h11_max_incomplete_event_size=settings.header_bytes,
    )
