"""Bearer tokens: who asks, what they may do, and how much of it.

A token reads `nau_<id>_<secret>`. The secret holds 256 random bits and is shown once; the database
keeps its SHA-256 (a slow hash guards secrets that people choose, and this one nobody can guess). A
revoked token keeps its row: its jobs stay attributed.

```
submit   ask for optimizations, cancel one's own
read     see one's own jobs, devices and rules
admin    see, cancel and requeue everybody's
metrics  read /metrics
```
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from nautile.errors import InputError

from .database import Database, now, written
from .tables import LOCAL
from .tables import secrets as secret_table
from .tables import tokens as table

__all__ = ["SCOPES", "Token", "create", "known", "listed", "local", "revoke", "shared_secret"]

SCOPES: Final = ("submit", "read", "admin", "metrics")
_SHAPE = re.compile(r"nau_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """Who asks: `rate` requests a second (bursts up to `burst`), `concurrency` jobs in flight."""

    id: str
    name: str
    scopes: frozenset[str]
    rate: float
    burst: int
    concurrency: int
    created: float
    revoked: float | None = None


def create(
    database: Database,
    name: str,
    scopes: Iterable[str] = ("submit", "read"),
    *,
    rate: float = 20.0,
    burst: int = 100,
    concurrency: int = 100,
) -> str:
    """A new token's text, which nobody can see again. Raises InputError for an unknown scope."""
    wanted = _scopes(scopes)
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = {
        "id": id,
        "name": name,
        "secret_hash": _hash(secret),
        "scopes": wanted,
        "rate": rate,
        "burst": burst,
        "concurrency": concurrency,
    }
    written(database, lambda c: c.execute(sa.insert(table).values(**row, created=now(c))))
    return f"nau_{id}_{secret}"


def _scopes(scopes: Iterable[str]) -> str:
    wanted = sorted(set(scopes))
    strange = [s for s in wanted if s not in SCOPES]
    if strange or not wanted:
        told = f"unknown scope {strange[0]!r}" if strange else "no scope"
        raise InputError(f"{told}; known: {', '.join(SCOPES)}", code="unknown-scope")
    return " ".join(wanted)


def known(database: Database, text: str) -> Token | None:
    """The token of that text, or None where there is none, or no longer. Takes as long for a wrong
    secret as for an unknown id."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    id, secret = shape.groups()
    with database.reading() as connection:
        row = connection.execute(sa.select(table).where(table.c.id == id)).one_or_none()
    stored = row.secret_hash if row is not None and row.secret_hash else _NOBODY
    same = hmac.compare_digest(_hash(secret), stored)
    return _token(row) if same and row is not None and row.revoked is None else None


def local(database: Database, *, concurrency: int) -> Token:
    """The token that stands for everybody where there is no authentication: all scopes."""
    scopes = " ".join(SCOPES)
    name, rate, burst = "without authentication", 1e9, 1_000_000_000
    row = {"id": LOCAL, "name": name, "scopes": scopes, "rate": rate, "burst": burst}

    def work(connection: sa.Connection) -> None:
        if connection.scalar(sa.select(table.c.id).where(table.c.id == LOCAL)) is None:
            values = row | {"concurrency": concurrency, "created": now(connection)}
            connection.execute(sa.insert(table).values(**values))

    written(database, work)
    return Token(LOCAL, name, frozenset(SCOPES), rate, burst, concurrency, 0.0)


def listed(database: Database) -> list[Token]:
    """All tokens, the oldest first; their secrets are known to nobody."""
    with database.reading() as connection:
        query = sa.select(table).where(table.c.id != LOCAL).order_by(table.c.created, table.c.id)
        return [_token(row) for row in connection.execute(query)]


def revoke(database: Database, id: str) -> bool:
    """End a token's life; False where there is none of that id, or it has ended already."""

    def work(connection: sa.Connection) -> bool:
        alive = (table.c.id == id) & table.c.revoked.is_(None) & (table.c.id != LOCAL)
        change = sa.update(table).where(alive).values(revoked=now(connection))
        return connection.execute(change).rowcount == 1

    return written(database, work)


def shared_secret(database: Database, name: str) -> bytes:
    """A key that all processes of the service share, made on first use."""

    def work(connection: sa.Connection) -> str:
        query = sa.select(secret_table.c.value).where(secret_table.c.name == name)
        found = connection.scalar(query)
        if found is None:
            found = secrets.token_hex(32)
            connection.execute(sa.insert(secret_table).values(name=name, value=found))
        return str(found)

    return bytes.fromhex(written(database, work))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(row: Any) -> Token:
    found = row._mapping
    return Token(
        id=found["id"],
        name=found["name"],
        scopes=frozenset(found["scopes"].split()),
        rate=found["rate"],
        burst=found["burst"],
        concurrency=found["concurrency"],
        created=found["created"],
        revoked=found["revoked"],
    )
