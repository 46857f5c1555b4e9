"""Running a task: the stages, from the text to a certified bundle in memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nautile import lang
from nautile.errors import ExecutionError, InputError, NautileError
from nautile.task.make import names_of, packs_on_disk
from nautile.task.model import Outcome, Task
from nautile.terms import Program

if TYPE_CHECKING:
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["failed", "run"]


def run(
    task: Task,
    worker: Worker | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Outcome:
    """Optimize a task's program; what goes wrong is the outcome's record, never raised.

    `worker` saturates (a new one where left out); `progress` is told the name of each stage.
    """
    try:
        return _optimized(task, worker, progress)
    except NautileError as error:
        return failed(task, error)
    except MemoryError:
        return failed(task, ExecutionError("the memory does not suffice", code="memory-limit"))
    except RecursionError:
        return failed(task, ExecutionError("nested too deeply for a stage", code="internal"))
    except Exception as error:
        return failed(task, _defect(error))


def failed(task: Task, error: NautileError) -> Outcome:
    """The outcome of a task that was not finished."""
    record: dict[str, Any] = {
        "program": task.program,
        "source": task.filename,
        "key": task.key,
        "target": task.settings.target,
        "numerics": task.settings.numerics,
        "status": "error",
        "error": error.as_dict(),
        "saturation": None,
        "baseline": None,
        "chosen": None,
        "certificate": None,
        "timings": {},
    }
    return Outcome(task.key, dict(task.ingredients), task.names, record)


def _defect(error: Exception) -> ExecutionError:
    """A defect of ours, with the place where it was noticed."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return ExecutionError(f"{type(error).__name__}: {error}{place}"[:2000], code="internal")


def _optimized(task: Task, worker: Worker | None, progress: Callable[[str], None]) -> Outcome:
    from nautile.provenance import ingredients
    from nautile.stages import optimize

    program = _program(task)
    with packs_on_disk(task.settings.rules) as rules:
        options = task.settings.options(rules)
        result = optimize(program, options, worker=worker, progress=progress)
        record, artifacts = result.as_dict(), _artifacts(result, progress)
        found = ingredients(lang.key(program), options)
    return Outcome(record["key"], found, names_of(program), record, artifacts)


def _artifacts(result: Optimization, progress: Callable[[str], None]) -> dict[str, bytes]:
    from nautile.bundle import contents_of, entry_of

    progress("bundle")
    return contents_of([entry_of(result)], target=result.options.target)


def _program(task: Task) -> Program:
    """The task's program. InputError where its text holds none of that name."""
    for program in _programs(task.text, task.filename, tuple(sorted(task.dims.items()))):
        if program.name == task.program:
            return program
    raise InputError(f"{task.filename}: holds no program {task.program}", code="unknown-name")


@lru_cache(maxsize=2)  # tasks of one file come one after the other
def _programs(text: str, filename: str, dims: tuple[tuple[str, int], ...]) -> tuple[Program, ...]:
    return lang.parse(text, filename, dict(dims))
