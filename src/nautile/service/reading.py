"""Texts are parsed and checked in children of the process that answers, with limits.

```
parent -> child   _Asked                     (MessagePack, behind a length of four bytes)
child  -> parent  b""  once, when it has loaded;  then  _Read | _Refused  for each
```

A text that takes too long or too much memory costs its child, and its submission is refused by
name; the process that answers goes on.
"""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO

import msgspec

from nautile.errors import InputError, LimitError, NautileError, RequestError, SourceError
from nautile.task import Limits, Settings, Task, tasks_of

__all__ = ["Readers"]

_LENGTH = struct.Struct(">I")
_MOST = 64 << 20
_START = 60.0  # seconds in which a child loads
_ROOM = 512 << 20  # bytes of address space that a child has before it reads anything
_TRIES = 3  # children that one text may cost, before it is to blame
_READS = 5_000  # texts of one child: then a new one takes over, so that memory stays flat


class _Asked(msgspec.Struct, frozen=True):
    text: str
    program: str | None
    dims: dict[str, int]
    settings: Settings
    limits: Limits
    terms: int


class _Read(msgspec.Struct, frozen=True, tag=True):
    task: Task


class _Refused(msgspec.Struct, frozen=True, tag=True):
    status: int
    code: str
    message: str
    line: int = 0
    column: int = 0
    text: str = ""


_ANSWER = msgspec.msgpack.Decoder(_Read | _Refused)


