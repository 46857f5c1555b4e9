"""Opening a store: where it is, whose it is, and its schema brought up to date.

The database and the artifact folder carry one identity (`store_meta.id`, `store.json`), so that
the database of one store never works on the artifacts of another: a `gc` would remove them all.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import uuid
from pathlib import Path

from sqlalchemy import URL, Connection, insert, select

from nautile import __version__
from nautile.errors import StoreError

from . import migration
from .database import Database, address
from .faults import translated
from .objects import Objects, sync
from .schema import entries, meta

__all__ = ["opened"]

FORMAT = "nautile-store"
MARK = "store.json"
PATIENCE = 5.0  # seconds to wait for a server at first: its address may be wrong


def opened(
    place: str | Path, artifacts: Path | None, *, read_only: bool, wait: float
) -> tuple[Database, Objects]:
    """The database and the artifact folder of the store at `place`; see `Store.open`."""
    url = address(place)
    folder = _folder(url, artifacts)
    if url.get_backend_name() == "sqlite":
        _placed(Path(url.database or ""), read_only)
    database = Database(url, read_only=read_only, wait=wait)
    try:
        identity, used = _current(database)
        objects = Objects(folder, read_only=read_only)
        if not read_only:
            objects.create()
        _claim(objects, identity, used)
    except BaseException:
        database.close()
        raise
    return database, objects


def _folder(url: URL, artifacts: Path | None) -> Path:
    if artifacts is not None:
        return Path(artifacts)
    if url.get_backend_name() != "sqlite":
        raise StoreError(
            f"{url.render_as_string()} needs a folder for its artifacts, shared by all its hosts",
            code="store-usage",
        )
    return Path(url.database or "").parent


def _placed(path: Path, read_only: bool) -> None:
    """Make the folder of a SQLite database, or see that there is one to read."""
    with translated(path.parent):
        if path.parent.is_file():
            raise StoreError(f"{path.parent} is a file; a store is a folder", code="store-foreign")
        if read_only:
            path.stat()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.statvfs(path.parent).f_flag & os.ST_RDONLY:  # SQLite: "unable to open"
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path.parent))


def _current(database: Database) -> tuple[str, bool]:
    """The store's identity, after bringing the schema up to date, and whether it has entries."""
    patience = min(database.wait, PATIENCE)
    version = database.transact(migration.current, write=False, wait=patience)
    if migration.checked(version) != migration.newest():
        if database.read_only:
            raise _unready(database, version)
        database.transact(_prepare)
        database.compact()
    return database.transact(_identity, write=False)


def _unready(database: Database, version: str | None) -> StoreError:
    if version is None:
        return StoreError(f"there is no store in {database.name}", code="store-missing")
    return StoreError(
        f"{database.name} has schema {version}, older than {migration.newest()}: "
        "open it once for writing (`nautile store stats --upgrade`)",
        code="store-outdated",
    )


def _prepare(connection: Connection) -> None:
    """Bring the schema up to date, and give a new store its identity."""
    migration.upgrade(connection)
    if connection.execute(select(meta.c.value).where(meta.c.name == "id")).first() is None:
        values = {"id": str(uuid.uuid4()), "made by": __version__}
        connection.execute(insert(meta), [{"name": n, "value": v} for n, v in values.items()])


def _identity(connection: Connection) -> tuple[str, bool]:
    identity = connection.execute(select(meta.c.value).where(meta.c.name == "id")).scalar()
    used = connection.execute(select(entries.c.key).limit(1)).first()
    return identity or "", used is not None


def _claim(objects: Objects, identity: str, used: bool) -> None:
    """See that the folder is this store's, or make it so where it is nobody's."""
    mark = objects.root / MARK
    with translated(objects.root):
        owner = _owner(mark)
        if owner is None and not used and not objects.read_only:
            _mark(objects, mark, identity)
            owner = _owner(mark)
    if owner is None and used:
        raise StoreError(
            f"{objects.root} has lost its {MARK}: is it the right folder, and is its disk mounted?"
            f" If its artifacts are lost, write {_marking(identity)} to that file",
            code="store-mismatch",
        )
    if owner is not None and owner != identity:
        raise StoreError(
            f"{objects.root} holds the artifacts of another store ({owner}, not {identity})",
            code="store-mismatch",
        )


def _owner(mark: Path) -> str | None:
    try:
        found = json.loads(mark.read_text())
        return str(found["store"]) if found["format"] == FORMAT else "unknown"
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return "unknown"


def _mark(objects: Objects, mark: Path, identity: str) -> None:
    name = objects.temporary / secrets.token_hex(8)
    try:
        with name.open("x") as file:
            file.write(_marking(identity))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, mark)  # unlike a rename, it never overwrites another process's
        except OSError:
            if not mark.exists():  # some file systems have no hard links
                os.replace(name, mark)
        sync(mark.parent)
    finally:
        name.unlink(missing_ok=True)


def _marking(identity: str) -> str:
    return json.dumps({"format": FORMAT, "store": identity})
