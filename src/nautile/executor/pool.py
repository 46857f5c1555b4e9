"""A pool of worker processes of this machine.

One thread starts, feeds, watches and ends the workers; callers only touch a queue. What it watches
of a running task: its time on the clock, the processor time and the memory of its worker with all
children, and that the worker lives. A worker is replaced after so many tasks, and when it keeps too
much memory, so that the memory of a run over thousands of files stays flat.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nautile.errors import ExecutionError
from nautile.executor.frames import Job, Ready, Reply, Result, Stage
from nautile.executor.front import Front
from nautile.executor.machine import machine
from nautile.executor.process import Process
from nautile.task.model import Outcome, Task
from nautile.task.run import failed

__all__ = ["Pool", "Recycling"]

_TICK = 0.1  # seconds between looks at clocks and memory
_START = 120.0  # seconds that a worker may take to start
_FALSE_STARTS = 3  # workers in a row that end before they are ready


@dataclass(frozen=True, slots=True)
class Recycling:
    """When a worker is replaced: after so many tasks, or when it keeps more memory after a task,
    with its children, than so many bytes."""

    tasks: int = 500
    memory_bytes: int = 1 << 30


class Pool(Front):
    """An executor over processes. `jobs` is the number of workers (as many as the machine has cores
    and memory for, where left out); `progress` is told of each stage of each ticket, in the pool's
    own thread. Use it as a context manager, or close it."""

    def __init__(
        self,
        jobs: int | None = None,
        *,
        recycling: Recycling | None = None,
        progress: Callable[[int, str], None] = lambda ticket, stage: None,
    ) -> None:
        super().__init__()
        self.jobs = jobs or machine().workers
        self._recycling, self._progress = recycling or Recycling(), progress
        self._waiting: deque[Job] = deque()
        self._false_starts = 0
        self._processes: list[Process] = []
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="nautile-pool", daemon=True)
        self._thread.start()

    # ---- what callers do -----------------------------------------------------------------------

    def cancel(self, ticket: int, *, running: bool = True) -> bool:
        """Give a task up: also one that runs, if not said otherwise. False where it goes on, or is
        finished already."""
        with self._changed:
            job = next((j for j in self._waiting if j.ticket == ticket), None)
            if job is not None:
                self._waiting.remove(job)
                self._fail(job, "it was cancelled before it ran", "cancelled")
                return True
            runs = any(p.job and p.job.ticket == ticket for p in self._processes)
            if runs and running:
                self._unwanted.add(ticket)
        self._wake()
        return runs and running

    def close(self) -> None:
        """End what runs. Every process that the pool started is gone on return."""
        with self._changed:
            self._closing = True
        self._wake()
        self._thread.join()

    @property
    def workers(self) -> tuple[int, ...]:
        """The process ids of the workers as they are now."""
        with self._changed:
            return tuple(p.popen.pid for p in self._processes)

    def _accept(self, ticket: int, task: Task) -> None:
        self._waiting.append(Job(ticket, task))

    def _wake(self) -> None:
        try:
            os.write(self._wake_in, b"x")
        except (BlockingIOError, OSError):
            return

    # ---- the pool's thread ---------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._start_workers()
                self._feed()
                for key, events in self._selector.select(_TICK if self._processes else None):
                    self._handle(key, events)
                for process in list(self._processes):
                    self._watch(process)
        finally:
            self._end()

    def _end(self) -> None:
        for process in list(self._processes):
            self._drop(process)
        with self._changed:
            while self._waiting:
                job = self._waiting.popleft()
                self._fail(job, "the pool was closed", "cancelled")
            self._closing = True
        self._selector.close()
        os.close(self._wake_out)
        os.close(self._wake_in)

    def _start_workers(self) -> None:
        """As many workers as there are tasks, up to `jobs`; none once they keep failing to start:
        then tasks fail, too."""
        with self._changed:
            wanted = len(self._waiting) + sum(p.job is not None for p in self._processes)
        if self._false_starts >= _FALSE_STARTS:
            return
        while len(self._processes) < min(self.jobs, wanted):
            process = Process.start()
            with self._changed:
                self._processes.append(process)
            self._selector.register(process.source, selectors.EVENT_READ, process)

    def _feed(self) -> None:
        for process in self._processes:
            if process.ready and process.job is None:
                with self._changed:
                    if not self._waiting:
                        return
                    job = self._waiting.popleft()
                process.give(job)
                if process.unsent:
                    self._selector.register(process.sink, selectors.EVENT_WRITE, process)

    def _handle(self, key: selectors.SelectorKey, events: int) -> None:
        process: Process | None = key.data
        if process is None:
            os.read(self._wake_out, 4096)
        elif events & selectors.EVENT_WRITE:
            process.send()
            if not process.unsent:
                self._selector.unregister(process.sink)
        elif process in self._processes:
            self._read(process)

    def _read(self, process: Process) -> None:
        replies, open_ = process.receive()
        for reply in replies:
            self._take(process, reply)
        if not open_:
            self._lost(process)
        elif process.worn:
            self._drop(process)

    def _take(self, process: Process, reply: Reply) -> None:
        match reply:
            case Ready():
                process.ready, self._false_starts = True, 0
            case Stage(ticket, name):
                self._progress(ticket, name)
            case Result(_, outcome):
                self._took(process, outcome)

    def _took(self, process: Process, outcome: Outcome) -> None:
        job, process.job = process.job, None
        assert job is not None
        with self._changed:
            self._finish(job.ticket, job.task, outcome, time.monotonic() - process.since)
        process.done += 1
        error = outcome.record.get("error") or {}
        process.worn = (
            process.done >= self._recycling.tasks
            or process.memory > self._recycling.memory_bytes
            or error.get("code") == "memory-limit"
        )

    def _watch(self, process: Process) -> None:
        """End a worker whose task is not wanted any more, or passes a limit."""
        now = time.monotonic()
        if not process.ready and now - process.born > _START:
            self._lost(process)
        job = process.job
        if job is None:
            return
        limits = job.task.limits
        if job.ticket in self._unwanted:
            self._give_up(process, "it was cancelled", "cancelled")
        elif now - process.since > limits.seconds:
            said = f"it took longer than {limits.seconds:g} s"
            self._give_up(process, said, "time-limit")
        elif process.processor_time - process.spent > limits.cpu_seconds:
            said = f"it took more than {limits.cpu_seconds:g} s of processor time"
            self._give_up(process, said, "time-limit")
        elif process.memory > limits.memory_bytes:
            said = f"it took more than {limits.memory_bytes / 2**30:.3g} GiB of memory"
            self._give_up(process, said, "memory-limit")

    def _give_up(self, process: Process, message: str, code: str) -> None:
        job, process.job = process.job, None
        self._drop(process)
        if job is not None:
            with self._changed:
                self._fail(job, message, code, time.monotonic() - process.since)

    def _lost(self, process: Process) -> None:
        """A worker has ended by itself."""
        job, ready = process.job, process.ready
        said = self._drop(process)
        if job is None:
            self._false_starts += 0 if ready else 1
            if self._false_starts >= _FALSE_STARTS:
                self._fail_all(f"workers do not start: {said}")
            return
        with self._changed:
            code = "cancelled" if job.ticket in self._unwanted else _code_of(said)
            took = time.monotonic() - process.since
            self._fail(job, f"its process died: {said}", code, took)

    def _fail_all(self, message: str) -> None:
        with self._changed:
            while self._waiting:
                job = self._waiting.popleft()
                self._fail(job, message, "worker-died")
        self._false_starts = 0  # tasks that come later try again

    def _drop(self, process: Process) -> str:
        """End a worker and forget it; returns how it had ended."""
        for descriptor in (process.source, process.sink):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        with self._changed:
            self._processes.remove(process)
        return process.kill()

    def _fail(self, job: Job, message: str, code: str, seconds: float = 0.0) -> None:
        """Hand out that a task was not finished; called with the lock held."""
        named = f"{job.task.program}: not finished: {message}"
        outcome = failed(job.task, ExecutionError(named, code=code))
        self._finish(job.ticket, job.task, outcome, seconds)


def _code_of(said: str) -> str:
    """The code of a death: by a limit that libraries noticed, or of another kind."""
    signs = ("bad_alloc", "MemoryError", "Memory allocation")
    return "memory-limit" if any(sign in said for sign in signs) else "worker-died"
