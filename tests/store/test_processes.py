"""Many processes at once, and processes that are killed: nothing accepted is lost or damaged."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from nautile.store import Store
from store.conftest import Place

KILLS = 3  # of each kind in the suite; --slow does 100


@pytest.fixture(scope="module")
def context() -> Any:
    """Processes from a server that has loaded the store: they start in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nautile.store.store", "alembic.command"])
    return context


def contents(n: int) -> dict[str, bytes]:
    """Artifacts that are known from their number; one of them is in every entry."""
    return {"own": random.Random(n).randbytes(3000), "same": b"the same for all" * 50}


def put_all(address: str, artifacts: Path, numbers: range, start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
    with Store.open(address, artifacts) as store:
        for n in numbers:
            entry = store.put(f"k{n}", {"n": n}, contents(n))
            assert entry.record == {"n": n}


def check(store: Store, numbers: range | list[int]) -> None:
    for n in numbers:
        entry = store.get(f"k{n}")
        assert entry is not None
        assert entry.record == {"n": n}
        assert {path: store.read(d) for path, d in entry.artifacts.items()} == contents(n)


def test_processes_that_put_the_same_at_once_agree(place: Place, context: Any) -> None:
    place.open().close()
    start = time.time() + 0.3
    work = (place.address, place.artifacts, range(20), start)
    processes = [context.Process(target=put_all, args=work) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    with place.open() as store:
        check(store, range(20))
        found = store.verify()
        assert (found.problems, found.entries, found.artifacts) == ((), 20, 21)


def put_until_killed(address: str, artifacts: Path, first: int, told: Connection) -> None:
    with Store.open(address, artifacts) as store:
        for n in range(first, first + 10_000):
            store.put(f"k{n}", {"n": n}, contents(n))
            told.send(n)  # accepted: from here on it must be there


def kill_once(place: Place, context: Any, first: int, luck: random.Random) -> list[int]:
    """The numbers that a process put, and had answered, before it was killed."""
    ours, theirs = context.Pipe(duplex=False)
    work = (place.address, place.artifacts, first, theirs)
    process = context.Process(target=put_until_killed, args=work)
    process.start()
    theirs.close()
    accepted = [ours.recv()] if ours.poll(60) else []
    time.sleep(luck.uniform(0, 0.08))
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    try:
        while True:
            accepted.append(ours.recv())
    except EOFError:
        return accepted


def kill(place: Place, context: Any, times: int) -> None:
    luck = random.Random(20)
    accepted: list[int] = []
    for n in range(times):
        accepted += kill_once(place, context, 10_000 * n, luck)
        with place.open() as store:
            check(store, accepted[-20:])
    assert len(accepted) >= times
    with place.open() as store:
        check(store, accepted)
        found = store.verify()
        assert [p for p in found.problems if p.bad] == []
        assert found.entries - len(accepted) in range(times + 1)  # put, and killed before it told
        store.gc(grace=0)
        assert store.verify().problems == ()
        check(store, accepted)


def test_a_process_killed_inside_a_put_loses_nothing_accepted(place: Place, context: Any) -> None:
    kill(place, context, KILLS)


@pytest.mark.slow
def test_a_hundred_killed_processes_lose_nothing_accepted(place: Place, context: Any) -> None:
    kill(place, context, 100)


def open_and_die(address: str, artifacts: Path) -> None:
    Store.open(address, artifacts)


def test_a_process_killed_while_it_makes_the_store(place: Place, context: Any) -> None:
    """Whatever is there afterwards, the next process finds it empty and whole, or makes it."""
    luck = random.Random(4)
    for _ in range(KILLS):
        process = context.Process(target=open_and_die, args=(place.address, place.artifacts))
        process.start()
        time.sleep(luck.uniform(0.0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
    with place.open() as store:
        assert list(store.keys()) == []
        assert [p.kind for p in store.verify().problems if p.kind != "leftover"] == []
        store.put("k1", {"n": 1}, contents(1))
        check(store, [1])
