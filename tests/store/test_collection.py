"""`gc` removes what it is told to, the least recently used first, and nothing that is needed."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from nautile.errors import StoreError
from nautile.store import Store, collection
from store.conftest import Place


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def files(store: Store) -> set[str]:
    """The digests of all artifacts on disk, found without the store's code."""
    root = store.objects.root / "objects"
    return {p.parent.name + p.name for p in root.rglob("*") if p.is_file()}


def test_unused_entries_go_and_used_ones_stay(place: Place) -> None:
    clock = Clock()
    with place.open(clock=clock) as store:
        store.put("old", {}, {"a": b"old"})
        used = store.put("used", {}, {"a": b"used"})
        clock.now += 1000
        store.get("used")
        new = store.put("new", {}, {"a": b"new"})
        found = store.gc(older_than=500)
        assert list(store.keys()) == ["new", "used"]
        assert files(store) == {used.artifacts["a"], new.artifacts["a"]}
    assert (found.entries, found.artifacts, found.remaining_entries) == (1, 1, 2)


def test_an_artifact_goes_with_the_last_entry_that_has_it(place: Place) -> None:
    with place.open() as store:
        one = store.put("one", {}, {"a": b"shared", "b": b"own"})
        store.put("two", {}, {"c": b"shared"})
        store.remove("one")
        store.gc()
        assert files(store) == {one.artifacts["a"]}
        store.remove("two")
        assert store.gc().artifacts == 1
        assert files(store) == set()


def test_what_is_used_after_it_was_chosen_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, removed = Clock(), collection._removed

    def used_meanwhile(connection: Connection, batch: Any) -> Any:
        touch = text("UPDATE store_entries SET used = used + 1000 WHERE key = 'b'")
        connection.execute(touch)
        return removed(connection, batch)

    with place.open(clock=clock) as store:
        for key in ("a", "b"):
            store.put(key, {})
        clock.now += 100
        monkeypatch.setattr(collection, "_removed", used_meanwhile)
        assert store.gc(older_than=50).entries == 1
        assert list(store.keys()) == ["b"]


def test_what_is_kept_stays(place: Place) -> None:
    with place.open() as store:
        for key in ("a", "b", "c"):
            store.put(key, {}, {"x": key.encode()})
        found = store.gc(0.0, 0, keep=["b"], current={"code": "new"})
        assert (found.entries, list(store.keys())) == (2, ["b"])


def test_results_of_other_releases_go(place: Place) -> None:
    with place.open() as store:
        store.put("now", {}, ingredients={"code": "2", "target": "h200"})
        store.put("before", {}, ingredients={"code": "1", "target": "h200"})
        store.put("unknown", {})
        assert store.gc(current={"code": "2"}).entries == 2
        assert list(store.keys()) == ["now"]


def test_files_that_no_row_names_go_after_their_grace(place: Place) -> None:
    clock = Clock()
    with place.open(clock=clock) as store:
        blob = store.objects.add(b"of a process that died before its row was written")
        (store.objects.temporary / "77-half").write_bytes(b"half")
        entry = store.put("k", {}, {"a": b"needed"})
        assert (store.gc(grace=3600).orphans, len(files(store))) == (0, 2)
        clock.now = time.time() + 3601  # files carry the system's time
        found = store.gc(grace=3600)
        assert (found.orphans, found.leftovers) == (1, 1)
        assert files(store) == {entry.artifacts["a"]}
        assert store.read(blob.digest) is None
        assert list(store.objects.temporary.iterdir()) == []


def test_quarantined_files_go_when_they_are_old(place: Place) -> None:
    clock = Clock()
    with place.open(clock=clock) as store:
        entry = store.put("k", {}, {"a": b"1"})
        store.objects.set_aside(entry.artifacts["a"])
        assert store.gc(older_than=3600).quarantined == 0
        clock.now = time.time() + 10
        assert store.gc(older_than=5).quarantined == 1
        assert store.stats().quarantined == 0


@pytest.mark.parametrize(
    "policy", [{"older_than": -1}, {"max_bytes": -5}, {"older_than": float("nan")}]
)
def test_policies_without_sense_are_refused(sqlite: Place, policy: dict[str, Any]) -> None:
    with sqlite.open() as store, pytest.raises(StoreError) as error:
        store.gc(**policy)
    assert error.value.code == "store-usage"


@dataclass
class Model:
    """Entries as sets of contents, and the policy written down in the most direct way."""

    used: dict[str, int] = field(default_factory=dict)
    contents: dict[str, frozenset[bytes]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def total(self, keys: set[str]) -> int:
        contents = {c for key in keys for c in self.contents[key]}
        return sum(self.sizes[key] for key in keys) + sum(map(len, contents))

    def left(self, before: float | None, most: int | None, keep: set[str]) -> set[str]:
        keys = {k for k in self.used if before is None or self.used[k] >= before or k in keep}
        order = sorted(keys - keep, key=lambda k: (self.used[k], k))
        while most is not None and self.total(keys) > most and order:
            keys.remove(order.pop(0))
        return keys


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gc")


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sets(st.integers(0, 5), max_size=3)),
        min_size=1,
        max_size=9,
    ),
    st.none() | st.integers(0, 6),
    st.none() | st.integers(0, 1200),
    st.sets(st.integers(0, 8), max_size=3),
)
def test_what_remains_is_what_the_policy_says(
    many: Path,
    rows: list[tuple[int, set[int]]],
    older_than: int | None,
    most: int | None,
    kept: set[int],
) -> None:
    clock, model = Clock(), Model()
    keep = {f"k{n}" for n in kept}
    with Store.open(many / "store", clock=clock) as store:
        for key in list(store.keys()):
            store.remove(key)
        for n, (used, contents) in enumerate(rows):
            clock.now, key = 1000.0 + used, f"k{n}"
            artifacts = {f"f{c}": bytes([c]) * (c * 40) for c in contents}
            model.used[key] = 1000 + used
            model.contents[key] = frozenset(artifacts.values())
            model.sizes[key] = store.put(key, {"n": n}, artifacts).size
        clock.now = 1006.0
        before = None if older_than is None else 1006.0 - older_than
        expected = model.left(before, most, keep)
        dry = store.gc(older_than, most, keep=keep, dry_run=True)
        assert set(store.keys()) == set(model.used)
        found = store.gc(older_than, most, keep=keep)
        assert set(store.keys()) == expected
        assert found.remaining_bytes == model.total(expected)
        assert (dry.entries, dry.artifacts, dry.remaining_bytes) == (
            found.entries,
            found.artifacts,
            found.remaining_bytes,
        )
        assert all(store.get(key) is not None for key in expected)


def test_collections_and_writers_at_once_lose_nothing(place: Place) -> None:
    """Writers put entries that share contents while others collect without any grace."""
    with place.open() as store:
        stop = threading.Event()
        failures: list[str] = []

        def collect() -> None:
            with place.open() as other:
                while not stop.is_set():
                    other.gc(grace=0)

        def write(writer: int) -> None:
            with place.open() as other:
                for n in range(15):
                    key, content = f"w{writer}-{n}", f"content {n}".encode()
                    other.put(key, {"n": n}, {"a": content, "b": os.urandom(10)})
                    entry = other.get(key)
                    if entry is None or other.read(entry.artifacts["a"]) != content:
                        failures.append(key)
                    if n % 3 == 0:
                        other.remove(key)

        collector = threading.Thread(target=collect)
        writers = [threading.Thread(target=write, args=(w,)) for w in range(3)]
        for thread in (collector, *writers):
            thread.start()
        for thread in writers:
            thread.join(60)
        stop.set()
        collector.join(60)
        assert failures == []
        assert len(list(store.keys())) == 30
        assert [p for p in store.verify().problems if p.bad] == []
