"""What every request passes, before anything looks at it and after it was answered.

In this order: an id; the names that a service without authentication is called by; whose token it
is, and whether that one asks too often; then the handler, whose body arrives within limits of bytes
and time. Every answer carries the id and the headers of security; every request is logged and
counted.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nautile.errors import NautileError, RequestError

from .context import Context
from .logs import event
from .metrics import REQUESTS, TIMES
from .problems import of_error, problem
from .tokens import Token

__all__ = ["API_POLICY", "Gate"]

API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": API_POLICY,
    "Cache-Control": "no-store",
}
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9_-]{1,200}) *")
_GUARDED = ("/v1/", "/metrics")
_DISCARDED = 16 << 20  # bytes of a refused body that are read, at most
_PATIENCE = 2.0  # seconds
_OWN_NAMES = {"localhost", "127.0.0.1", "[::1]", "::1"}


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context, self._open = app, context, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = id
        seen = _Seen(scope, id, send, self._context.settings.send_seconds)
        self._open += 1
        try:
            await self._passed(scope, headers, receive, seen)
        except TimeoutError:
            seen.abort()
        finally:
            self._open -= 1
            seen.log()

    async def _passed(self, scope: Scope, headers: Headers, receive: Receive, seen: _Seen) -> None:
        limited = _Limited(self._context, headers, receive)
        try:
            self._check_room()
            self._check_host(headers)
            await self._authenticate(scope, headers)
            limited.check_length()
        except NautileError as error:
            await limited.discard()
            await of_error(error, seen.id)(scope, receive, seen)
            return
        try:
            await self._app(scope, limited, seen)
        except TimeoutError:
            raise
        except Exception:
            event("a defect of the service", logging.ERROR, error=True, request_id=seen.id)
            if not seen.started:
                detail = "a defect of the service; its log tells more under this request's id"
                await problem(500, "internal", detail, request_id=seen.id)(scope, receive, seen)

    def _check_room(self) -> None:
        if self._open > self._context.settings.connections:
            message = "too many requests are being answered; come back in a moment"
            raise RequestError(message, code="busy", http_status=503, retry_after=2)

    def _check_host(self, headers: Headers) -> None:
        """Without authentication only names of this machine are answered, so that no web page can
        reach the service under a name of its own."""
        if self._context.everybody is None:
            return
        name = re.sub(r":\d+$", "", headers.get("host", "").strip().lower())
        if name not in _OWN_NAMES:
            message = "without authentication, the service answers as localhost alone"
            raise RequestError(message, code="wrong-host", http_status=421)

    async def _authenticate(self, scope: Scope, headers: Headers) -> None:
        if not scope["path"].startswith(_GUARDED):
            return
        token = self._context.everybody or await self._bearer(headers)
        scope["state"]["token"] = token
        wait = self._context.buckets.take(token.id, token.rate, token.burst)
        if wait:
            message = f"more than {token.rate:g} requests a second"
            raise RequestError(message, code="rate", http_status=429, retry_after=wait)

    async def _bearer(self, headers: Headers) -> Token:
        shape = _BEARER.fullmatch(headers.get("authorization", ""))
        token = await self._context.token(shape.group(1)) if shape else None
        if token is None:
            message = "send `Authorization: Bearer nau_...` with a token that is valid"
            raise RequestError(message, code="unauthorized", http_status=401)
        return token


class _Limited:
    """A body that has to arrive within limits of bytes and time."""

    def __init__(self, context: Context, headers: Headers, receive: Receive) -> None:
        self._most, self._receive = context.settings.body_bytes, receive
        self._seconds, self._headers = context.settings.body_seconds, headers
        self._bytes, self._until, self._whole, self._over = 0, 0.0, False, False

    def check_length(self) -> None:
        """Refuse what tells of itself that it is too long."""
        length = self._headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self._most):
            raise self._too_long()

    async def __call__(self) -> Message:
        """The next piece."""
        if self._whole:
            return await self._receive()
        self._until = self._until or time.monotonic() + self._seconds
        try:
            async with asyncio.timeout(self._until - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            text = f"the body did not arrive within {self._seconds:g} seconds"
            raise RequestError(text, code="slow-body", http_status=408) from None
        self._bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._bytes > self._most and not self._over:
            await self.discard()
            raise self._too_long()
        return message

    async def discard(self) -> None:
        """Read what still comes, within bounds: a connection that is closed with something unread
        is reset, and the client might never see the answer."""
        self._over = True
        if "expect" in self._headers:
            return  # the client waits for leave to send
        with suppress(TimeoutError, RequestError):
            async with asyncio.timeout(_PATIENCE):
                while not self._whole and self._bytes < _DISCARDED:
                    if (await self())["type"] == "http.disconnect":
                        return

    def _too_long(self) -> RequestError:
        message = f"the body is longer than {self._most} bytes"
        return RequestError(message, code="body-too-long", http_status=413)


class _Seen:
    """The answer on its way out: headers are added, its status and times are noted, and a client
    that does not take it is left."""

    def __init__(self, scope: Scope, id: str, send: Send, seconds: float) -> None:
        self.scope, self.id, self.started = scope, id, False
        self._send, self._seconds = send, seconds
        self._began, self._first, self._status = time.perf_counter(), 0.0, 0

    async def __call__(self, message: Message) -> None:
        """Send one message of the answer."""
        if message["type"] == "http.response.start":
            self.started, self._status = True, message["status"]
            self._first = time.perf_counter() - self._began
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.id
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
            if self._status in (408, 413):
                headers["Connection"] = "close"  # what is left of the body is not read
        async with asyncio.timeout(self._seconds):
            await self._send(message)

    def abort(self) -> None:
        """Close the connection at once."""
        abort: Callable[[], Any] | None = self.scope["state"].get("abort")
        if abort is not None:
            abort()

    def log(self) -> None:
        """Tell what was asked and answered."""
        route = getattr(self.scope.get("route"), "path", "none")
        REQUESTS.labels(_method(self.scope), route, str(self._status)).inc()
        if self.started:
            TIMES.labels(route).observe(self._first)
        token = self.scope["state"].get("token")
        parameters = self.scope.get("path_params", {})
        event(
            "request",
            logging.WARNING if self._status >= 500 else logging.INFO,
            request_id=self.id,
            method=_method(self.scope),
            route=route,
            job=parameters.get("id"),
            status=self._status,
            seconds=round(time.perf_counter() - self._began, 6),
            token=token.id if token else None,
            client=(self.scope.get("client") or ("",))[0],
        )


def _method(scope: Scope) -> str:
    known = ("GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS")
    return scope["method"] if scope["method"] in known else "OTHER"
