"""Making the page that explains a choice, in a child with limits.

```
stdin   the task, MessagePack     argv   the folder to write, bytes of memory, the parent's number
stdout  {"error": {code, message} | null, "record": {...}}
```
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from nautile.errors import NautileError
from nautile.orphans import DIE_WITH_PARENT, die_with_parent
from nautile.task import Task
from nautile.terms import Program

from .settings import Settings

__all__ = ["Making"]

_ONE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Making:
    """A page that is being made; its files live as long as this."""

    def __init__(self, task: Task, settings: Settings) -> None:
        self._settings, self._folder = settings, tempfile.TemporaryDirectory(prefix="nautile-page-")
        home = Path(self._folder.name)
        self._page, self._said, self._trouble = home / "page", home / "said", home / "trouble"
        (home / "task").write_bytes(msgspec.msgpack.encode(task))
        with (
            (home / "task").open("rb") as given,
            self._said.open("wb") as said,
            self._trouble.open("wb") as trouble,
        ):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nautile.service.explaining", str(self._page)]
                + [str(settings.task_memory), str(os.getpid())],
                stdin=given,
                stdout=said,
                stderr=trouble,
                env=os.environ | dict.fromkeys(_ONE, "1") | {DIE_WITH_PARENT: "1"},
                start_new_session=True,
            )
        self._until = time.monotonic() + settings.explain_seconds
        self._late = False

    def __enter__(self) -> Making:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._folder.cleanup()

    def wait(self, seconds: float) -> bool:
        """Wait that long; whether it has ended. One that takes too long is ended here."""
        if time.monotonic() > self._until:
            self._late = True
            self.kill()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it, with all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def error(self) -> dict[str, Any] | None:
        """What went wrong, when it has ended."""
        if self._late:
            seconds = self._settings.explain_seconds
            return {"code": "time-limit", "message": f"it took longer than {seconds:g} s"}
        found = self._told().get("error", _DIED)
        return None if found is None else dict(found)

    def record(self) -> dict[str, Any]:
        """The explanation as `explain --json` prints it."""
        return dict(self._told()["record"])

    def files(self) -> dict[str, Path]:
        """The page's files by relative path."""
        found = sorted(p for p in self._page.rglob("*") if p.is_file())
        return {p.relative_to(self._page).as_posix(): p for p in found}

    def _told(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._said.read_bytes()))
        except ValueError:
            return {}


_DIED = {"code": "worker-died", "message": "the process that explains died"}


# ---- the child ---------------------------------------------------------------------------------


def _main(folder: Path, memory: int, parent: int) -> None:
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    sink = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may reach the answer
    try:
        told = {"error": None, "record": _explained(task, folder)}
    except NautileError as error:
        told = {"error": error.as_dict(), "record": None}
    except MemoryError:
        message = "the memory does not suffice"
        told = {"error": {"code": "memory-limit", "message": message}, "record": None}
    with sink:
        json.dump(told, sink)


def _explained(task: Task, folder: Path) -> dict[str, Any]:
    from nautile.inspector.explanation import explain
    from nautile.inspector.page import write_page
    from nautile.stages import optimize
    from nautile.task.make import packs_on_disk
    from nautile.worker import Worker

    from .results import finite

    with packs_on_disk(task.settings.rules) as rules, Worker() as worker:
        options = task.settings.options(rules)
        result = optimize(_program(task), options, worker=worker)
        explanation = explain(result, worker)
        write_page(folder, explanation, result)
        found: dict[str, Any] = finite(explanation.as_dict())
        return found


def _program(task: Task) -> Program:
    from nautile import lang

    found = lang.parse(task.text, task.filename, task.dims)
    return next(program for program in found if program.name == task.program)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
