"""Put and get: what is stored comes back, whole or not at all."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine.default import DefaultDialect

from nautile import __version__
from nautile.errors import StoreError
from nautile.store import Store
from store.conftest import Place

FILES = {"kernel.cu": b"__global__ void k() {}", "cubin/sm_90.cubin": bytes(range(256)) * 9}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for tests that leave it empty, or do not care what is in it."""
    with Store.open(tmp_path_factory.mktemp("one") / "store") as store:
        yield store


def digest(content: bytes) -> str:
    return blake2b(content, digest_size=32).hexdigest()


def test_a_result_comes_back_as_it_was_put(place: Place) -> None:
    record = {"program": "f", "chosen": {"seconds": 1e-6, "kernels": [{"tile": {"t": 64}}]}}
    made_of = {"term": "abc", "target": "h200", "budget": 1.5}
    with place.open(clock=lambda: 1000.0) as store:
        put = store.put("key-1", record, FILES, ingredients=made_of)
    with place.open() as store:
        got = store.get("key-1")
    assert got == put
    assert got is not None
    assert (got.record, got.ingredients) == (record, made_of)
    assert got.artifacts == {path: digest(content) for path, content in FILES.items()}
    assert got.sizes == {path: len(content) for path, content in FILES.items()}
    assert (got.created, got.used, got.version) == (1000.0, 1000.0, __version__)


def test_a_key_that_was_not_put_is_a_miss(place: Place) -> None:
    with place.open() as store:
        store.put("one", {})
        assert store.get("two") is None


def test_artifacts_are_files_under_their_digest(place: Place) -> None:
    with place.open() as store:
        store.put("k", {}, FILES)
        for content in FILES.values():
            assert place.object(digest(content)).read_bytes() == content
            assert store.read(digest(content)) == content
        assert store.read("0" * 64) is None
        assert store.read("../../store.json") is None


def test_an_artifact_may_be_a_file(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"x" * 3_000_001)
    with place.open() as store:
        entry = store.put("k", {}, {"big": source, "same": b"x" * 3_000_001})
        assert entry.artifacts["big"] == entry.artifacts["same"] == digest(source.read_bytes())
        assert store.read(entry.artifacts["big"]) == source.read_bytes()


def test_the_first_result_of_a_key_stays(place: Place) -> None:
    with place.open() as store:
        first = store.put("k", {"n": 1}, FILES)
        assert store.put("k", {"n": 2}, {"other": b"2"}) == first
        assert store.get("k") == first
        second = store.put("k", {"n": 2}, {"other": b"2"}, replace=True)
        assert (second.record, list(second.artifacts)) == ({"n": 2}, ["other"])
        assert store.get("k") == second


