"""Refusals and failures over HTTP: RFC 9457 problem details with the codes of nautile.errors.

```
{"type": "/problems/unknown-name", "title", "status", "code", "detail", "request_id",
 "line"?, "column"?, "text"?, "errors"?: [{"place", "message"}]}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from nautile.errors import InputError, LimitError, NautileError, RequestError

__all__ = ["MEDIA_TYPE", "Problem", "answered", "of_error", "of_http", "of_validation", "problem"]

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 20
_CODES = {404: "not-found", 405: "method-not-allowed"}


class Place(BaseModel):
    """One thing that is wrong with a request."""

    model_config = ConfigDict(extra="forbid")

    place: str = Field(description="Where: `body/dims/N`, `query/limit`, ...")
    message: str


class Problem(BaseModel):
    """RFC 9457 problem details. `code` is stable; scripts may depend on it."""

    type: str = Field(examples=["/problems/unknown-name"])
    title: str
    status: int
    code: str = Field(examples=["unknown-name"])
    detail: str
    request_id: str | None = None
    line: int | None = Field(None, description="Of the expression text, counted from 1.")
    column: int | None = None
    text: str | None = Field(None, description="The line of the expression text.")
    errors: list[Place] | None = None


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    """The answer that tells this problem."""
    content = {
        "type": f"/problems/{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }
    kept = {k: v for k, v in (content | more).items() if v is not None}
    return JSONResponse(kept, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def of_error(error: NautileError, request_id: str | None = None) -> JSONResponse:
    """The answer to an error of Nautile's: the client's fault, a limit, or the service's state."""
    more = {k: v for k, v in error.as_dict().items() if k in ("line", "column", "text") and v}
    headers = {}
    if isinstance(error, RequestError):
        status = error.http_status
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        if status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="nautile"'
    elif isinstance(error, LimitError):
        status = 413
    elif isinstance(error, InputError):
        status = 422
    else:
        status, headers = 503, {"Retry-After": "10"}
    return problem(
        status, error.code, error.message, request_id=request_id, headers=headers, **more
    )


async def answered(request: Request, error: Exception) -> JSONResponse:
    """The handler of Nautile's errors."""
    assert isinstance(error, NautileError)
    return of_error(error, _id(request))


async def of_http(request: Request, error: Exception) -> JSONResponse:
    """The handler of the framework's own refusals: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "request")
    detail = {404: "there is nothing at this path"}.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
        detail = f"this path takes {headers['Allow']}"
    return problem(error.status_code, code, detail, request_id=_id(request), headers=headers)


def _methods(request: Request) -> list[str]:
    """What the path of a request takes, over all routes that have it."""
    found: set[str] = set()
    for route in request.app.state.every_route:
        if route.matches(request.scope)[0] != Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


async def of_validation(request: Request, error: Exception) -> JSONResponse:
    """The handler of requests that do not fit the API's description."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"place": "/".join(str(p) for p in e["loc"])[:200], "message": str(e["msg"])[:300]}
        for e in error.errors()[:_MOST_ERRORS]
    ]
    detail = "; ".join(f"{e['place']}: {e['message']}" for e in errors[:3])
    return problem(422, "validation", detail, request_id=_id(request), errors=errors)


def _id(request: Request) -> str | None:
    found = request.scope.get("state", {}).get("request_id")
    return None if found is None else str(found)
