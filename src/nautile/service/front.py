"""The web front page: a few files, read once, served under a strict policy."""

from __future__ import annotations

from functools import cache
from importlib import resources

from fastapi import APIRouter, Response

from nautile.errors import RequestError

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "front.css": "text/css; charset=utf-8",
    "front.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@router.get("/")
def index() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/static/{name}")
def static(name: str) -> Response:
    """What the page needs: one of the files of this package, by its name."""
    if name not in _TYPES:
        raise RequestError("there is no such file", code="not-found", http_status=404)
    return _file(name)


def _file(name: str) -> Response:
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(_read(name), media_type=_TYPES[name], headers=headers)


@cache
def _read(name: str) -> bytes:
    return resources.files("nautile.service").joinpath("static", name).read_bytes()