def test_a_flipped_bit_makes_a_miss_that_the_next_put_heals(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with place.open() as store:
        entry = store.put("k", {"n": 1}, FILES)
        path = place.object(entry.artifacts["kernel.cu"])
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with caplog.at_level(logging.WARNING, "nautile.store"):
            assert store.read(entry.artifacts["kernel.cu"]) is None
        assert "is damaged" in caplog.text
        assert not path.exists()
        (aside,) = (place.artifacts / "quarantine").iterdir()
        assert aside.name.startswith(entry.artifacts["kernel.cu"])
        assert store.stats().quarantined == 1
        assert store.get("k") is None
        assert store.put("k", {"n": 2}, FILES) == entry  # it is whole again
        assert store.read(entry.artifacts["kernel.cu"]) == content


def test_a_flipped_bit_that_nobody_read_is_healed_by_a_put_of_the_same_content(
    place: Place,
) -> None:
    with place.open() as store:
        entry = store.put("k", {}, {"a": b"content"})
        path = place.object(entry.artifacts["a"])
        path.chmod(0o644)
        path.write_bytes(b"cOntent")
        store.put("other", {}, {"a": b"content"})
        assert store.read(entry.artifacts["a"]) == b"content"


@pytest.mark.parametrize("harm", ["remove", "shorten"])
def test_a_lost_artifact_makes_a_miss(place: Place, harm: str) -> None:
    with place.open() as store:
        entry = store.put("k", {}, FILES)
        path = place.object(entry.artifacts["kernel.cu"])
        path.chmod(0o644)
        path.unlink() if harm == "remove" else path.write_bytes(b"_")
        assert store.get("k") is None
        again = store.put("k", {"again": 1}, {"kernel.cu": b"another"})
        assert (again.record, again.artifacts) == ({"again": 1}, {"kernel.cu": digest(b"another")})
        assert store.get("k") == again


@pytest.mark.parametrize("column", ["record", "ingredients", "files", "key"])
def test_a_damaged_row_is_a_miss(place: Place, column: str) -> None:
    from sqlalchemy import text

    with place.open() as store:
        store.put("k", {"seconds": 1.5}, {"a": b"1"}, ingredients={"term": "t"})
        store.put("l", {"seconds": 1.5}, {"a": b"1"}, ingredients={"term": "t"})
        harm = f"UPDATE store_entries SET {column} = 'x' || substr({column}, 2) WHERE key = 'k'"
        if column == "key":
            store.transact(lambda c: c.execute(text("DELETE FROM store_links")))
        store.transact(lambda c: c.execute(text(harm)))
        assert store.get("x" if column == "key" else "k") is None
        assert store.get("l") is not None
        assert store.put("k", {"seconds": 2.5}).record == {"seconds": 2.5}


def test_hits_are_counted_and_survive(place: Place) -> None:
    now = iter(range(100, 200))
    with place.open(clock=lambda: float(next(now))) as store:
        store.put("k", {})
        for _ in range(5):
            store.get("k")
        store.get("nothing")
    with place.open(read_only=True) as store:
        entry = store.get("k")
        assert entry is not None
        assert entry.hits == 5
        assert entry.used > entry.created
        assert store.stats().hits == 5


def test_materialize_writes_all_or_nothing(place: Place, tmp_path: Path) -> None:
    with place.open() as store:
        entry = store.put("k", {}, FILES)
        assert store.materialize(entry, tmp_path / "out")
        written = {
            str(p.relative_to(tmp_path / "out")): p.read_bytes()
            for p in (tmp_path / "out").rglob("*")
            if p.is_file()
        }
        assert written == FILES
        (tmp_path / "out" / "kernel.cu").write_bytes(b"edited by a person")
        assert store.read(entry.artifacts["kernel.cu"]) == FILES["kernel.cu"]
        place.object(entry.artifacts["cubin/sm_90.cubin"]).unlink()
        assert not store.materialize(entry, tmp_path / "none")
        assert [p for p in (tmp_path / "none").rglob("*") if p.is_file()] == []
        assert store.materialize(store.put("empty", {}), tmp_path / "empty")
        assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../up", "a/../b", "a//b", ".", "a/", "a\\b", "c:x", "a\0b", "n" * 256]
    + ["/".join(["d" * 100] * 20), "line\nbreak", "\udcff"],
)
def test_paths_that_climb_out_are_refused(one: Store, path: str) -> None:
    before = sorted(one.objects.root.rglob("*"))
    with pytest.raises(StoreError) as error:
        one.put("refused", {}, {path: b"new content"})
    assert error.value.code == "store-usage"
    assert one.get("refused") is None
    assert sorted(one.objects.root.rglob("*")) == before


def test_a_path_is_not_a_file_and_a_folder(one: Store) -> None:
    with pytest.raises(StoreError, match="the folder of"):
        one.put("k", {}, {"a": b"", "a/b": b""})


@pytest.mark.parametrize("key", ["", "a b", "../x", "k" * 201, "ключ", "a\n", "-x", 7, None])
def test_keys_of_other_letters_are_refused(one: Store, key: Any) -> None:
    for use in (one.get, lambda k: one.put(k, {}), one.remove):
        with pytest.raises(StoreError) as error:
            use(key)
        assert error.value.code == "store-usage"


@pytest.mark.parametrize("record", [{"a": object()}, [1], None, {"a": {1, 2}}, {("a",): 1}])
def test_records_that_are_not_json_are_refused(one: Store, record: Any) -> None:
    with pytest.raises(StoreError) as error:
        one.put("k", record)
    assert error.value.code == "store-usage"


def test_hostile_text_comes_back(place: Place) -> None:
    record = {
        "text": "\0 \ud800 \u2028 ' \" ; DROP TABLE store_entries -- \U0001f600",
        "inf": math.inf,
    }
    with place.open() as store:
        store.put("k", record, {"naïve Ω.cu": b"\0"}, ingredients={"\0": "\0"})
    with place.open() as store:
        entry = store.get("k")
    assert entry is not None
    assert (entry.record, list(entry.artifacts)) == (record, ["naïve Ω.cu"])
    assert entry.ingredients == {"\0": "\0"}


