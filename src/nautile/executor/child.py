"""The process that runs a pool's tasks, one after the other, until its input ends.

It keeps one saturation child warm. The address space is limited anew for each task, beyond what was
used before; the clock, and the processor time and memory of all its processes, are watched by the
pool, which kills it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO

from nautile.executor.frames import HEAD, JOB, Ready, Result, Stage, framed
from nautile.orphans import die_with_parent
from nautile.task.model import Limits, Task
from nautile.task.run import run
from nautile.worker import Worker

__all__ = ["serve"]


def serve(parent: int) -> None:
    """Run tasks from standard input for the process `parent`."""
    die_with_parent(parent)
    import_module("numpy")  # under no limit: BLAS that finds no memory for itself ends the process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started the pool decides
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # nothing that a library prints may reach the frames
    _put(sink, framed(Ready()))
    with Worker() as worker:
        while head := source.read(HEAD):
            job = JOB.decode(source.read(int.from_bytes(head, "big")))
            _put(sink, _run(job.ticket, job.task, worker, sink))


def _run(ticket: int, task: Task, worker: Worker, sink: IO[bytes]) -> bytes:
    with _limited(task.limits):
        outcome = run(task, worker, lambda stage: _put(sink, framed(Stage(ticket, stage))))
    return framed(Result(ticket, outcome))


def _put(sink: IO[bytes], data: bytes) -> None:
    try:
        sink.write(data)
        sink.flush()
    except BrokenPipeError:  # the pool is gone
        os._exit(1)


@contextmanager
def _limited(limits: Limits) -> Iterator[None]:
    """A soft limit on the address space that the task may add: beyond it, MemoryError is raised."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    most, hard = used + limits.memory_bytes, before[1]
    within = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (within, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
