"""A run: cases in a child process, one after the other, each record written as soon as it is made.

A child that hangs or breaks its CUDA context costs its own case only: the parent writes a record of
the failure and starts another child for the rest.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from .case import Case
from .options import Options
from .store import Record, failure, line, read, write

__all__ = ["RECORDED", "Machine", "run", "supervise"]

# Exit statuses of a child whose last case has its record: done, hung (interleaved.first_run), and
# with a CUDA context beyond use.
DEAD = 4
RECORDED = (0, 3, DEAD)
FRUITLESS = 3  # children without a record after which the next would make none either
Child = Callable[[float], str | None]  # until when; what ended it in a case


class Machine(Protocol):
    """What a case is measured on: a GPU, or nothing (dry.py)."""

    def stamp(self) -> Record: ...
    def dead(self) -> bool: ...
    def clean(self) -> None: ...
    def measure(
        self, case: Case, options: Options, until: float, give_up: Callable[[], Any]
    ) -> Record: ...


def run(
    machine: Machine, cases: Sequence[Case], path: Path, options: Options, until: float
) -> None:
    """Measure the cases that the file has no record of yet, while there is time."""
    stamp = machine.stamp()
    for case in cases[len(read(path)) :]:
        if time.time() > until:
            return
        began = time.time()
        record = _record(machine, case, path, options, until, stamp)
        versions = stamp.get("versions", {}) | record.pop("made_with", {})
        record |= stamp | {"versions": versions, "seconds": time.time() - began}
        write(path, [*read(path), record])
        print(line(record), flush=True)
        if not record["correct"] and machine.dead():
            sys.stdout.flush()
            os._exit(DEAD)
        machine.clean()


def _record(
    machine: Machine, case: Case, path: Path, options: Options, until: float, stamp: Record
) -> Record:
    give_up = partial(_give_up, path, failure(case, "its kernels do not end") | stamp)
    try:
        return machine.measure(case, options, until, give_up)
    except Exception as error:  # one case that fails must not hide the others
        traceback.print_exc(file=sys.stderr)
        return failure(case, f"{type(error).__name__}: {error}")


def _give_up(path: Path, record: Record) -> None:
    write(path, [*read(path), record])


def supervise(cases: Sequence[Case], path: Path, until: float, child: Child) -> list[Record]:
    """Start children until each case has a record, the time is over, or several children in a row
    made none; all records."""
    write(path, [])
    fruitless, why = 0, "the time was over"
    while len(done := read(path)) < len(cases) and time.time() < until:
        reason = child(until)
        now = read(path)
        fruitless = fruitless + 1 if reason and len(now) == len(done) else 0
        if fruitless == FRUITLESS:
            why = reason or ""
            break
        if len(now) < len(cases) and time.time() < until and (reason or len(now) == len(done)):
            reason = reason or "the process left no record"
            write(path, [*now, failure(cases[len(now)], reason)])
    done = read(path)
    late = [failure(c, f"not run: {why}") for c in cases[len(done) :]]
    records = [*done, *(r | {"not_run": True} for r in late)]
    write(path, records)
    return records
