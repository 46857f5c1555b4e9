"""Runs over random programs: the programs of a seed, what failed, and failures made small.

A chunk's programs depend on its seed and number alone, not on how trials went; a failure is shrunk
by Hypothesis among the programs that fail in the same way.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings

from .random_programs import programs
from .random_trial import Trial

__all__ = ["Attempt", "chunk", "limited", "shrunk", "signature"]

Attempt = Callable[[str], Trial]
_QUIET = {"database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


class _Found(Exception):
    """A program that fails as the one that is being shrunk does."""


def chunk(number: int, of: int, *, size: int = 100, most: int = 5) -> list[str]:
    """The distinct programs of one chunk of a seed, of at most so many definitions."""
    found: dict[str, str] = {}

    def collect(text: str) -> None:
        found.setdefault(body_of(text), text)

    _run(collect, number, of, size, (Phase.generate,), most)
    return list(found.values())


def body_of(text: str) -> str:
    """The definitions alone: what differs in types only counts once."""
    return text.split("\n", 1)[1]


def _run(
    test: Callable[[str], None],
    number: int,
    of: int,
    size: int,
    phases: tuple[Phase, ...],
    most: int = 5,
) -> None:
    run = settings(max_examples=size, phases=phases, **_QUIET)(given(programs(most))(test))  # type: ignore[arg-type]
    seed(of * 1_000_003 + number)(run)()


def signature(failure: str) -> str:
    """What kind of failure it is: its text without names, numbers and places."""
    return re.sub(r"[-\d.e+\[\], ]+|inf|nan|~?\bt\d\S*|x\d\S*", " ", failure)[:90].strip()


def shrunk(
    text: str, attempt: Attempt, number: int, of: int, *, size: int, seconds: float
) -> tuple[str, list[str]]:
    """A smaller program that fails like `text`, which the chunk holds, and its failures."""
    first = attempt(text).failures
    if not first:
        return text, ["not seen again"]
    kind, start = signature(first[0]), time.monotonic()
    best = [(text, first)]

    def fails(candidate: str) -> None:
        if candidate == text:
            raise _Found
        if len(best) == 1 and not begun[0]:
            return
        if time.monotonic() - start > seconds:
            if candidate == best[-1][0]:
                raise _Found
            return
        failures = attempt(candidate).failures
        if failures and signature(failures[0]) == kind:
            best.append((candidate, failures))
            raise _Found

    begun = [False]

    def test(candidate: str) -> None:
        begun[0] = begun[0] or candidate == text
        fails(candidate)

    try:
        _run(test, number, of, size, (Phase.generate, Phase.shrink))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    return min(best, key=lambda found: (len(found[0]), found[0]))


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds of wall clock (in the main thread)."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no end after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
