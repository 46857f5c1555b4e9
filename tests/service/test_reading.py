"""Texts are parsed in children: what a text takes too much of costs its child alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nautile.errors import LimitError, NautileError, RequestError, SourceError
from nautile.service import reading
from nautile.service.reading import Readers
from nautile.task import Limits, Settings, Task, tasks_of

from .running import PROGRAM, program

GIB = 1 << 30


def with_readers(
    work: Callable[[Readers], Awaitable[None]], *, count: int = 1, seconds: float = 10.0
) -> None:
    async def run() -> None:
        readers = Readers(count, seconds=seconds, memory=GIB, waiting=8)
        try:
            await work(readers)
        finally:
            await readers.close()

    asyncio.run(run())


async def read(readers: Readers, text: str, name: str | None = None, terms: int = 1000) -> Task:
    return await readers.read(text, name, {}, Settings(), limits=Limits(), terms=terms)


async def refused(readers: Readers, text: str, **more: int) -> NautileError:
    with pytest.raises(NautileError) as error:
        await read(readers, text, **more)
    return error.value


def children() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            words = (path.parent / "cmdline").read_bytes()
            found += [int(path.parent.name)] if b"nautile.service.reading" in words else []
    return found


def test_a_text_is_read_as_in_this_process() -> None:
    async def work(readers: Readers) -> None:
        (expected,) = tasks_of(PROGRAM)
        assert await read(readers, PROGRAM) == expected
        several = PROGRAM + program(2, "other")
        assert (await read(readers, several, "other")).program == "other"
        assert (await refused(readers, several)).code == "one-program"
        assert isinstance(await refused(readers, "def f("), SourceError)
        error = await refused(readers, PROGRAM, terms=2)
        assert (error.code, getattr(error, "http_status", 0)) == (LimitError.default_code, 413)

    with_readers(work)


def test_a_killed_child_is_replaced_and_the_text_read_again() -> None:
    async def work(readers: Readers) -> None:
        await read(readers, PROGRAM)
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        (expected,) = tasks_of(PROGRAM)
        assert await read(readers, PROGRAM) == expected
        (other,) = children()
        assert other != child
        os.kill(other, signal.SIGSTOP)
        asked = asyncio.create_task(read(readers, PROGRAM))
        await asyncio.sleep(0.2)
        os.kill(other, signal.SIGKILL)  # in the middle
        assert await asked == expected

    with_readers(work)


def test_a_text_that_takes_too_long_costs_its_child() -> None:
    async def work(readers: Readers) -> None:
        await read(readers, PROGRAM)
        (child,) = children()
        os.kill(child, signal.SIGSTOP)
        error = await refused(readers, PROGRAM)
        assert isinstance(error, RequestError)
        assert (error.code, error.http_status) == ("time-limit", 422)
        assert child not in children()
        await read(readers, PROGRAM)

    with_readers(work, seconds=1.0)


def test_those_who_wait_are_bounded() -> None:
    async def work(readers: Readers) -> None:
        answers = await asyncio.gather(
            *(read(readers, PROGRAM) for _ in range(12)), return_exceptions=True
        )
        errors = [a for a in answers if isinstance(a, RequestError)]
        assert {(e.code, e.http_status) for e in errors} == {("busy", 503)}
        assert len(answers) - len(errors) == 8

    with_readers(work)


def test_a_tired_child_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_READS", 2)

    async def work(readers: Readers) -> None:
        seen = set()
        for n in range(5):
            await read(readers, program(n))
            seen |= set(children())
            assert len(children()) == 1
        assert len(seen) == 3

    with_readers(work)
