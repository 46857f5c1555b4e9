"""Many processes at once, and processes that are killed: nothing accepted is lost or damaged."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from nautile.store import Store
from store import work
from store.conftest import Place, Processes

KILLS = 3  # of each kind in the suite; --slow does 100


def check(store: Store, numbers: range | list[int]) -> None:
    for n in numbers:
        entry = store.get(f"k{n}")
        assert entry is not None
        assert entry.record == {"n": n}
        assert {path: store.read(d) for path, d in entry.artifacts.items()} == work.contents(n)


def test_processes_that_put_the_same_at_once_agree(place: Place, processes: Processes) -> None:
    place.open().close()
    start = time.time() + 0.3
    given = (place.address, place.artifacts, range(20), start)
    writers = [processes.start(work.put_all, *given) for _ in range(4)]
    for process in writers:
        process.join(120)
        assert process.exitcode == 0
    with place.open() as store:
        check(store, range(20))
        found = store.verify()
        assert (found.problems, found.entries, found.artifacts) == ((), 20, 21)


def kill_once(place: Place, processes: Processes, first: int, luck: random.Random) -> list[int]:
    """The numbers that a process put, and had answered, before it was killed."""
    ours, theirs = processes.pipe()
    process = processes.start(work.put_until_killed, place.address, place.artifacts, first, theirs)
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


def kill(place: Place, processes: Processes, times: int) -> None:
    luck = random.Random(20)
    accepted: list[int] = []
    for n in range(times):
        accepted += kill_once(place, processes, 10_000 * n, luck)
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


def test_a_process_killed_inside_a_put_loses_nothing_accepted(
    place: Place, processes: Processes
) -> None:
    kill(place, processes, KILLS)


@pytest.mark.slow
def test_a_hundred_killed_processes_lose_nothing_accepted(
    place: Place, processes: Processes
) -> None:
    kill(place, processes, 100)


def test_a_process_killed_while_it_makes_the_store(place: Place, processes: Processes) -> None:
    """Whatever is there afterwards, the next process finds it empty and whole, or makes it."""
    luck = random.Random(4)
    for _ in range(KILLS):
        process = processes.start(work.open_and_end, place.address, place.artifacts)
        time.sleep(luck.uniform(0.0, 0.2))
        process.kill()  # it may have ended by itself
        process.join(60)
    with place.open() as store:
        assert list(store.keys()) == []
        assert [p.kind for p in store.verify().problems if p.kind != "leftover"] == []
        store.put("k1", {"n": 1}, work.contents(1))
        check(store, [1])
