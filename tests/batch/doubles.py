"""An executor that gives outcomes at once: those of one real program, under each task's names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nautile.batch import Asked, Batch
from nautile.batch.results import NAME, records
from nautile.batch.summary import Summary
from nautile.errors import NautileError
from nautile.executor import Done
from nautile.store import Store
from nautile.task import Outcome, Settings, Task, failed, renamed, renamed_files, run, tasks_of

SOURCE = """def {name}({x}: f32[{N}], *, {N}=64) -> f32[{N}]:
    {y}[n] = {x}[n] * {by}
    return {y}
"""


def source(by: float, name: str = "f", x: str = "x", y: str = "y", size: str = "N") -> str:
    """A program; those of one `by` are the same up to names."""
    return SOURCE.format(name=name, x=x, y=y, N=size, by=float(by))


@cache
def example() -> Outcome:
    """What optimizing one program gives, really."""
    return run(tasks_of(source(2))[0])


class Instant:
    """Finishes each task at once. `fail` gives the error of tasks that shall fail; `before` is
    called for each task that is taken out, and may raise."""

    def __init__(
        self,
        fail: Callable[[Task], NautileError | None] = lambda task: None,
        before: Callable[[Task], None] = lambda task: None,
    ) -> None:
        self.fail, self.before = fail, before
        self.tasks: list[Task] = []
        self._waiting: deque[tuple[int, Task]] = deque()

    def submit(self, task: Task) -> int:
        self.tasks.append(task)
        self._waiting.append((len(self.tasks), task))
        return len(self.tasks)

    def next(self, timeout: float | None = None) -> Done | None:
        if not self._waiting or timeout == 0.0:
            return None  # outcomes come only when somebody waits, so that duplicates meet in flight
        ticket, task = self._waiting.popleft()
        self.before(task)
        error = self.fail(task)
        return Done(ticket, task, failed(task, error) if error else _made(task))

    def results(self) -> Iterator[Done]:
        while (done := self.next()) is not None:
            yield done

    def cancel(self, ticket: int, *, running: bool = True) -> bool:
        kept = [(n, t) for n, t in self._waiting if n != ticket]
        found = len(kept) < len(self._waiting)
        self._waiting = deque(kept)
        return found

    def close(self) -> None:
        self._waiting.clear()


def _made(task: Task) -> Outcome:
    real = example()
    record = renamed(real.record, real.names, task.names, task.filename) | {"key": task.key}
    changed, gone = renamed_files(real.artifacts.__getitem__, real.record, real.names, task.names)
    files = {n: d for n, d in real.artifacts.items() if n not in gone} | changed
    return Outcome(task.key, task.ingredients, task.names, record, files)


def batch(
    inputs: Path, out: Path, executor: Instant | None = None, **asked: Any
) -> tuple[Summary, Instant]:
    """One run over an executor that finishes at once; the summary, and what was executed."""
    executor = executor or Instant()
    given = asked.pop("arguments", (str(inputs),))
    settings = asked.pop("settings", Settings())
    wanted = Asked(inputs=given, output=out, settings=settings, **asked)
    with Store.open(str(out.parent / "store")) as store:
        made = Batch(wanted, store, executor, 2)
        made.run()
    return made.summary, executor


def rows(out: Path) -> list[dict[str, Any]]:
    """All records, in the order of the inputs."""
    return sorted(records(out / NAME), key=lambda r: r["index"])


def by_input(out: Path) -> dict[tuple[str, str | None], Mapping[str, Any]]:
    """Records by path and program; fails where an input has two."""
    found: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for row in records(out / NAME):
        mark = (row["input"]["path"], row["input"]["program"])
        assert mark not in found, f"two records of {mark}"
        found[mark] = row
    return found
