"""Schemas: an older store is brought up to date and keeps everything; a newer one is refused."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from nautile.errors import StoreError
from nautile.store import Store, migration, schema
from nautile.store.migrations.versions import m0001_entries
from nautile.store.schema import VERSION_TABLE, metadata
from store import work
from store.conftest import Place, Processes

OLD = Path(__file__).parents[1] / "data" / "store-0001"


def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def version(store: Store) -> str | None:
    with store.reading() as connection:
        return migration.current(connection)


def test_revisions_are_those_that_alembic_finds_in_one_line() -> None:
    config = Config()
    config.set_main_option("script_location", str(migration.FOLDER))
    scripts = ScriptDirectory.from_config(config)
    assert migration.revisions() == tuple(
        reversed([s.revision for s in scripts.walk_revisions("base", "heads")])
    )
    assert scripts.get_heads() == [migration.newest()]


def test_the_migrations_make_the_schema_that_the_code_uses(place: Place) -> None:
    def ours(_object: object, name: str | None, kind: str, *_: object) -> bool:
        return kind != "table" or ((name or "").startswith("store_") and name != VERSION_TABLE)

    with place.open() as store, store.reading() as connection:
        options = {"include_object": ours, "compare_type": True, "version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        named = {
            f"{t}.{i['name']}" for t in metadata.tables for i in inspect(connection).get_indexes(t)
        }
        assert named == {
            f"{t}.{i.name}" for t, made in metadata.tables.items() for i in made.indexes
        }


def test_a_store_of_the_first_schema_is_upgraded_and_keeps_everything(tmp_path: Path) -> None:
    with Store.open(old(tmp_path)) as store:
        assert version(store) == migration.newest()
        alpha, beta = store.get("alpha"), store.get("beta")
        assert alpha is not None
        assert beta is not None
        assert alpha.record == {"program": "f", "status": "ok"}
        assert {p: store.read(d) for p, d in alpha.artifacts.items()} == {
            "kernel.cu": b"// kernel\n",
            "manifest.json": b"{}\n",
        }
        assert beta.artifacts["k.cu"] == alpha.artifacts["kernel.cu"]
        assert (beta.ingredients["target"], beta.created) == ("h100", 1_700_000_000.0)
        assert store.verify().problems == ()
        assert store.put("gamma", {}, {"x": b"new"}).key == "gamma"


def test_an_older_store_opened_read_only_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="schema 0001") as error:
        Store.open(old(tmp_path), read_only=True)
    assert error.value.code == "store-outdated"
    Store.open(tmp_path / "old").close()
    with Store.open(tmp_path / "old", read_only=True) as store:
        assert store.get("alpha") is not None


def test_a_newer_store_is_refused_by_name_and_left_alone(place: Place) -> None:
    with place.open() as store:
        store.put("k", {})
        store.transact(
            lambda c: c.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        )
    for read_only in (False, True):
        with pytest.raises(StoreError, match="schema 9999") as error:
            place.open(read_only=read_only)
        assert error.value.code == "store-newer"


def test_a_migration_that_fails_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = old(tmp_path)
    scripts = Path(shutil.copytree(migration.FOLDER, tmp_path / "migrations"))
    (scripts / "versions" / "m9998_broken.py").write_text(
        f"""from alembic import op
revision, down_revision = "9998", "{migration.newest()}"
branch_labels = depends_on = None
def upgrade():
    op.execute("CREATE TABLE store_more (x INTEGER)")
    op.execute("DELETE FROM store_links")
    op.execute("THIS IS NOT SQL")
"""
    )
    before = dump(folder)
    monkeypatch.setattr(migration, "FOLDER", scripts)
    migration.revisions.cache_clear()
    try:
        with pytest.raises(StoreError):
            Store.open(folder)
    finally:
        migration.revisions.cache_clear()
    assert dump(folder) == before
    monkeypatch.undo()
    with Store.open(folder) as store:
        assert store.get("alpha") is not None


def dump(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "store.db") as database:
        return list(database.iterdump())


def test_upgrading_is_done_once_when_many_processes_open_at_once(
    place: Place, processes: Processes
) -> None:
    start = time.time() + 0.2
    at = place.address, place.artifacts
    writers = [processes.start(work.put_all, *at, range(n, n + 1), start) for n in range(6)]
    for process in writers:
        process.join(60)
        assert process.exitcode == 0
    with place.open() as store:
        assert list(store.keys()) == [f"k{n}" for n in range(6)]
        assert version(store) == migration.newest()


def test_a_table_of_another_program_is_not_touched(place: Place, tmp_path: Path) -> None:
    if place.backend == "sqlite":
        (tmp_path / "store").mkdir()
        with sqlite3.connect(tmp_path / "store" / "store.db") as database:
            database.execute("CREATE TABLE mine (x)")
        before = (tmp_path / "store" / "store.db").read_bytes()
    else:
        with_table(place)
    with pytest.raises(StoreError) as error:
        place.open()
    assert error.value.code == "store-foreign"
    if place.backend == "sqlite":
        assert (tmp_path / "store" / "store.db").read_bytes() == before
        assert [p.name for p in (tmp_path / "store").iterdir()] == ["store.db"]


def with_table(place: Place) -> None:
    import psycopg

    with psycopg.connect(place.address, autocommit=True) as connection:
        connection.execute("CREATE TABLE store_entries (mine INTEGER)")


def test_tables_of_others_live_beside_ours_in_postgresql(
    postgresql: object, tmp_path: Path
) -> None:
    import psycopg

    address = postgresql.database()  # type: ignore[attr-defined]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE somebodys (x INTEGER)")
    with Store.open(address, tmp_path / "a") as store:

        def insert(connection: Connection) -> None:
            connection.execute(text("INSERT INTO somebodys VALUES (1)"))

        store.transact(insert)
        assert store.put("k", {}).key == "k"


def test_the_mark_of_a_file_is_that_of_the_first_migration() -> None:
    assert schema.APPLICATION == m0001_entries.APPLICATION
