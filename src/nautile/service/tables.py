"""The service's tables, beside the store's own in one database (migration 0002); each name begins
with `service_`.

```
tokens    who may ask: name, hash of the secret, scopes, limits; `served` orders the turns
jobs      what was asked, one row a submission: whose, under which names, which run answers it
runs      what is executed: one row an execution, shared by all jobs of one key in flight
events    what happened to a run, numbered from 1 within it
workers   processes that execute runs, with their last sign of life
secrets   keys that the processes of one service share
```

A run goes `queued -> running -> done | failed`; a lost or broken one returns to `queued` until its
attempts are used up, then it is `dead` until somebody requeues it; `cancelled` when no job wants it
any more. A job's state is its run's, unless the job itself was cancelled; a job without a run was
answered from the store at once. Times are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

__all__ = [
    "FINAL",
    "IN_FLIGHT",
    "LOCAL",
    "STATES",
    "events",
    "jobs",
    "metadata",
    "runs",
    "secrets",
    "tokens",
    "workers",
]

IN_FLIGHT: Final = ("queued", "running")
FINAL: Final = ("done", "failed", "cancelled", "dead")
STATES: Final = (*IN_FLIGHT, *FINAL)
LOCAL: Final = "local"  # the token that stands for everybody where there is no authentication

metadata = sa.MetaData()


class _Object(sa.types.TypeDecorator[dict[str, Any]]):
    """A JSON object as text, on both databases; PostgreSQL's own type refuses NaN and NUL."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: object) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: object) -> dict[str, Any] | None:
        return None if value is None else dict(json.loads(value))


_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts only INTEGER keys

tokens = sa.Table(
    "service_tokens",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("secret_hash", sa.String(64)),  # none: nobody can present it
    sa.Column("scopes", sa.Text, nullable=False),  # words with spaces between
    sa.Column("rate", sa.Float(53), nullable=False),  # requests a second
    sa.Column("burst", sa.Integer, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),  # jobs in flight
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("revoked", sa.Float(53)),
    sa.Column("served", sa.Float(53), nullable=False, server_default="0"),
)

runs = sa.Table(
    "service_runs",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),  # optimize | explain
    sa.Column("task", sa.LargeBinary, nullable=False),
    sa.Column("token", sa.ForeignKey("service_tokens.id"), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("not_before", sa.Float(53), nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("lease", sa.Text),  # this lease's own name: a lost one can change nothing
    sa.Column("lease_until", sa.Float(53)),
    sa.Column("unwanted", sa.Boolean, nullable=False),  # every job of it was cancelled
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("started", sa.Float(53)),
    sa.Column("finished", sa.Float(53)),
    sa.Column("error", _Object),
    sa.Column("record", _Object),  # of a failure; results are in the store
    sa.Column("last_event", sa.Integer, nullable=False),
    sa.Index("service_runs_waiting", "state", "priority", "number"),
    sa.Index(
        "service_runs_in_flight",
        "key",
        "kind",
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    ),
    sa.Index("service_runs_of_key", "key", "kind", "number"),
)

jobs = sa.Table(
    "service_jobs",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("token", sa.ForeignKey("service_tokens.id"), nullable=False),
    sa.Column("run", sa.ForeignKey("service_runs.number")),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("task", sa.LargeBinary, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("numerics", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("idempotency", sa.Text),
    sa.Column("body_digest", sa.String(64), nullable=False),
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("cancelled", sa.Float(53)),
    sa.Column("last_event", sa.Integer),  # of the run when this job was cancelled
    sa.UniqueConstraint("token", "idempotency"),
    sa.Index("service_jobs_of_token", "token", "number"),
    sa.Index("service_jobs_of_run", "run"),
)

events = sa.Table(
    "service_events",
    metadata,
    sa.Column("run", sa.ForeignKey("service_runs.number", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("data", _Object, nullable=False),
    sa.Column("created", sa.Float(53), nullable=False),
)

workers = sa.Table(
    "service_workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started", sa.Float(53), nullable=False),
    sa.Column("seen", sa.Float(53), nullable=False),
)

secrets = sa.Table(
    "service_secrets",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
