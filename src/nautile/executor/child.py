"""The process that runs a pool's tasks, one after the other, until its input ends.

It keeps one saturation child warm. Limits of processor time and address space are set anew for each
task, beyond what was used before; the wall clock and the memory of all its processes are watched by
the pool, which kills it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Soft limits on what the task may add: SIGXCPU ends the process, memory raises MemoryError."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(spent.ru_utime + spent.ru_stime + limits.cpu_seconds + 1)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    wanted = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: used + limits.memory_bytes}
    before = {kind: resource.getrlimit(kind) for kind in wanted}
    for kind, most in wanted.items():
        hard = before[kind][1]
        within = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (within, hard))
    try:
        yield
    finally:
        for kind, pair in before.items():
            resource.setrlimit(kind, pair)
