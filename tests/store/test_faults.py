"""What goes wrong around a store is told by a stable code, and loses nothing that was in it."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nautile.errors import StoreError
from nautile.store import Store
from store import work
from store.conftest import Place, Processes
from store.postgresql import Server

ROOT = os.geteuid() == 0


def code_of(action: object) -> str:
    with pytest.raises(StoreError) as error:
        action()  # type: ignore[operator]
    return error.value.code


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "nautile", str(folder)]
    if not ROOT or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def filled(store: Store, record: dict[str, object], size: int) -> tuple[list[str], str]:
    """Put results until one is refused: the accepted keys, and the code of the refusal."""
    kept: list[str] = []
    try:
        while len(kept) < 1000:
            key = f"k{len(kept)}"
            store.put(key, record, {"a": os.urandom(size)} if size else {})
            kept.append(key)
    except StoreError as error:
        return kept, error.code
    raise AssertionError("the disk never was full")


def test_a_full_disk_loses_nothing(small: Path) -> None:
    with Store.open(small / "s", wait=1) as store:
        kept, code = filled(store, {}, 100_000)
        assert code == "store-full"
        assert len(kept) > 10
        assert [k for k in kept if store.get(k) is None] == []
        assert list((small / "s" / "tmp").iterdir()) == []
        assert code_of(lambda: store.put("big", {}, {"a": os.urandom(900_000)})) == "store-full"
    with Store.open(small / "s", read_only=True) as store:
        assert sorted(store.keys()) == sorted(kept)
        assert [p for p in store.verify().problems if p.bad] == []


def test_a_full_disk_is_usable_again_after_a_collection(small: Path) -> None:
    with Store.open(small / "s", wait=1) as store:
        kept, _ = filled(store, {}, 100_000)
        found = store.gc(max_bytes=1_000_000, grace=0)
        assert 0 < found.entries < len(kept)
        assert store.put("again", {}, {"a": b"x" * 100_000}).key == "again"


def test_a_full_disk_for_the_database_alone(small: Path, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{small}/store.db", tmp_path / "artifacts", wait=1) as store:
        kept, code = filled(store, {"text": "x" * 100_000}, 0)
        assert code == "store-full"
        assert [k for k in kept if store.peek(k) is None] == []


def limited(store: Store, limit: int, key: str, record: dict[str, object], size: int) -> str:
    """The code of a put when no file may grow beyond `limit` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        return code_of(lambda: store.put(key, record, {"a": bytes(size)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_on_the_size_of_files(sqlite: Place) -> None:
    with sqlite.open(wait=1) as store:
        store.put("k", {"n": 1}, {"a": b"1"})
        assert limited(store, 200_000, "artifact", {}, 300_000) == "store-full"
        assert list((sqlite.artifacts / "tmp").iterdir()) == []
        assert limited(store, 200_000, "record", {"x": "y" * 1_000_000}, 1) in (
            "store-full",
            "store-io",
        )
        assert [store.get("artifact"), store.get("record")] == [None, None]
        assert store.get("k") is not None
        assert store.put("record", {"x": "y" * 1_000_000}).key == "record"


def as_nobody(processes: Processes, place: Path, read_only: bool = False) -> list[object]:
    """What a user without rights finds in the store, and the code of the error that ends it."""
    ours, theirs = processes.pipe()
    process = processes.start(work.without_rights, str(place), read_only, theirs)
    theirs.close()
    found: list[object] = ours.recv()
    process.join(60)
    return found


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that all users may read and its owner may write, in a folder that all can reach."""
    folder = Path(f"/tmp/nautile-shared-{os.getpid()}-{os.urandom(4).hex()}")
    folder.mkdir(mode=0o755)
    try:
        with Store.open(folder / "s") as store:
            store.put("k", {"n": 1}, {"a": b"1"})
        yield folder / "s"
    finally:
        for path in folder.rglob("*"):
            path.chmod(0o755)
        shutil.rmtree(folder)


def test_a_folder_that_may_only_be_read(shared: Path, processes: Processes) -> None:
    if not ROOT:
        for path in (shared, *shared.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
    assert as_nobody(processes, shared) == ["store-read-only"]
    assert as_nobody(processes, shared, read_only=True) == [True, "store-read-only"]


def test_a_store_that_another_user_is_writing_may_be_read(
    shared: Path, processes: Processes
) -> None:
    if not ROOT:
        pytest.skip("needs two users")
    with Store.open(shared) as store:
        store.put("other", {})  # what the reader sees is in the write-ahead log only
        assert (shared / "store.db-wal").stat().st_size > 0
        assert as_nobody(processes, shared, read_only=True) == [True, "store-read-only"]


def test_a_folder_that_may_not_be_entered(shared: Path, processes: Processes) -> None:
    shared.chmod(0o000)
    for read_only in (False, True):
        assert as_nobody(processes, shared, read_only) == ["store-permission"]


def test_a_store_is_not_made_where_one_may_not_write(shared: Path, processes: Processes) -> None:
    shared.parent.chmod(0o555)
    assert as_nobody(processes, shared.parent / "other") == ["store-permission"]


def test_a_read_only_file_system(small: Path) -> None:
    with Store.open(small / "s") as store:
        store.put("k", {"n": 1}, {"a": b"1"})
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    assert code_of(lambda: Store.open(small / "s")) in ("store-read-only", "store-permission")
    assert code_of(lambda: Store.open(small / "new")) == "store-read-only"
    with Store.open(small / "s", read_only=True) as store:
        entry = store.get("k")
        assert entry is not None
        assert store.read(entry.artifacts["a"]) == b"1"
        assert store.verify().sound


def test_a_database_that_another_process_holds(sqlite: Place) -> None:
    with sqlite.open(wait=0.3) as store:
        store.put("k", {"n": 1})
        with sqlite3.connect(sqlite.artifacts / "store.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            assert code_of(lambda: store.put("new", {})) == "store-busy"
            assert store.peek("k") is not None  # readers do not wait for writers
            other.execute("ROLLBACK")
        assert store.put("new", {}).key == "new"


def test_a_writer_waits_for_another(sqlite: Place) -> None:
    with sqlite.open(wait=20) as store:
        other = sqlite3.connect(
            sqlite.artifacts / "store.db", isolation_level=None, check_same_thread=False
        )
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.4, lambda: other.execute("ROLLBACK")).start()
        assert store.put("new", {}).key == "new"
        other.close()


def test_a_damaged_database_is_told(sqlite: Place) -> None:
    with sqlite.open() as store:
        for n in range(50):
            store.put(f"k{n}", {"x": "y" * 2000})
    path = sqlite.artifacts / "store.db"
    content = bytearray(path.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    path.write_bytes(content)
    assert code_of(lambda: _all(sqlite)) == "store-corrupt"


def _all(place: Place) -> None:
    with place.open() as store:
        for n in range(50):
            store.peek(f"k{n}")
        store.put("new", {})


@pytest.mark.parametrize("content", [b"not a database " * 100, b"\x7fELF" + bytes(5000)])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "store.db").write_bytes(content)
    for read_only in (False, True):
        assert code_of(lambda r=read_only: Store.open(tmp_path / "s", read_only=r)) == (
            "store-foreign"
        )
    assert (tmp_path / "s" / "store.db").read_bytes() == content


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("text")
    assert code_of(lambda: Store.open(tmp_path / "f")) == "store-foreign"
    assert code_of(lambda: Store.open(tmp_path / "f" / "g")) == "store-foreign"
    assert (tmp_path / "f").read_text() == "text"


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    assert code_of(lambda: Store.open(tmp_path / "none", read_only=True)) == "store-missing"
    assert not (tmp_path / "none").exists()


def test_the_artifacts_of_another_store_are_refused(place: Place, tmp_path: Path) -> None:
    with place.open() as store:
        store.put("k", {}, {"a": b"1"})
    with pytest.raises(StoreError, match="another store") as error:
        Store.open(tmp_path / "second", place.artifacts)
    assert error.value.code == "store-mismatch"


def test_an_artifact_folder_that_is_not_mounted_is_told_and_not_taken_for_empty(
    place: Place, tmp_path: Path
) -> None:
    with place.open() as store:
        entry = store.put("k", {}, {"a": b"1"})
    for name in ("objects", "tmp", "quarantine", "store.json"):
        shutil.move(place.artifacts / name, tmp_path / f"unmounted-{name}")
    with pytest.raises(StoreError, match="is its disk mounted") as error:
        place.open()
    assert error.value.code == "store-mismatch"
    shutil.rmtree(place.artifacts / "objects", ignore_errors=True)
    for name in ("objects", "store.json"):
        shutil.move(tmp_path / f"unmounted-{name}", place.artifacts / name)
    with place.open() as store:
        assert store.get("k") == entry


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    url = "postgresql://someone:secret@127.0.0.1:1/x"
    with pytest.raises(StoreError) as error:
        Store.open(url, tmp_path / "a", wait=0.2)
    assert error.value.code == "store-unreachable"
    assert "secret" not in str(error.value)


def test_a_server_that_knows_no_such_database(postgresql: Server, tmp_path: Path) -> None:
    url = postgresql.url().replace("/postgres", "/nothing")
    assert code_of(lambda: Store.open(url, tmp_path / "a", wait=0.2)) in (
        "store-missing",
        "store-unreachable",
    )


def test_a_lost_connection_is_made_again(postgresql: Server, tmp_path: Path) -> None:
    import psycopg

    with Store.open(postgresql.database(), tmp_path / "a") as store:
        store.put("k", {"n": 1})
        with psycopg.connect(postgresql.url(), autocommit=True) as other:
            for n in range(10):
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'nautile'"
                )
                assert store.put(f"k{n}", {"n": n}, {"a": bytes([n])}).record["n"] in (1, n)
        assert store.get("k") is not None


def test_a_connection_lost_inside_a_transaction_runs_it_again(
    postgresql: Server, tmp_path: Path
) -> None:
    from sqlalchemy import Connection, text

    with Store.open(postgresql.database(), tmp_path / "a") as store:
        runs = []

        def work(connection: Connection) -> int:
            runs.append(connection.execute(text("SELECT pg_backend_pid()")).scalar())
            if len(runs) < 3:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            connection.execute(text("SELECT 1"))
            return len(runs)

        assert store.transact(work) == 3
        assert len(set(runs)) == 3


def test_transactions_that_exclude_each_other_are_run_again(
    postgresql: Server, tmp_path: Path
) -> None:
    from sqlalchemy import Connection, text

    with Store.open(postgresql.database(), tmp_path / "a") as store:
        store.transact(lambda c: c.execute(text("CREATE TABLE n (id INTEGER, x INTEGER)")))
        store.transact(lambda c: c.execute(text("INSERT INTO n VALUES (1, 0), (2, 0)")))
        barrier = threading.Barrier(2, timeout=20)
        first = [True, True]

        def add(which: int) -> None:
            def work(connection: Connection) -> None:
                for step, row in enumerate((which, 3 - which)):
                    connection.execute(text(f"UPDATE n SET x = x + 1 WHERE id = {row}"))
                    if step == 0 and first[which - 1]:
                        first[which - 1] = False
                        barrier.wait()  # both hold one row and want the other's: a deadlock

            store.transact(work)

        threads = [threading.Thread(target=add, args=(n,)) for n in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        with store.reading() as connection:
            assert connection.execute(text("SELECT x FROM n")).scalars().all() == [2, 2]
