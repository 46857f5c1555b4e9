"""The queue beside a model of it, over random histories (SQLite; the races are in test_queue)."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nautile.service import jobs, runs
from nautile.service.runs import Claim
from nautile.store import Store

from .queueing import ask, expire, hasten, row, token

ATTEMPTS = 2
ERROR = {"code": "worker-died", "message": "m"}


@dataclass
class Run:
    """What the model knows of a run."""

    key: str
    state: str = "queued"
    attempts: int = 0
    wanting: set[str] = field(default_factory=set)


class Queue(RuleBasedStateMachine):
    """Submit, claim, end, die, cancel and requeue in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="nautile-queue-"))
        self.store = Store.open(self.folder / "store")
        self.database = self.store.database
        self.owners = [token(self.database, name) for name in ("a", "b")]
        self.runs: dict[int, Run] = {}
        self.jobs: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.held: list[Claim] = []
        self.lost: list[Claim] = []

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(owner=st.integers(0, 1), key=st.sampled_from("xyz"), priority=st.integers(0, 2))
    def submit(self, owner: int, key: str, priority: int) -> None:
        job = ask(self.database, self.owners[owner], key, priority=priority)
        in_flight = [n for n, r in self.runs.items() if r.key == key and _alive(r)]
        assert job.run is not None
        assert in_flight in ([], [job.run])
        if not in_flight:
            assert job.run not in self.runs
            self.runs[job.run] = Run(key)
        self.runs[job.run].wanting.add(job.id)
        self.jobs[job.id] = job.run

    @rule()
    def claim(self) -> None:
        hasten(self.database)
        found = runs.claim(self.database, "w", seconds=3600, attempts=ATTEMPTS)
        waiting = [n for n, r in self.runs.items() if r.state == "queued"]
        assert (found is None) == (not waiting)
        if found is not None:
            run = self.runs[found.number]
            assert run.state == "queued"
            run.state, run.attempts = "running", run.attempts + 1
            assert found.attempt == run.attempts
            self.held.append(found)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), state=st.sampled_from(("done", "failed")))
    def end(self, data: st.DataObject, state: str) -> None:
        held = self._take(data)
        error = ERROR if state == "failed" else None
        assert runs.end(self.database, held, state, error=error)  # type: ignore[arg-type]
        self.runs[held.number].state = state

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        held = self._take(data)
        assert runs.retry(self.database, held, ERROR, attempts=ATTEMPTS)
        run = self.runs[held.number]
        if not run.wanting:
            run.state = "cancelled"
        else:
            run.state = "dead" if run.attempts >= ATTEMPTS else "queued"

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def hand_back(self, data: st.DataObject) -> None:
        held = self._take(data)
        assert runs.hand_back(self.database, held)
        self._given_up(held)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """The holder is gone: the next one who looks for work puts the run back."""
        held = self._take(data)
        expire(self.database, held.number)
        self.lost.append(held)
        run = self.runs[held.number]
        if not run.wanting:
            run.state = "cancelled"
        else:
            run.state = "dead" if run.attempts >= ATTEMPTS else "queued"
        before = {n for n, r in self.runs.items() if r.state == "running"}
        got = runs.claim(self.database, "w", seconds=3600, attempts=ATTEMPTS)
        if got is not None:
            assert got.number not in before
            taken = self.runs[got.number]
            taken.state, taken.attempts = "running", taken.attempts + 1
            self.held.append(got)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        wanted = "held" if self.runs[held.number].wanting else "unwanted"
        assert runs.wanted(self.database, held) == wanted
        assert runs.renew(self.database, held, seconds=3600) == wanted

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """What a worker does when it was told `unwanted`, true by now or not."""
        held = self._take(data)
        assert runs.cancelled(self.database, held)
        self._given_up(held)

    def _given_up(self, held: Claim) -> None:
        run = self.runs[held.number]
        if run.wanting:
            run.state, run.attempts = "queued", run.attempts - 1
        else:
            run.state = "cancelled"

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """A holder that was given up for dead changes nothing."""
        lost = data.draw(st.sampled_from(self.lost))
        assert runs.renew(self.database, lost, seconds=1) == "lost"
        assert not runs.end(self.database, lost, "failed", error=ERROR)
        assert not runs.retry(self.database, lost, ERROR, attempts=ATTEMPTS)
        assert not runs.hand_back(self.database, lost)
        assert not runs.cancelled(self.database, lost)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.jobs)))
        run = self.runs[self.jobs[id]]
        found = jobs.cancel(self.database, id, None)
        assert found is not None
        if id in run.wanting and _alive(run):
            assert found.state == "cancelled"
            self.cancelled.add(id)
            run.wanting.discard(id)
            if not run.wanting and run.state == "queued":
                run.state = "cancelled"

    @rule()
    def requeue(self) -> None:
        count = runs.requeue(self.database)
        revived = [n for n, r in self.runs.items() if r.state == "dead" and self._may_live(n)]
        assert count == len(revived)
        for number in revived:
            self.runs[number].state, self.runs[number].attempts = "queued", 0

    @invariant()
    def states_are_as_expected(self) -> None:
        for number, run in self.runs.items():
            found = row(self.database, number)
            assert (found["state"], found["attempts"]) == (run.state, run.attempts)
            assert (found["lease"] is not None) == (run.state == "running")
        alive = [r.key for r in self.runs.values() if _alive(r)]
        assert len(alive) == len(set(alive))

    @invariant()
    def jobs_are_told_all_events_in_order(self) -> None:
        for id, number in self.jobs.items():
            found = jobs.follow(self.database, id, 0)
            assert found is not None
            job, told = found
            gone = id in self.cancelled
            assert job.state == ("cancelled" if gone else self.runs[number].state)
            assert [e.number for e in told] == list(range(1, len(told) + 1))
            assert told[0].kind == "queued"
            if job.final:
                assert told[-1].kind == job.state
                assert [e.kind for e in told].count("done") <= 1

    def _take(self, data: st.DataObject) -> Claim:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        return held

    def _may_live(self, number: int) -> bool:
        """Of dead runs of one key the latest, and none whose key is in flight."""
        same = {n: r for n, r in self.runs.items() if r.key == self.runs[number].key}
        latest = max(n for n, r in same.items() if r.state == "dead")
        return number == latest and not any(_alive(r) for r in same.values())


def _alive(run: Run) -> bool:
    return run.state in ("queued", "running")


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
