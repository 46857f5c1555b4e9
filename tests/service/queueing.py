"""What tests of the queue ask for, and how they look at it without the service's own code."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nautile.service import jobs, runs, tokens
from nautile.service.database import Database
from nautile.service.jobs import Asked, Job
from nautile.service.runs import Claim

__all__ = ["ask", "asked", "claim", "expire", "hasten", "row", "token"]


def token(database: Database, name: str = "anybody") -> str:
    """The id of a new token."""
    return tokens.create(database, name).split("_")[1]


def asked(owner: str, key: str, **more: Any) -> Asked:
    """A submission."""
    values: dict[str, Any] = {
        "token": owner,
        "key": key,
        "task": key.encode(),
        "program": f"p_{key}",
        "target": "h200",
        "numerics": "real",
        "body_digest": "d",
    }
    return Asked(**values | more)


def ask(database: Database, owner: str, key: str, **more: Any) -> Job:
    """The job of a submission that is queued without limits."""
    found, _ = jobs.submit(
        database, asked(owner, key, **more), known=False, concurrency=10_000, queue=10_000
    )
    return found


def claim(database: Database, owner: str = "worker", attempts: int = 3) -> Claim | None:
    """The next run, for an hour."""
    return runs.claim(database, owner, seconds=3600, attempts=attempts)


def expire(database: Database, number: int) -> None:
    """Let the lease of a run end."""
    _execute(database, "UPDATE service_runs SET lease_until = 1 WHERE number = :number", number)


def hasten(database: Database) -> None:
    """Let every pause before another attempt end."""
    _execute(database, "UPDATE service_runs SET not_before = 1 WHERE number >= :number", 0)


def row(database: Database, number: int) -> dict[str, Any]:
    """A run as the database has it."""
    with database.engine.connect() as connection:
        query = sa.text("SELECT * FROM service_runs WHERE number = :number")
        return dict(connection.execute(query, {"number": number}).one()._mapping)


def _execute(database: Database, text: str, number: int) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.text(text), {"number": number})
