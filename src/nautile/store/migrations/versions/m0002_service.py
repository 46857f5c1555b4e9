"""What the service keeps: tokens, jobs, the runs that answer them, events and workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts only INTEGER keys
_IN_FLIGHT = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    """Make the tables of the service."""
    _tokens()
    _runs()
    _jobs()
    _events()
    op.create_table(
        "service_workers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started", sa.Float(53), nullable=False),
        sa.Column("seen", sa.Float(53), nullable=False),
    )
    op.create_table(
        "service_secrets",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _tokens() -> None:
    op.create_table(
        "service_tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.String(64)),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("rate", sa.Float(53), nullable=False),
        sa.Column("burst", sa.Integer, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("revoked", sa.Float(53)),
        sa.Column("served", sa.Float(53), nullable=False, server_default="0"),
    )


def _runs() -> None:
    op.create_table(
        "service_runs",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("task", sa.LargeBinary, nullable=False),
        sa.Column("token", sa.String(32), sa.ForeignKey("service_tokens.id"), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", sa.Float(53), nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("lease", sa.Text),
        sa.Column("lease_until", sa.Float(53)),
        sa.Column("unwanted", sa.Boolean, nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("started", sa.Float(53)),
        sa.Column("finished", sa.Float(53)),
        sa.Column("error", sa.Text),
        sa.Column("record", sa.Text),
        sa.Column("last_event", sa.Integer, nullable=False),
    )
    op.create_index("service_runs_waiting", "service_runs", ["state", "priority", "number"])
    op.create_index(
        "service_runs_in_flight",
        "service_runs",
        ["key", "kind"],
        unique=True,
        sqlite_where=_IN_FLIGHT,
        postgresql_where=_IN_FLIGHT,
    )
    op.create_index("service_runs_of_key", "service_runs", ["key", "kind", "number"])


def _jobs() -> None:
    op.create_table(
        "service_jobs",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(40), nullable=False, unique=True),
        sa.Column("token", sa.String(32), sa.ForeignKey("service_tokens.id"), nullable=False),
        sa.Column("run", _NUMBER, sa.ForeignKey("service_runs.number")),
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
        sa.Column("last_event", sa.Integer),
        sa.UniqueConstraint("token", "idempotency", name="service_jobs_idempotency"),
    )
    op.create_index("service_jobs_of_token", "service_jobs", ["token", "number"])
    op.create_index("service_jobs_of_run", "service_jobs", ["run"])


def _events() -> None:
    run = sa.ForeignKey("service_runs.number", ondelete="CASCADE")
    op.create_table(
        "service_events",
        sa.Column("run", _NUMBER, run, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
    )
