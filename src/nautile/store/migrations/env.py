"""Alembic's entry: run the migrations on the connection that `migration.upgrade` hands over.

The transaction is the caller's, so that all steps and the version number are one change.
"""

from __future__ import annotations

from alembic import context

from nautile.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
