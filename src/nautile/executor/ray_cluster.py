"""An executor over a Ray cluster: the same tasks, on the processors of many machines.

```
waiting --> an idle optimizer --> outcome --> (measure: a measurer) --> done
   ^                |  lost with its node, or silent beyond its limit
   +----------------+  up to `attempts` times
```

There is one optimizer for each processor of the cluster while there is work for it; nodes may join
and leave, and do nothing where they have another release. A task whose optimizer is lost goes back
to the front of the queue: outcomes are the same wherever a task runs, and the store keeps the
first. Ray moves the bytes and finds the dead; what is wanted and what is done is known here alone.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nautile.errors import ExecutionError
from nautile.executor.front import Front
from nautile.executor.machine import machine
from nautile.executor.ray_actors import Measurer, Optimizer, decoded, encoded
from nautile.provenance import code_version
from nautile.task.model import Outcome, Task
from nautile.task.run import failed

__all__ = ["Cluster"]

_TICK = 0.1  # seconds that the loop waits for outcomes at most
_LOOK = 1.0  # seconds between looks at what the cluster has
_GRACE = 60.0  # seconds beyond a task's limit after which its optimizer counts as lost
_MEASURE = 600.0  # seconds that measuring one bundle may take
ATTEMPTS = (
    20  # a task that crashes costs its own process: who loses an optimizer is hardly at fault
)
_FALSE_STARTS = 8  # actors in a row that are lost before they have started


@dataclass(slots=True)
class _Job:
    ticket: int
    task: Task
    tries: int = 0
    outcome: Outcome | None = None  # once optimized: what is left is to measure it
    seconds: float = 0.0  # what optimizing took


@dataclass(slots=True)
class _Actor:
    """An actor, what was asked of it last and since when, and the job that it was asked for."""

    handle: Any
    gpu: bool
    reference: Any
    job: _Job | None = None
    since: float = field(default_factory=time.monotonic)


class Cluster(Front):
    """An executor over Ray: joins the cluster at `address`, or starts one on this machine. `jobs`
    limits the optimizers (one a processor of the cluster, where left out). A task is given to at
    most `attempts` optimizers. With `measure`, bundles with machine code are timed on the cluster's
    GPUs, one actor a GPU, and the record gets a field "measurement". Needs the extra `ray`."""

    def __init__(
        self,
        address: str | None = None,
        *,
        jobs: int | None = None,
        attempts: int = ATTEMPTS,
        measure: bool = False,
    ) -> None:
        super().__init__()
        self._ray, self._owner = _joined(address)
        self._limit, self._attempts, self._measure = jobs, attempts, measure
        self._waiting: deque[_Job] = deque()
        self._to_measure: deque[_Job] = deque()
        self._false_starts = 0
        self._actors: list[_Actor] = []
        self._looked, self._cpus, self._gpus = -math.inf, 1, 0
        self._thread = threading.Thread(target=self._serve, name="nautile-cluster", daemon=True)
        self._thread.start()

    @property
    def jobs(self) -> int:
        """How many optimizers there may be now."""
        return min(self._limit or self._cpus, self._cpus)

    # ---- what callers do -----------------------------------------------------------------------

    def cancel(self, ticket: int, *, running: bool = True) -> bool:
        """Give a task up, running or not, or only one that waits; False where there is no such
        task any more."""
        with self._changed:
            queued = [j for queue in (self._waiting, self._to_measure) for j in queue]
            held = [a.job for a in self._actors if a.job and running]
            if not any(j.ticket == ticket for j in queued + held):
                return False
            self._unwanted.add(ticket)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End what runs, every actor, and the cluster too where it was started here."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._owner and self._ray.is_initialized():
            self._ray.shutdown()

    def _accept(self, ticket: int, task: Task) -> None:
        self._waiting.append(_Job(ticket, task))

    def _wake(self) -> None:
        """Nothing: the thread waits for the lock's condition, and never long for Ray."""

    # ---- the cluster's thread ------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._look()
                self._drop_unwanted()
                self._grow()
                self._feed()
                self._collect()
        except self._ray.exceptions.RayError as error:
            self._closing = True
            self._call_back()
            self._fail_waiting(f"the cluster is lost: {error}", "worker-died")
        finally:
            self._end()

    def _end(self) -> None:
        self._call_back()
        self._fail_waiting("the cluster was closed", "cancelled")
        for actor in self._actors:
            self._kill(actor)
        self._closing = True

    def _call_back(self) -> None:
        """What actors hold waits again."""
        with self._changed:
            for actor in self._actors:
                if actor.job is not None:
                    self._waiting.append(actor.job)
                    actor.job = None

    def _fail_waiting(self, message: str, code: str) -> None:
        with self._changed:
            for queue in (self._waiting, self._to_measure):
                while queue:
                    job = queue.popleft()
                    self._hand_out(job, _outcome(job, message, code))

    def _look(self) -> None:
        """What the cluster has, once a second."""
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        found = self._ray.cluster_resources()
        self._cpus, self._gpus = max(1, int(found.get("CPU", 1))), int(found.get("GPU", 0))

    def _drop_unwanted(self) -> None:
        with self._changed:
            for queue in (self._waiting, self._to_measure):
                for unwanted in [j for j in queue if j.ticket in self._unwanted]:
                    queue.remove(unwanted)
                    self._hand_out(unwanted, _outcome(unwanted, "it was cancelled", "cancelled"))
        for actor in [a for a in self._actors if a.job and a.job.ticket in self._unwanted]:
            job, actor.job = actor.job, None
            self._drop(actor)
            assert job is not None
            with self._changed:
                self._hand_out(job, _outcome(job, "it was cancelled", "cancelled"))

    def _grow(self) -> None:
        """As many actors as there is work, up to what the cluster has."""
        for gpu, queue, most in (
            (False, self._waiting, self.jobs),
            (True, self._to_measure, self._gpus),
        ):
            own = [a for a in self._actors if a.gpu == gpu]
            wanted = min(most, len(queue) + sum(a.job is not None for a in own))
            for _ in range(wanted - len(own)):
                self._actors.append(self._start(gpu))

    def _start(self, gpu: bool) -> _Actor:
        options: dict[str, Any] = {"max_restarts": 0, "scheduling_strategy": "SPREAD"}
        options |= {"num_cpus": 0, "num_gpus": 1} if gpu else {"num_cpus": 1}
        made = self._ray.remote(**options)(Measurer if gpu else Optimizer)
        handle = made.remote()
        return _Actor(handle, gpu, handle.ready.remote())

    def _feed(self) -> None:
        for actor in self._actors:
            if actor.reference is None:
                with self._changed:
                    queue = self._to_measure if actor.gpu else self._waiting
                    job = queue.popleft() if queue else None
                if job is not None:
                    self._give(actor, job)

    def _give(self, actor: _Actor, job: _Job) -> None:
        actor.job, actor.since = job, time.monotonic()
        job.tries += 1
        if job.outcome is None:
            actor.reference = actor.handle.run.remote(encoded(job.task))
        else:
            files = dict(job.outcome.artifacts)
            actor.reference = actor.handle.measure.remote(files, _MEASURE)

    def _collect(self) -> None:
        """Wait a moment for what was asked; count the silent among the lost."""
        asked = {a.reference: a for a in self._actors if a.reference is not None}
        if not asked:
            with self._changed:
                self._changed.wait(_TICK)
            return
        ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_TICK)
        for reference in ready:
            self._take(asked[reference])
        for actor in [a for a in self._actors if a.job and _silent(a)]:
            self._lost(actor)

    def _take(self, actor: _Actor) -> None:
        reference, actor.reference = actor.reference, None
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._lost(actor, str(error))
            return
        job, actor.job = actor.job, None
        if job is None and found != code_version():
            self._drop(actor)
            self._false_start("a node has another release of Nautile than this machine")
            return
        self._false_starts = 0
        if job is not None and job.outcome is None:
            outcome, job.seconds = found
            self._optimized(job, decoded(outcome))
        elif job is not None:
            self._measured(job, *found)

    def _optimized(self, job: _Job, outcome: Outcome) -> None:
        with self._changed:
            if not (self._measure and outcome.certified and _has_code(outcome)):
                self._hand_out(job, outcome)
            elif self._gpus:
                self._to_measure.append(_Job(job.ticket, job.task, outcome=outcome))
            else:
                error = {"code": "no-gpu", "message": "no node of the cluster has a GPU"}
                self._hand_out(job, _with(outcome, {"error": error}, {}))

    def _measured(self, job: _Job, report: dict[str, Any], files: dict[str, bytes]) -> None:
        assert job.outcome is not None
        with self._changed:
            self._hand_out(job, _with(job.outcome, report, files))

    def _lost(self, actor: _Actor, said: str = "") -> None:
        """An actor is gone: its job is tried again, or given up."""
        job, actor.job = actor.job, None
        self._drop(actor)
        if job is None:
            self._false_start(said)
            return
        with self._changed:
            if job.tries < self._attempts:
                (self._waiting if job.outcome is None else self._to_measure).appendleft(job)
                return
            message = f"its worker was lost {job.tries} times"
            if job.outcome is None:
                self._hand_out(job, _outcome(job, message, "worker-died"))
            else:
                error = {"code": "worker-died", "message": message}
                self._hand_out(job, _with(job.outcome, {"error": error}, {}))

    def _false_start(self, said: str) -> None:
        """Where actors keep ending before they have started, what waits cannot be done."""
        self._false_starts += 1
        if self._false_starts >= _FALSE_STARTS:
            self._fail_waiting(f"workers do not start: {_last_line(said)}", "worker-died")
            self._false_starts = 0  # tasks that come later try again

    def _drop(self, actor: _Actor) -> None:
        self._kill(actor)
        self._actors.remove(actor)

    def _kill(self, actor: _Actor) -> None:
        try:
            self._ray.kill(actor.handle)
        except Exception:  # it is gone, or the cluster is: there is nothing left to end
            return

    def _hand_out(self, job: _Job, outcome: Outcome) -> None:
        """Hand out an outcome; called with the lock held."""
        self._finish(job.ticket, job.task, outcome, job.seconds)


