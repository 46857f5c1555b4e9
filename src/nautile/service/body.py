"""Bodies of requests, read strictly: what one reader takes for valid, every other one must, too.

Refused by name: other types than JSON, texts that are not UTF-8, nesting beyond MAX_DEPTH, names
given twice in an object, NaN and infinities, integers of absurd length, lone surrogates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute

from nautile.errors import RequestError

__all__ = ["MAX_DEPTH", "StrictRoute", "parsed"]

MAX_DEPTH = 20
_MAX_DIGITS = 400
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def parsed(data: bytes) -> Any:
    """The value of a JSON text. Raises RequestError (400 `bad-json`)."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(f"the body is not UTF-8 (byte {error.start})") from None
    _check_depth(data)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise _bad(f"the body is not JSON: {error}") from None
    except (RecursionError, ValueError) as error:
        raise _bad(f"the body is not JSON: {error}") from None
    _check_texts(value)
    return value


def _check_depth(data: bytes) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        first = match.group()[:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MAX_DEPTH:
            raise _bad(f"the body is nested deeper than {MAX_DEPTH}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise _bad(f"the name {twice[:80]!r} stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise _bad(f"{name} is no JSON value")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _bad(f"an integer of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_DIGITS else math.inf
    if math.isinf(value):
        raise _bad(f"{text[:40]} is beyond the range of numbers")
    return value


def _check_texts(value: Any) -> None:
    """No text that cannot be written as UTF-8."""
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise _bad("a text holds half a surrogate pair")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check_texts(name)
            _check_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner)


def _bad(message: str) -> RequestError:
    return RequestError(message, code="bad-json", http_status=400)


class _StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parsed(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route that reads its JSON body strictly, before anything else is done with it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind the strict reading."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                message = f"send application/json, not {kind[:80] or 'a body without a type'}"
                raise RequestError(message, code="unsupported-media-type", http_status=415)
            checked = _StrictRequest(request.scope, request.receive)
            await checked.json()
            return await handle(checked)

        return strict
