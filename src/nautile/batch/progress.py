"""How far a batch is, on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nautile.batch.summary import Summary

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["Lines", "Live", "Silent", "progress"]

_EVERY = 10.0  # seconds between lines


def progress(total: int, quiet: bool) -> Silent:
    """What tells of the records of a run over so many files."""
    if quiet:
        return Silent()
    return Live(total) if sys.stderr.isatty() else Lines(total)


class Silent(AbstractContextManager["Silent"]):
    """Tells of nothing; the other ways of telling extend it."""

    def tell(self, record: Mapping[str, Any], summary: Summary) -> None:
        """A record was made."""

    def say(self, message: str) -> None:
        """Something else that a person should know."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class Lines(Silent):
    """One line for each failure, and one with the counts every few seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._started, self._told = total, time.monotonic(), time.monotonic()

    def tell(self, record: Mapping[str, Any], summary: Summary) -> None:
        if record.get("error"):
            self.say(f"failed: {_place(record)}: {_first_line(record)}")
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            self.say(_counts(summary, self._total, now - self._started))

    def say(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)


class Live(Silent):
    """A bar with the rate, what is left, hits and failures."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._started, self._total = time.monotonic(), total
        self._bar: Bar = Progress(
            TextColumn("{task.completed}/{task.total} files"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total or None)

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def tell(self, record: Mapping[str, Any], summary: Summary) -> None:
        from rich.markup import escape

        if record.get("error"):
            self.say(f"failed: {_place(record)}: {_first_line(record)}")
        said = escape(_counts(summary, 0, time.monotonic() - self._started))
        self._bar.update(self._task, completed=summary.files, description=said)

    def say(self, message: str) -> None:
        self._bar.console.print(message, markup=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


def _counts(summary: Summary, total: int, seconds: float) -> str:
    made = summary.inputs - summary.resumed
    rate = made / seconds if seconds > 0 else 0.0
    files = f"{summary.files}/{total} files, " if total else ""
    return (
        f"{files}{summary.inputs} programs, {rate:.2f}/s, {summary.cached} shared, "
        f"{summary.failed} failed"
    )


def _place(record: Mapping[str, Any]) -> str:
    program = record["input"]["program"]
    return f"{record['source']}:{program}" if program else str(record["source"])


def _first_line(record: Mapping[str, Any]) -> str:
    error = record["error"]
    return f"{error['code']}: {str(error['message']).splitlines()[0][:300]}"
