"""The child process that saturates, with its limits.

The child is started afresh (never forked), runs one job after the other, and holds no user text: it
receives egglog lines made here and returns numbers. Frames on its pipes are MessagePack behind a
length of four bytes:

```
parent -> child   Job
child  -> parent  Progress*  then one of  Frozen | Failure
```

A job's first progress, of no iteration, says that its rules are loaded: its time begins then.

Limits of a job: its own checks of time and rows between rules; bytes of address space and seconds
of processor time, set on the child; a wall clock here, which kills it. After a kill the last
finished iteration is returned: from its checkpoint, or by running the same iterations again in a
new child.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO

import msgspec

from nautile.egraph.engine import Frozen, Job, Progress, Unsound, prepare, run, tidy
from nautile.orphans import die_with_parent_if_asked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nautile.egraph import Limits
    from nautile.rules.law import Rule
    from nautile.snapshot import Snapshot
    from nautile.terms import Output

__all__ = ["Failure", "Worker"]

_GRACE = 1.0  # seconds beyond the budget in which the child may stop by itself
_START = 60.0  # seconds that a child may take to load egglog


class Failure(msgspec.Struct, frozen=True, tag=True):
    """A job that failed: kind is unsound, memory or error."""

    kind: str
    message: str
    laws: list[int] = []
    constants: list[str] = []


class _Done(msgspec.Struct, frozen=True, tag=True):
    frozen: Frozen


class _Step(msgspec.Struct, frozen=True, tag=True):
    progress: Progress


_Frame = _Done | _Step | Failure
_FRAME = msgspec.msgpack.Decoder(_Frame)


class _Killed(Exception):
    """The child is gone; `reason` is time or memory, `last` the progress that it told of."""

    def __init__(self, reason: str, last: Progress | None) -> None:
        super().__init__(reason)
        self.reason, self.last = reason, last


class Worker:
    """A child process that saturates regions one after the other; started on first use, started
    again after a kill. Use it as a context manager, or close it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._known: tuple[Rule, ...] | None = None  # the rules that the child has loaded

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def saturate(
        self, outputs: tuple[Output, ...], rules: Sequence[Rule], *, limits: Limits | None = None
    ) -> Snapshot:
        """Everything that `rules` find equal to the outputs' terms, within the limits.

        Raises SaturationError when the rules make two constants equal or the child fails for a
        reason that is not a limit.
        """
        from nautile.egraph import Limits, encode, job_of
        from nautile.egraph.decode import decode

        region, laws = encode(outputs), tuple(rules)
        frozen = self.frozen(job_of(region, laws, limits or Limits()), laws)
        return decode(region, frozen, laws)

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def frozen(self, job: Job, rules: tuple[Rule, ...]) -> Frozen:
        """The job's result, or what its last finished iteration had found; `rules` are its laws."""
        try:
            return self._run(job, rules)
        except _Killed as killed:
            last, reason = killed.last, killed.reason
        if last is not None and last.checkpoint is not None:
            return msgspec.structs.replace(last.checkpoint, stop=reason)
        for iterations in _fewer(last.iterations if last else 0):
            with suppress(_Killed):
                again = self._run(msgspec.structs.replace(job, iterations=iterations), rules)
                return msgspec.structs.replace(again, stop=reason)
        raise _error(f"the region does not even fit its limits as it stands ({reason})")

    def _run(self, job: Job, rules: tuple[Rule, ...]) -> Frozen:
        from nautile.egraph import unsound

        last: Progress | None = None
        self._ready()
        loading = 0.0 if self._known == rules and not job.alone else _START
        deadline = time.monotonic() + job.seconds + _GRACE + loading
        self._send(msgspec.msgpack.encode(job), deadline)
        while True:
            frame = self._receive(deadline, last)
            if isinstance(frame, _Done):
                return frame.frozen
            if isinstance(frame, _Step):
                last = frame.progress
                if not last.iterations:
                    self._known = None if job.alone else rules
                    deadline = time.monotonic() + job.seconds + _GRACE
                continue
            if frame.kind == "unsound":
                raise unsound(frame.laws, frame.constants, rules)
            if frame.kind == "memory":
                self.close()
                raise _Killed("memory", last)
            raise _error(frame.message)

    def _ready(self) -> None:
        if self._child is None or self._child.poll() is not None:
            self._start()

    def _send(self, data: bytes, deadline: float) -> None:
        """Write a job. A child that reads nothing (stopped, or stuck) must not block its parent
        once the pipe is full."""
        assert self._child is not None
        assert self._child.stdin is not None
        sink, rest = self._child.stdin.fileno(), len(data).to_bytes(4, "big") + data
        try:
            while rest:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([], [sink], [], left)[1]:
                    self.close()
                    raise _Killed("time", None)
                rest = rest[os.write(sink, rest) :]
        except BrokenPipeError:
            raise self._dead(None) from None

    def _start(self) -> None:
        self.close()
        self._known = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", "from nautile.worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"RAYON_NUM_THREADS": "1"},
            bufsize=0,
        )
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)
        try:
            self._read(5, time.monotonic() + _START)
        except TimeoutError:
            self.close()
            raise _error(f"the e-graph's process did not start in {_START:.0f} s") from None
        except EOFError:
            raise self._dead(None) from None

    def _receive(self, deadline: float, last: Progress | None) -> _Frame:
        try:
            head = self._read(4, deadline)
            body = self._read(int.from_bytes(head, "big"), deadline + _GRACE)
        except TimeoutError:
            self.close()
            raise _Killed("time", last) from None
        except EOFError:
            raise self._dead(last) from None
        return _FRAME.decode(body)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        stream, data = self._child.stdout.fileno(), b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise TimeoutError
            part = os.read(stream, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return data

    def _dead(self, last: Progress | None) -> Exception:
        """Why the child died: a limit, or a failure to report."""
        assert self._child is not None
        code = self._child.wait()
        assert self._errors is not None
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()
        self.close()
        if code == -signal.SIGXCPU:
            return _Killed("time", last)
        if code == -signal.SIGKILL or "memory" in words.lower():
            return _Killed("memory", last)
        tail = words.splitlines()[-1] if words else "no message"
        return _error(f"the e-graph's process ended with status {code}: {tail}")


def _fewer(iterations: int) -> list[int]:
    """Numbers of iterations to try again: all that finished, then half as many, at last none."""
    found = []
    while iterations:
        found.append(iterations)
        iterations //= 2
    return [*found, 0]


def _error(message: str) -> Exception:
    from nautile.errors import SaturationError

    return SaturationError(message)


def serve() -> None:
    """The child: jobs from standard input, frames to standard output, until the input ends."""
    die_with_parent_if_asked()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may reach the frames
    from egglog import bindings

    bindings.EGraph()
    sink.write(b"ready")
    sink.flush()
    decoder = msgspec.msgpack.Decoder(Job)
    while head := source.read(4):
        job = decoder.decode(source.read(int.from_bytes(head, "big")))
        data = msgspec.msgpack.encode(_answer(job, sink))
        _write(sink, data)
        with suppress(Exception):  # an engine that cannot be brought back is made again
            tidy()


def _answer(job: Job, sink: IO[bytes]) -> _Frame:
    try:
        prepare(job)
        _limit(job)
        _tell(sink, Progress(0, None))
        return _Done(run(job, lambda progress: _tell(sink, progress)))
    except Unsound as found:
        return Failure("unsound", str(found), found.laws, found.constants)
    except MemoryError:
        return Failure("memory", "out of memory")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # egglog's PanicException is no Exception
        return Failure("error", f"{type(error).__name__}: {error}")


def _tell(sink: IO[bytes], progress: Progress) -> None:
    _write(sink, msgspec.msgpack.encode(_Step(progress)))


def _limit(job: Job) -> None:
    """Set what the job may add to the memory and the processor time used so far."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_within(used + job.memory_bytes, hard), hard))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(spent.ru_utime + spent.ru_stime + 2 * job.seconds + 10)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_within(seconds, hard), hard))


def _within(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _write(sink: IO[bytes], data: bytes) -> None:
    sink.write(len(data).to_bytes(4, "big") + data)
    sink.flush()
