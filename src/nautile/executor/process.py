"""One worker process, as its pool sees it: pipes that never block, and an end that is certain.

A worker leads a process group of its own, so that a kill reaches its children too, and an interrupt
from the keyboard reaches neither. It ends with the thread that started it (see orphans.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import msgspec

from nautile.executor.frames import REPLY, Job, Reply, framed, taken
from nautile.executor.machine import memory_of, processor_time_of
from nautile.orphans import DIE_WITH_PARENT

__all__ = ["Process"]

_CODE = "import sys; from nautile.executor.child import serve; serve(int(sys.argv[1]))"
_ONE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
_CHUNK = 1 << 20
_TAIL = 4096  # bytes of what a dead worker has said that are looked at


@dataclass(slots=True)
class Process:
    """A worker process and what is known of it: the job that it has, since when, and the processor
    time that was spent before; how many it has done, and whether it is to be replaced."""

    popen: subprocess.Popen[bytes]
    errors: IO[bytes]
    born: float
    ready: bool = False
    job: Job | None = None
    since: float = 0.0
    spent: float = 0.0
    done: int = 0
    worn: bool = False
    _in: bytearray = field(default_factory=bytearray)
    _out: memoryview = field(default_factory=lambda: memoryview(b""))

    @classmethod
    def start(cls) -> Process:
        """A new worker process. Call it in the thread that the worker shall end with."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        popen = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | dict.fromkeys(_ONE, "1") | {DIE_WITH_PARENT: "1"},
            bufsize=0,
            start_new_session=True,
        )
        for stream in (popen.stdin, popen.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        return cls(popen, errors, time.monotonic())

    @property
    def source(self) -> int:
        """The descriptor that replies come from."""
        assert self.popen.stdout is not None
        return self.popen.stdout.fileno()

    @property
    def sink(self) -> int:
        """The descriptor that jobs go to."""
        assert self.popen.stdin is not None
        return self.popen.stdin.fileno()

    @property
    def unsent(self) -> bool:
        """Whether a part of a job still waits to be written."""
        return len(self._out) > 0

    @property
    def memory(self) -> int:
        """Bytes in memory of the worker and its children."""
        return memory_of(self.popen.pid)

    @property
    def processor_time(self) -> float:
        """Seconds of processor time of the worker and its children so far."""
        return processor_time_of(self.popen.pid)

    def give(self, job: Job) -> None:
        """Hand over a job; its time begins."""
        self.job, self.since, self.spent = job, time.monotonic(), self.processor_time
        self._out = memoryview(framed(job))
        self.send()

    def send(self) -> None:
        """Write as much of the job as the pipe takes. A worker that is gone is noticed where its
        replies are read."""
        with suppress(BlockingIOError, BrokenPipeError):
            while self._out:
                self._out = self._out[os.write(self.sink, self._out[:_CHUNK]) :]

    def receive(self) -> tuple[list[Reply], bool]:
        """Whole replies that have arrived, and whether more may come: not from a worker that has
        closed its end, nor from one that has sent what is no reply."""
        found: list[Reply] = []
        try:
            while data := os.read(self.source, _CHUNK):
                self._in += data
                while (frame := taken(self._in)) is not None:
                    found.append(REPLY.decode(frame))
        except BlockingIOError:
            return found, True
        except msgspec.MsgspecError:
            return found, False
        return found, False

    def kill(self) -> str:
        """End the worker with all its children; returns how it had ended, for people, as if nobody
        had ended it here."""
        status = self._status()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        said = self._said()
        for stream in (self.popen.stdin, self.popen.stdout, self.errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return f"{status}{said}"

    def _status(self) -> str:
        """How the process ended by itself; it is given a moment after its pipes have closed."""
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(0.0 if self.job is None else 0.5)
        code = self.popen.returncode
        if code is None:
            return "it was ended"
        if code >= 0:
            return f"it ended with status {code}"
        known = {s.value: s.name for s in signal.Signals}
        return f"it was killed by {known.get(-code, f'signal {-code}')}"

    def _said(self) -> str:
        """The last line of its standard error."""
        with suppress(OSError, ValueError):
            self.errors.seek(0, os.SEEK_END)
            self.errors.seek(max(0, self.errors.tell() - _TAIL))
            lines = self.errors.read().decode(errors="replace").strip().splitlines()
            return f": {lines[-1][:500]}" if lines else ""
        return ""
