"""What every executor offers: tasks in, outcomes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from nautile.task.model import Outcome, Task

__all__ = ["Done", "Executor"]


@dataclass(frozen=True, slots=True)
class Done:
    """A finished task under the ticket that it was submitted for. `seconds` is how long the worker
    that finished it had it, 0 where no worker took it up."""

    ticket: int
    task: Task
    outcome: Outcome
    seconds: float = 0.0


class Executor(Protocol):
    """Runs tasks elsewhere. Any thread may call any method."""

    def submit(self, task: Task) -> int:
        """Take a task, to be run when a worker is free; returns its ticket at once."""
        ...

    def next(self, timeout: float | None = None) -> Done | None:
        """The next finished task; None after `timeout` seconds, or where nothing is left."""
        ...

    def results(self) -> Iterator[Done]:
        """Finished tasks as they come, until none is left."""
        ...

    def cancel(self, ticket: int, *, running: bool = True) -> bool:
        """Give a task up: also one that runs, if not said otherwise. False where it goes on, or is
        finished already."""
        ...

    def close(self) -> None:
        """End what runs. Every process that the executor started is gone on return."""
        ...
