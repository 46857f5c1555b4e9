"""What callers do with every executor: tasks go in under tickets, finished ones come out."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from nautile.errors import ExecutionError
from nautile.executor.protocol import Done
from nautile.task.model import Outcome, Task

__all__ = ["Front"]


class Front(ABC):
    """The callers' side of an executor whose work is done by a thread of its own. That thread
    holds `_changed` while it touches what both sides see, and ends once `_closing` is set."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._done: deque[Done] = deque()
        self._unwanted: set[int] = set()  # tickets that were cancelled and are not handed out
        self._left = 0  # tasks that were submitted and not handed out
        self._last = 0
        self._closing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, task: Task) -> int:
        """Take a task, to be run when a worker is free; returns its ticket at once. ExecutionError
        where the executor is closed."""
        with self._changed:
            if self._closing:
                raise ExecutionError("the executor is closed", code="cancelled")
            self._last += 1
            self._left += 1
            ticket = self._last
            self._accept(ticket, task)
            self._changed.notify_all()
        self._wake()
        return ticket

    def next(self, timeout: float | None = None) -> Done | None:
        """The next finished task; None after `timeout` seconds, or where nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._done or not self._left, timeout)
            if not self._done:
                return None
            self._left -= 1
            return self._done.popleft()

    def results(self) -> Iterator[Done]:
        """Finished tasks as they come, until none is left."""
        while (done := self.next()) is not None:
            yield done

    @abstractmethod
    def close(self) -> None:
        """End what runs. Every process that the executor started is gone on return."""

    @abstractmethod
    def _accept(self, ticket: int, task: Task) -> None:
        """Queue a task; called with the lock held."""

    @abstractmethod
    def _wake(self) -> None:
        """Let the executor's thread look at its queue."""

    def _finish(self, ticket: int, task: Task, outcome: Outcome, seconds: float = 0.0) -> None:
        """Hand out an outcome and how long a worker had the task; called with the lock held."""
        self._unwanted.discard(ticket)
        self._done.append(Done(ticket, task, outcome, seconds))
        self._changed.notify_all()
