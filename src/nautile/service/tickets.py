"""Links that work without a token, for a while: a browser that follows one sends no header.

```
ticket ::= <job's id>.<seconds since 1970, at which it ends>.<HMAC-SHA-256 of both, 32 hex digits>
```
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time

__all__ = ["opened", "sealed"]

_SHAPE = re.compile(r"(opt_[0-9a-f]{24})\.([0-9]{1,12})\.([0-9a-f]{32})")


def sealed(key: bytes, id: str, until: int) -> str:
    """A ticket to the job's explanation."""
    return f"{id}.{until}.{_seal(key, f'{id}.{until}')}"


def opened(key: bytes, ticket: str, *, clock: float | None = None) -> str | None:
    """The job that the ticket lets see, or None where it is no ticket or its time is over."""
    shape = _SHAPE.fullmatch(ticket)
    if shape is None:
        return None
    id, until, seal = shape.groups()
    genuine = hmac.compare_digest(seal, _seal(key, f"{id}.{until}"))
    moment = time.time() if clock is None else clock
    return id if genuine and int(until) >= moment else None


def _seal(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:32]
