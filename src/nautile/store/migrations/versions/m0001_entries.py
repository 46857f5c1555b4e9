"""Entries, artifacts, and which entry uses which artifact."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPLICATION = 0x4E617574  # "Naut": how SQLite tells whose file it is


def upgrade() -> None:
    """Make the tables of the store."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"PRAGMA application_id = {APPLICATION}")
    op.create_table(
        "store_meta",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "store_entries",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("term", sa.Text),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("ingredients", sa.Text, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("used", sa.Float(53), nullable=False),
        sa.Column("hits", sa.BigInteger, nullable=False),
    )
    op.create_index("store_entries_term", "store_entries", ["term"])
    op.create_index("store_entries_used", "store_entries", ["used", "key"])
    op.create_table(
        "store_artifacts",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
    )
    op.create_table(
        "store_links",
        sa.Column(
            "key",
            sa.String(200),
            sa.ForeignKey("store_entries.key", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "digest", sa.String(64), sa.ForeignKey("store_artifacts.digest"), primary_key=True
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("store_links_digest", "store_links", ["digest"])