class Readers:
    """A few children that read, each one text at a time; started when first needed, and again after
    one was lost."""

    def __init__(self, count: int, *, seconds: float, memory: int, waiting: int = 200) -> None:
        self._seconds, self._memory, self._waiting = seconds, memory, waiting
        self._free: asyncio.Queue[_Child | None] = asyncio.Queue()
        self._asking = 0
        for _ in range(count):
            self._free.put_nowait(None)

    async def read(
        self,
        text: str,
        program: str | None,
        dims: dict[str, int],
        settings: Settings,
        *,
        limits: Limits,
        terms: int,
    ) -> Task:
        """The task of the text's program.

        Raises what the text deserves; RequestError: 422 `time-limit`, `memory-limit` where it takes
        more than it may; 503 `busy` where too many wait.
        """
        asked = msgspec.msgpack.encode(_Asked(text, program, dims, settings, limits, terms))
        answer = _ANSWER.decode(await self._answer(asked))
        if isinstance(answer, _Read):
            return answer.task
        raise _raised(answer)

    async def _answer(self, asked: bytes) -> bytes:
        """A child's answer. One that dies is replaced: it may have died of something else."""
        began = False
        for _ in range(_TRIES):
            try:
                async with self._child() as child:
                    return await child.ask(asked, self._seconds)
            except _LostError as error:
                began = error.began
        if began:
            message = "the text takes more memory to read than it may; make it smaller"
            raise RequestError(message, code="memory-limit", http_status=422)
        message = "no process that parses can be started; come back in a moment"
        raise RequestError(message, code="busy", http_status=503, retry_after=5)

    @asynccontextmanager
    async def _child(self) -> AsyncIterator[_Child]:
        if self._asking >= self._waiting:
            message = "too many submissions are being read; come back in a moment"
            raise RequestError(message, code="busy", http_status=503, retry_after=2)
        self._asking += 1
        try:
            child = await self._free.get()
            try:
                if child is not None and child.tired:
                    await child.end()
                if child is None or child.ended:
                    child = None
                    child = await _Child.start(self._memory)
                yield child
            finally:
                self._free.put_nowait(child)
        finally:
            self._asking -= 1

    async def warm(self) -> None:
        """Start the children, so that the first texts need not wait."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._free.qsize()):
                group.create_task(self._touch())

    async def _touch(self) -> None:
        with suppress(_LostError):
            async with self._child():
                pass

    async def close(self) -> None:
        """End the children that are at rest."""
        while not self._free.empty():
            child = self._free.get_nowait()
            if child is not None:
                await child.end()


class _LostError(Exception):
    """A child has died; whether it had begun to read."""

    def __init__(self, began: bool) -> None:
        super().__init__(began)
        self.began = began


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._idle, self._count = True, 0

    @classmethod
    async def start(cls, memory: int) -> _Child:
        """A child that has loaded."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nautile.service.reading", str(memory), str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            limit=1 << 20,
        )
        child = cls(process)
        try:
            async with asyncio.timeout(_START):
                await child._frame()
        except BaseException as error:
            await child.end()
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError | OSError):
                raise _LostError(False) from None
            raise
        return child

    @property
    def ended(self) -> bool:
        """True when it cannot be asked any more: it is gone, or an answer was not waited for."""
        return self._process.returncode is not None or not self._idle

    @property
    def tired(self) -> bool:
        """True when it has read its share."""
        return self._count >= _READS

    async def ask(self, data: bytes, seconds: float) -> bytes:
        """The answer to one frame; a child that does not give it in time is ended."""
        self._idle = False
        self._count += 1
        try:
            async with asyncio.timeout(seconds):
                self._in.write(_LENGTH.pack(len(data)) + data)
                await self._in.drain()
                found = await self._frame()
        except TimeoutError:
            await self.end()
            message = f"the text takes more than {seconds:g} seconds to read; make it smaller"
            raise RequestError(message, code="time-limit", http_status=422) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.end()
            raise _LostError(True) from None
        except BaseException:
            await self.end()
            raise
        self._idle = True
        return found

    async def _frame(self) -> bytes:
        (length,) = _LENGTH.unpack(await self._out.readexactly(4))
        return await self._out.readexactly(length)

    async def end(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _raised(answer: _Refused) -> NautileError:
    if answer.line:
        return SourceError(
            answer.message,
            code=answer.code,
            line=answer.line,
            column=answer.column,
            text=answer.text,
        )
    return RequestError(answer.message, code=answer.code, http_status=answer.status)


# ---- the child ---------------------------------------------------------------------------------


def _main(memory: int, parent: int) -> None:
    from nautile.orphans import die_with_parent

    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tasks_of("def warm(x: f32[N], *, N=2) -> f32[N]:\n    y[i] = x[i]\n    return y\n")
    _limit(memory)  # beyond the language and NumPy, which are loaded by now
    decoder = msgspec.msgpack.Decoder(_Asked)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _write(sink, b"")
    while True:
        length = source.read(4)
        if len(length) < 4:
            return
        _write(sink, msgspec.msgpack.encode(_answer(decoder.decode(_body(source, length)))))


def _limit(memory: int) -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    limit = max(now + _ROOM, 0) + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _body(source: BinaryIO, length: bytes) -> bytes:
    return source.read(_LENGTH.unpack(length)[0])


def _write(sink: BinaryIO, data: bytes) -> None:
    sink.write(_LENGTH.pack(len(data)) + data)
    sink.flush()


def _answer(asked: _Asked) -> _Read | _Refused:
    try:
        return _Read(_task(asked))
    except SourceError as error:
        return _Refused(422, error.code, error.message, error.line, error.column, error.text)
    except LimitError as error:
        return _Refused(413, error.code, error.message)
    except InputError as error:
        return _Refused(422, error.code, error.message)
    except NautileError as error:
        return _Refused(500, error.code, error.message)
    except MemoryError:
        return _Refused(422, "memory-limit", "the text takes more memory to read than it may")
    except RecursionError:
        return _Refused(413, "limit", "the text is nested too deeply")


def _task(asked: _Asked) -> Task:
    found = tasks_of(asked.text, asked.settings, dims=asked.dims, limits=asked.limits)
    names = [task.program for task in found]
    if asked.program is None and len(found) != 1:
        message = f"the text holds {len(found)} programs ({', '.join(names[:20])}): name one"
        raise InputError(message, code="one-program")
    if asked.program is not None and asked.program not in names:
        message = f"the text holds no program {asked.program!r}; it holds {', '.join(names[:20])}"
        raise InputError(message, code="unknown-name")
    task = found[0 if asked.program is None else names.index(asked.program)]
    _check_terms(task, asked.terms)
    return task


def _check_terms(task: Task, most: int) -> None:
    from nautile import lang
    from nautile.terms import walk

    for program in lang.parse(task.text, task.filename, task.dims):
        if program.name != task.program:
            continue
        count = sum(1 for _ in walk(*(d.body for d in program.definitions)))
        if count > most:
            message = f"{program.name}: {count} terms; the service takes {most}: split the program"
            raise LimitError(message)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
