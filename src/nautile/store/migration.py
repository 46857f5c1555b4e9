"""The version of a database's schema, and the way from an older one to this release's.

A database is empty (no table of the store), at a version that this release knows, or newer; a
newer one is refused by name, because an older release could not keep what it does not know.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from nautile.errors import StoreError

from .schema import APPLICATION, VERSION_TABLE, metadata

__all__ = ["current", "newest", "revisions", "upgrade"]

FOLDER = Path(__file__).parent / "migrations"
LOCK = 0x4E617574  # of PostgreSQL's advisory locks: one process migrates at a time
_alembic = threading.Lock()  # its `op` and `context` are global


@cache
def revisions() -> tuple[str, ...]:
    """The numbers of all migrations, oldest first."""
    return tuple(sorted(p.name[1:5] for p in (FOLDER / "versions").glob("m[0-9]*_*.py")))


def newest() -> str:
    """The number of this release's schema."""
    return revisions()[-1]


def current(connection: Connection) -> str | None:
    """The schema's number; None for an empty database. Raises StoreError where the database is
    another program's."""
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name == "sqlite":
        marked = connection.exec_driver_sql("PRAGMA application_id").scalar()
        foreign = marked != APPLICATION if tables else marked not in (0, APPLICATION)
    else:
        foreign = VERSION_TABLE not in tables and bool(tables & metadata.tables.keys())
    if foreign:
        raise StoreError("the database belongs to another program", code="store-foreign")
    if VERSION_TABLE not in tables:
        return None
    stated = text(f"SELECT version_num FROM {VERSION_TABLE}")
    found: str | None = connection.execute(stated).scalar()
    return found


def checked(version: str | None) -> str | None:
    """The version. Raises StoreError where it is not one of this release's."""
    if version is not None and version not in revisions():
        raise StoreError(
            f"the store has schema {version}, this release of Nautile knows up to {newest()}: "
            "use the release that wrote it, or a later one",
            code="store-newer",
        )
    return version


def upgrade(connection: Connection, target: str | None = None) -> bool:
    """Bring the schema to `target` (the newest without) inside the caller's transaction; whether
    there was anything to do. Raises StoreError for a newer schema or a foreign database."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
    version = checked(current(connection))
    if version == (target or newest()):
        return False
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, target or newest())
    return True
