"""What handlers ask of a request: the context, and the token with the scope that they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from nautile.errors import RequestError

from .context import Context
from .tokens import Token

__all__ = ["Admin", "Reads", "Scraper", "Service", "Submits", "whose"]

_BEARER = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token of `nautile token create`."
)


def _context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


def _with(scope: str) -> Callable[..., Token]:
    def check(request: Request, _: Annotated[object, Security(_BEARER)] = None) -> Token:
        token: Token = request.state.token
        if scope not in token.scopes and "admin" not in token.scopes:
            message = f"this token has not the scope {scope!r}"
            raise RequestError(message, code="forbidden", http_status=403)
        return token

    return check


Service = Annotated[Context, Depends(_context)]
Submits = Annotated[Token, Depends(_with("submit"))]
Reads = Annotated[Token, Depends(_with("read"))]
Admin = Annotated[Token, Depends(_with("admin"))]
Scraper = Annotated[Token, Depends(_with("metrics"))]


def whose(token: Token) -> str | None:
    """Whose jobs a token sees: its own, or everybody's (None)."""
    return None if "admin" in token.scopes else token.id
