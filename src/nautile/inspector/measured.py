"""Predictions beside measurements.

Times come from a bundle's folder (`tuned.json`, which `nautile bench` writes: milliseconds of the
implementations of each launch that has several) or from a file that `nautile bench --json` wrote
(the whole program too). A time belongs to a kernel of the explained program where launch and
schedule are called the same; others are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nautile.errors import InputError

from .subject import Subject

__all__ = ["Timing", "of_bundle", "of_report", "predictions", "timings"]

_MOST = 1 << 26  # bytes of a file of measurements


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a kernel was predicted and measured to take (the whole program, where `kernel`
    is None) under one schedule, on a GPU, on a day; `predicted` is None where the program that is
    explained has no such schedule."""

    kernel: str | None
    schedule: str
    measured: float
    gpu: str
    date: str
    source: str
    predicted: float | None = None
    picked: bool = False

    @property
    def ratio(self) -> float | None:
        """Measured by predicted: above 1, slower than the model says."""
        return None if not self.predicted else self.measured / self.predicted

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of one time."""
        return {
            "kernel": self.kernel,
            "schedule": self.schedule,
            "predicted": self.predicted,
            "measured": self.measured,
            "ratio": self.ratio,
            "gpu": self.gpu,
            "date": self.date,
            "picked": self.picked,
            "source": self.source,
        }


def timings(sources: Sequence[Path | str | Timing], subject: Subject) -> tuple[Timing, ...]:
    """The times of all sources that belong to the program.

    Raises InputError (BundleError for a damaged bundle) for a source that cannot be read.
    """
    known = predictions(subject)
    found: list[Timing] = []
    for source in sources:
        own = [source] if isinstance(source, Timing) else _read(Path(source), subject)
        found += [_predicted(t, known) for t in own]
    return tuple(found)


def predictions(subject: Subject) -> dict[tuple[str | None, str], float]:
    """Predicted seconds of each launch's implementations by launch and schedule, and of the whole
    program as it runs."""
    found: dict[tuple[str | None, str], float] = {(None, ""): subject.plan.seconds}
    for built in subject.result.built:
        for way in built.implementations:
            found.setdefault((built.kernel.name, way.schedule), way.kernel.prediction.seconds)
    for kernel in subject.plan.kernels:
        found.setdefault((kernel.name, ""), kernel.prediction.seconds)
    return found


def _predicted(timing: Timing, known: Mapping[tuple[str | None, str], float]) -> Timing:
    if timing.predicted is not None:
        return timing
    return replace(timing, predicted=known.get((timing.kernel, timing.schedule)))


def _read(path: Path, subject: Subject) -> list[Timing]:
    name = subject.result.program.name
    return list(of_bundle(path, name) if path.is_dir() else of_report(path, name))


def of_bundle(folder: Path, program: str) -> Iterator[Timing]:
    """The times of a program's implementations that were recorded in its bundle's folder."""
    from nautile.bundle import load_bundle
    from nautile.runtime.record import TUNED, Record, sources

    loaded = load_bundle(folder)
    record = Record.load(folder)
    launches = [x for x in loaded.manifest.launches if x.program == program]
    tuned = folder / TUNED
    date = _day(tuned) if tuned.exists() else ""
    for gpu, programs in record.devices.items():
        for pick in programs.get(program, ()):
            if pick.launch >= len(launches):
                continue
            launch = launches[pick.launch]
            taken = {
                w.schedule for w in launch.implementations if sources(loaded, w) == pick.sources
            }
            for key, ms in pick.ms.items():
                schedule = key.partition(": ")[2]
                yield Timing(
                    launch.name, schedule, ms / 1e3, gpu, date, str(folder),
                    picked=schedule in taken,
                )  # fmt: skip


def of_report(path: Path, program: str) -> Iterator[Timing]:
    """The times in a report: one object, or one a line, or {"programs": [...]}."""
    date = _day(path) if path.exists() else ""
    for report in _reports(path):
        if not isinstance(report, dict) or report.get("program") != program:
            continue
        gpu = str(report.get("gpu", ""))
        day = str(report.get("date", date))
        if _is_time(report.get("ms")):
            yield Timing(None, "", report["ms"] / 1e3, gpu, day, str(path))
        for contest in _list(report.get("contests")):
            for way in _list(contest.get("implementations")):
                if _is_time(way.get("ms")):
                    yield Timing(
                        str(contest.get("launch")), str(way.get("schedule", "")), way["ms"] / 1e3,
                        gpu, day, str(path), picked=bool(way.get("picked")),
                    )  # fmt: skip


def _reports(path: Path) -> Iterator[Any]:
    try:
        if path.stat().st_size > _MOST:
            raise InputError(f"{path} has more than {_MOST} bytes", code="measured")
        lines = [x for x in path.read_text(encoding="utf-8").splitlines() if x.strip()]
        found = [json.loads(x) for x in lines] if _by_lines(lines) else [json.loads("".join(lines))]
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path} holds no measurements (a bundle, or `nautile bench --json`): {error}"
        raise InputError(message, code="measured") from error
    for value in found:
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            many = row.get("programs") if isinstance(row, dict) else None
            yield from many if isinstance(many, list) else [row]


def _by_lines(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and all(
        x.lstrip().startswith("{") and x.rstrip().endswith("}") for x in lines
    )


def _list(value: Any) -> Iterable[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def _day(path: Path) -> str:
    """The day on which the file was written: neither record holds one."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