def _joined(address: str | None) -> tuple[Any, bool]:
    """Ray, connected, and whether the connection is ours to end. ExecutionError where the extra is
    not installed, or the cluster does not answer."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        message = "Ray is not installed: pip install 'nautile[ray]'"
        raise ExecutionError(message, code="not-installed") from None
    if ray.is_initialized():
        return ray, False
    own = {} if address else {"num_cpus": machine().cores, "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = f"no Ray cluster at {address}: {error}" if address else f"Ray: {error}"
        raise ExecutionError(said, code="no-cluster") from error
    return ray, True


def _last_line(said: str) -> str:
    """What an error of Ray comes to: its last line, without the traceback before it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "they end at once"


def _silent(actor: _Actor) -> bool:
    """Whether an actor has said nothing for longer than its job may take."""
    assert actor.job is not None
    allowed = _MEASURE if actor.gpu else actor.job.task.limits.seconds
    return time.monotonic() - actor.since > allowed + _GRACE


def _has_code(outcome: Outcome) -> bool:
    return any(name.endswith(".cubin") for name in outcome.artifacts)


def _with(outcome: Outcome, report: Mapping[str, Any], files: Mapping[str, bytes]) -> Outcome:
    record = outcome.record | {"measurement": dict(report)}
    return msgspec.structs.replace(
        outcome, record=record, artifacts=outcome.artifacts | dict(files)
    )


def _outcome(job: _Job, message: str, code: str) -> Outcome:
    named = f"{job.task.program}: not finished: {message}"
    return failed(job.task, ExecutionError(named, code=code))