def test_removed_entries_are_gone_and_their_artifacts_stay_for_others(place: Place) -> None:
    with place.open() as store:
        store.put("a", {}, {"x": b"shared"})
        entry = store.put("b", {}, {"y": b"shared"})
        assert store.remove("a")
        assert not store.remove("a")
        assert (store.get("a"), store.get("b")) == (None, entry)
        assert list(store.keys()) == ["b"]
        assert store.read(entry.artifacts["y"]) == b"shared"


def test_stats_tell_what_is_shared_and_what_keeps_results_apart(place: Place) -> None:
    with place.open(clock=lambda: 50.0) as store:
        for n, (term, target) in enumerate([("t", "h100"), ("t", "h200"), ("u", "h200")]):
            made_of = {"term": term, "target": target, "numerics": "real", "names": {"n": n}}
            store.put(f"k{n}", {}, {"same": b"12345", "own": bytes([n])}, ingredients=made_of)
        store.put("k9", {})
        found = store.stats()
    assert (found.entries, found.artifacts, found.terms) == (4, 4, 2)
    assert (found.artifact_bytes, found.shared_bytes) == (8, 10)
    assert found.distinct == {"numerics": 1, "target": 2}
    assert found.apart == {"target": 2}
    assert (found.oldest, found.newest, found.hits) == (50.0, 50.0, 0)
    assert found.versions == {__version__: 4}
    assert found.database_bytes > 0
    assert found.backend == place.backend


def test_a_closed_store_says_so(sqlite: Place) -> None:
    store = sqlite.open()
    store.close()
    store.close()
    for use in (lambda: store.get("k"), lambda: store.put("k", {}), store.stats):
        with pytest.raises(StoreError) as error:
            use()
        assert error.value.code == "store-closed"


def test_a_postgresql_store_needs_a_folder_for_artifacts() -> None:
    with pytest.raises(StoreError, match="shared by all its hosts") as error:
        Store.open("postgresql://u:secret@127.0.0.1:1/x")
    assert error.value.code == "store-usage"
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["mysql://h/d", "sqlite://", "://", "nonsense://x", "sqlite:///"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(StoreError) as error:
        Store.open(url)
    assert error.value.code == "store-usage"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.sampled_from("ab.é_-"), min_size=1, max_size=6).filter(
    lambda n: n not in (".", "..")
)


@settings(max_examples=40, deadline=None)
@given(
    record=st.dictionaries(st.text(), JSON, max_size=4),
    files=st.dictionaries(NAMES, st.binary(max_size=40), max_size=4),
)
def test_any_json_and_any_bytes_come_back(
    one: Store, record: dict[str, Any], files: dict[str, bytes]
) -> None:
    one.put("k", record, files, replace=True)
    entry = one.get("k")
    assert entry is not None
    assert entry.record == record
    assert {p: one.read(d) for p, d in entry.artifacts.items()} == files


def test_all_is_synced_before_the_row_is_committed(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that survives a loss of power: content, its name, the name's folder, the row."""
    steps: list[str] = []
    sync, name, commit = os.fsync, os.replace, DefaultDialect.do_commit

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        steps.append(f"sync {path.name if path.is_dir() else 'file'}")
        sync(handle)

    def named(old: Path, new: Path) -> None:
        steps.append("name")
        name(old, new)

    def committed(dialect: DefaultDialect, connection: Any) -> None:
        steps.append("commit")
        commit(dialect, connection)

    with sqlite.open() as store:
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", named)
        monkeypatch.setattr(DefaultDialect, "do_commit", committed)
        folder = store.put("k", {}, {"a": b"content"}).artifacts["a"][:2]
        assert steps == ["sync file", "sync objects", "name", f"sync {folder}", "commit"]
        steps.clear()
        store.put("l", {}, {"a": b"content"})  # another may have written it, and not yet synced
        assert steps == [f"sync {folder}", "commit"]


def test_the_database_is_durable_at_each_commit(sqlite: Place) -> None:
    with sqlite.open() as store, store.reading() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    full = 2
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }
