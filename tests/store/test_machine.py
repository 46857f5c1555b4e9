"""A store against a dictionary, with deaths between the steps of a put, damage, and collections."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy.engine.default import DefaultDialect

from nautile.store import Entry, Store, rows
from store.conftest import Place
from store.postgresql import Server

CONTENTS = [b"", b"kernel one", b"kernel two", bytes(5000)]
KEYS = st.sampled_from(["a", "b", "c", "d"])
FILES = st.dictionaries(st.sampled_from(["k.cu", "k.cubin", "sub/x"]), st.sampled_from(CONTENTS))
STEPS = ("sync", "name", "named", "row", "commit", "committed")


class Death(BaseException):
    """The process is gone: nothing after it is done, no clean-up either."""


@contextmanager
def death_at(step: str, number: int) -> Iterator[None]:
    """Die when that step is taken for the `number`-th time, and do nothing from there on."""
    left, dead = [number], [False]

    def reach(name: str) -> None:
        if dead[0]:
            raise Death
        if name == step:
            left[0] -= 1
            if left[0] < 0:
                dead[0] = True
                raise Death

    def around(before: str, action: Callable[..., Any], after: str = "") -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            reach(before)
            result = action(*arguments, **named)
            reach(after)
            return result

        return act

    unlink = Path.unlink

    def no_more(path: Path, missing_ok: bool = False) -> None:
        if not dead[0]:
            unlink(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", around("sync", os.fsync))
        patch.setattr(os, "replace", around("name", os.replace, "named"))
        patch.setattr(rows, "save", around("row", rows.save))
        commit = around("commit", DefaultDialect.do_commit, "committed")
        patch.setattr(DefaultDialect, "do_commit", commit)
        patch.setattr(Path, "unlink", no_more)
        yield


class Machine(RuleBasedStateMachine):
    """`model` holds what each key must give; `harmed` the digests that a rule damaged."""

    at: Place  # one for all runs: making a store takes longer than all that is done to it

    def __init__(self) -> None:
        super().__init__()
        self.store = self.at.open()
        self.model: dict[str, tuple[int, dict[str, bytes]]] = {}
        self.harmed: set[str] = set()
        self.version = self.flips = 0

    def teardown(self) -> None:
        self.store.gc(older_than=0, max_bytes=0, grace=0)
        assert files_of(self.at) == []
        self.store.close()

    @rule(key=KEYS, files=FILES, replace=st.booleans())
    def put(self, key: str, files: dict[str, bytes], replace: bool) -> None:
        self.version += 1
        entry = self.store.put(key, {"v": self.version}, files, replace=replace)
        if key in self.model and not replace and not self.is_harmed(key):
            assert entry.record["v"] == self.model[key][0]
        if entry.record["v"] == self.version:
            self.accept(key, files, entry)
        else:
            assert entry.record["v"] == self.model[key][0]

    @rule(key=KEYS, files=FILES, step=st.sampled_from(STEPS), number=st.integers(0, 4))
    def die_in_put(self, key: str, files: dict[str, bytes], step: str, number: int) -> None:
        self.version += 1
        try:
            with death_at(step, number):
                self.store.put(key, {"v": self.version}, files, replace=True)
        except Death:
            self.store.engine.dispose()
            self.store = self.at.open()
        entry = self.store.peek(key)
        if entry is not None and entry.record["v"] == self.version:
            self.accept(key, files, entry)

    def accept(self, key: str, files: dict[str, bytes], entry: Entry) -> None:
        self.model[key] = self.version, files
        self.harmed -= set(entry.artifacts.values())

    def is_harmed(self, key: str) -> bool:
        return any(digest_in(self.harmed, content) for content in self.model[key][1].values())

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert self.store.remove(key) == (key in self.model)
        self.model.pop(key, None)

    @rule(which=st.integers(0, 9), how=st.sampled_from(["flip", "lose", "cut"]))
    def harm(self, which: int, how: str) -> None:
        files = files_of(self.at)
        if not files:
            return
        path = files[which % len(files)]
        content = bytearray(path.read_bytes())
        self.harmed.add(path.parent.name + path.name)
        path.unlink()
        if how == "flip" and content:
            self.flips += 1  # never the same bit again: that would make it whole
            bit = self.flips % (len(content) * 8)
            content[bit // 8] ^= 1 << bit % 8
            path.write_bytes(content)
        elif how == "cut":
            path.write_bytes(content[:-1] if content else b"x")

    @rule(repair=st.booleans())
    def verify(self, repair: bool) -> None:
        found = self.store.verify(repair)
        bad = {p.name for p in found.problems if p.bad}
        assert bad <= self.harmed
        if repair:
            self.model = {k: v for k, v in self.model.items() if not self.is_harmed(k)}
            self.harmed.clear()

    @rule(dry=st.booleans())
    def collect(self, dry: bool) -> None:
        self.store.gc(grace=0, dry_run=dry)

    @rule()
    def collect_all(self) -> None:
        self.store.gc(max_bytes=0)
        self.model.clear()
        assert list(self.store.keys()) == []

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = self.at.open()

    @rule()
    def move(self) -> None:
        """Export what is whole, empty the store, and import it."""
        archive = self.at.artifacts / "archive.tar"
        skipped = self.store.export(archive).skipped
        assert all(self.is_harmed(key) for key in skipped)
        self.store.gc(max_bytes=0)
        self.store.import_(archive)
        self.model = {k: v for k, v in self.model.items() if k not in skipped}
        self.harmed.clear()

    @invariant()
    def what_is_there_is_right(self) -> None:
        assert set(self.store.keys()) == set(self.model)
        for key, (version, files) in self.model.items():
            entry = self.store.get(key)
            if entry is None:
                assert self.is_harmed(key)
                continue
            assert entry.record == {"v": version}
            assert set(entry.artifacts) == set(files)
            for path, digest in entry.artifacts.items():
                content = self.store.objects.path(digest).read_bytes()
                assert content == files[path] or digest in self.harmed


def digest_in(harmed: set[str], content: bytes) -> bool:
    from hashlib import blake2b

    return blake2b(content, digest_size=32).hexdigest() in harmed


def files_of(place: Place) -> list[Path]:
    return sorted(p for p in (place.artifacts / "objects").rglob("*") if p.is_file())


def run(place: Place, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("At", (Machine,), {"at": place}), settings=chosen)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: a sync costs nothing there."""
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nautile-store-", dir=quick) as name:
        yield Path(name)


def test_sqlite_behaves_like_a_dictionary(folder: Path) -> None:
    run(Place(str(folder), folder, "sqlite"), 5, 20)


def test_postgresql_behaves_like_a_dictionary(folder: Path, postgresql: Server) -> None:
    run(Place(postgresql.database(), folder, "postgresql"), 2, 15)


@pytest.mark.slow
def test_sqlite_behaves_like_a_dictionary_for_long(folder: Path) -> None:
    run(Place(str(folder), folder, "sqlite"), 400, 50)


@pytest.mark.slow
def test_postgresql_behaves_like_a_dictionary_for_long(folder: Path, postgresql: Server) -> None:
    run(Place(postgresql.database(), folder, "postgresql"), 100, 50)


@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_each_step_leaves_the_old_result_or_the_new_one(folder: Path, step: str) -> None:
    """Every step is reached, and on its two sides the result is the one that it must be."""
    died = True
    for number in range(9):
        with Store.open(folder) as store:
            store.put("k", {"v": 0}, {"old": b"old"}, replace=True)
            try:
                with death_at(step, number):
                    store.put("k", {"v": 1}, {"a": b"first", "b": b"second"}, replace=True)
                died = False
            except Death:
                store.engine.dispose()
        with Store.open(folder) as store:
            entry = store.get("k")
            assert entry is not None
            assert entry.record == {"v": 0 if died and step != "committed" else 1}
            assert all(store.read(d) is not None for d in entry.artifacts.values())
            assert [p for p in store.verify().problems if p.bad] == []
            store.gc(grace=0)
            assert [p.kind for p in store.verify().problems] == []
        if not died:
            break
    assert number > 0  # the step was taken at least once
    assert not died  # and not more often than was tried
