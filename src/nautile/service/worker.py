"""The process that executes runs, one at a time: `nautile worker`.

It claims a run, executes it in a child that it can kill, and holds its lease meanwhile. What comes
of it is in the store before the run is done: a worker that dies in between costs time and nothing
else. On SIGTERM it takes no new run, and ends the one it has within `drain_seconds` or hands it
back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nautile.errors import NautileError
from nautile.executor import Pool
from nautile.executor.place import Place
from nautile.store import Store
from nautile.task import Outcome

from . import presence, runs
from .explaining import Making
from .logs import event
from .metrics import EXECUTED
from .results import finite, saved, task_of
from .runs import Claim
from .settings import Settings

if TYPE_CHECKING:
    from nautile.executor.ray_cluster import Cluster

__all__ = ["Worker"]

_TICK = 0.2  # seconds between looks at a running child
_LOOK = 0.5  # seconds between questions whether a run is still wanted
_SIGN = 10.0  # seconds between signs of life
_HOUSEKEEPING = 3_600.0
_PAUSE = 2.0  # seconds after the database or the disk refused
_PASSING = ("worker-died", "saturation", "cancelled")  # ends that say nothing of the task

Way = Literal["ended", "unwanted", "lost", "stopped"]


@dataclass(slots=True)
class Worker:
    """A worker on a store; `stop` makes it end. Where `parent` is given, it ends with that one."""

    store: Store
    settings: Settings
    stop: threading.Event = field(default_factory=threading.Event)
    parent: int | None = None
    id: str = field(default_factory=presence.name)
    _stages: deque[str] = field(default_factory=deque)
    _seen: float = 0.0
    _kept: float = 0.0
    _looked: float = 0.0
    _stopped: float = 0.0
    _cleaned: float = 0.0

    def run(self) -> None:
        """Execute runs until stopped."""
        presence.came(self.store.database, self.id)
        event("worker started", worker=self.id)
        with self._executor() as pool:
            while not self._stopping():
                try:
                    self._sign()
                    held = self._claim()
                    if held is None:
                        self.stop.wait(self.settings.claim_seconds)
                    else:
                        self._execute(pool, held)
                except NautileError as error:
                    event("the store refuses", logging.ERROR, code=error.code, reason=error.message)
                    self.stop.wait(_PAUSE)
        presence.went(self.store.database, self.id)
        event("worker ended", worker=self.id)

    def _executor(self) -> Pool | Cluster:
        """One task at a time: beside this process, or somewhere on a Ray cluster."""
        s = self.settings
        if s.executor == "pool":
            return Pool(1, progress=lambda _, stage: self._stages.append(stage))
        found = Place(s.executor, s.ray_address or None, jobs=1).executor()
        assert not isinstance(found, Pool)
        return found

    def _claim(self) -> Claim | None:
        s = self.settings
        return runs.claim(
            self.store.database, self.id, seconds=s.lease_seconds, attempts=s.attempts
        )

    def _stopping(self) -> bool:
        if self.parent is not None and os.getppid() != self.parent:
            self.stop.set()
        return self.stop.is_set()

    def _sign(self) -> None:
        moment = time.monotonic()
        if moment - self._seen > _SIGN:
            self._seen = moment
            presence.seen(self.store.database, self.id)
        if moment - self._cleaned > _HOUSEKEEPING:
            self._cleaned = moment
            runs.prune(self.store.database, self.settings.keep_days * 86_400)

    # ---- one run -------------------------------------------------------------------------------

    def _execute(self, pool: Pool | Cluster, held: Claim) -> None:
        began = time.monotonic()
        self._stages.clear()
        self._kept = self._looked = began
        facts: dict[str, Any] = {"run": held.number, "kind": held.kind, "attempt": held.attempt}
        event("run started", worker=self.id, **facts)
        end = self._explain(held) if held.kind == "explain" else self._optimize(pool, held)
        seconds = time.monotonic() - began
        EXECUTED.labels(held.kind, end).observe(seconds)
        event("run ended", worker=self.id, end=end, seconds=round(seconds, 3), **facts)

    def _optimize(self, pool: Pool | Cluster, held: Claim) -> str:
        if self.store.peek(held.key) is not None:
            runs.end(self.store.database, held, "done", told={"from": "store"})
            return "known"
        ticket = pool.submit(task_of(held.task))
        while True:
            done = pool.next(timeout=_TICK)
            if done is not None:
                return self._settle(held, done.outcome)
            way = self._keep(held)
            if way != "held":
                pool.cancel(ticket)
                for _ in pool.results():
                    pass
                return self._leave(held, way)

    def _settle(self, held: Claim, outcome: Outcome) -> str:
        """Write down what came of a task."""
        if outcome.certified and outcome.key == held.key:
            return self._store(held, outcome)
        error = _error(outcome, held)
        if error["code"] in _PASSING or error["code"] == "version":
            self._again(held, error)
            return "retried"
        record = finite(outcome.record)
        runs.end(self.store.database, held, "failed", error=error, record=record)
        return "failed"

    def _store(self, held: Claim, outcome: Outcome) -> str:
        try:
            saved(self.store, outcome, held.number)
        except NautileError as error:
            event("not stored", logging.ERROR, code=error.code, reason=error.message)
            self._again(held, error.as_dict())
            return "retried"
        self._done(held)
        return "done"

    def _done(self, held: Claim) -> None:
        stages = [{"stage": stage} for stage in self._taken()]
        if stages:
            runs.renew(self.store.database, held, seconds=self.settings.lease_seconds, told=stages)
        runs.end(self.store.database, held, "done")

    def _again(self, held: Claim, error: Mapping[str, Any]) -> None:
        runs.retry(self.store.database, held, error, attempts=self.settings.attempts)

    def _explain(self, held: Claim) -> str:
        if self.store.peek(held.key) is not None:
            runs.end(self.store.database, held, "done", told={"from": "store"})
            return "known"
        with Making(task_of(held.task), self.settings) as making:
            while not making.wait(_TICK):
                way = self._keep(held)
                if way != "held":
                    making.kill()
                    return self._leave(held, way)
            error = making.error()
            if error is not None:
                runs.end(self.store.database, held, "failed", error=error)
                return "failed"
            self.store.put(held.key, making.record(), making.files())
            self._done(held)
            return "done"

    # ---- holding a run -------------------------------------------------------------------------

    def _keep(self, held: Claim) -> Literal["held", "unwanted", "lost", "stopped"]:
        """Hold the lease, and look whether to go on."""
        moment, seconds = time.monotonic(), self.settings.lease_seconds
        if self._out_of_time(moment):
            return "stopped"
        try:
            self._sign()
            if self._stages or moment - self._kept > seconds / 3:
                stages = [{"stage": stage} for stage in self._taken()]
                found = runs.renew(self.store.database, held, seconds=seconds, told=stages)
                self._kept = moment
                return found
            if moment - self._looked > _LOOK:
                self._looked = moment
                return runs.wanted(self.store.database, held)
        except NautileError as error:
            event("lease not renewed", logging.WARNING, code=error.code, reason=error.message)
            return "lost" if time.monotonic() - self._kept > seconds else "held"
        return "held"

    def _out_of_time(self, moment: float) -> bool:
        if not self._stopping():
            return False
        self._stopped = self._stopped or moment
        orphan = self.parent is not None and os.getppid() != self.parent
        return orphan or moment - self._stopped > self.settings.drain_seconds

    def _leave(self, held: Claim, way: str) -> str:
        """Give up a run whose child is ended."""
        if way == "unwanted":
            runs.cancelled(self.store.database, held)
            return "cancelled"
        if way == "stopped":
            runs.hand_back(self.store.database, held)
            return "handed back"
        return "lost"

    def _taken(self) -> list[str]:
        return [self._stages.popleft() for _ in range(len(self._stages))]


def _error(outcome: Outcome, held: Claim) -> dict[str, Any]:
    """Why an outcome is no result."""
    if outcome.record.get("error"):
        return dict(outcome.record["error"])
    if not outcome.certified:
        message = "the chosen program failed a check against its source; the record tells which"
        return {"code": "certificate", "message": message}
    message = f"the worker is of another release than the service (its key is {outcome.key})"
    return {"code": "version", "message": message}
