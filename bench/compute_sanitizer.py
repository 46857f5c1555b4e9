"""NVIDIA's compute-sanitizer over bundles.

The start of a process under a tool takes longer than the kernels do, so that several bundles share
one. Where it finds nothing, all of them are clean; else each is looked at alone, and what the tool
said stands with the bundle that it was said of.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["TOOLS", "find", "looked_at"]

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
ERRORS = 86  # the exit status by which compute-sanitizer tells of errors
TOGETHER = 8  # bundles of one process, at most
SLOW = ("racecheck",)  # tools under which the kernels take longer than the process
LONGEST = 360.0  # seconds of one process
LEAST = 5.0  # seconds for which a process is still started
Command = Callable[..., list[str]]  # of bundles; the process that launches their kernels
Finding = tuple[str, Path, str]  # tool, bundle, "clean", "not run: why" or what was found


def find(given: str | None) -> str | None:
    """compute-sanitizer: as given, on the path, or of an installed wheel."""
    if given:
        return given
    wheels = (Path(p) / "nvidia" for p in sys.path if p)
    found = (p for w in wheels for p in w.glob("*/compute-sanitizer/compute-sanitizer"))
    return shutil.which("compute-sanitizer") or next(map(str, found), None)


def looked_at(
    program: str, tools: Sequence[str], folders: Sequence[Path], command: Command, jobs: int,
    until: float,
) -> Iterator[Finding]:  # fmt: skip
    """What each tool says of each bundle, as the processes end; until perf_counter() is `until`."""
    count = min(TOGETHER, max(1, -(-len(folders) * len(tools) // jobs)))
    with ThreadPoolExecutor(jobs) as pool:
        tasks = [
            pool.submit(_part, program, tool, part, command, until)
            for tool in tools
            for part in _parts(folders, 1 if tool in SLOW else count)
        ]
        for task in tasks:
            yield from task.result()


def _parts(folders: Sequence[Path], count: int) -> list[Sequence[Path]]:
    return [folders[i : i + count] for i in range(0, len(folders), count)]


def _part(
    program: str, tool: str, folders: Sequence[Path], command: Command, until: float
) -> list[Finding]:
    said = _run(program, tool, command(*folders), until)
    if len(folders) == 1 or said == "clean":
        return [(tool, folder, said) for folder in folders]
    return [(tool, f, _run(program, tool, command(f), until)) for f in folders]


def _run(program: str, tool: str, command: list[str], until: float) -> str:
    """What one tool says of a process."""
    left = until - time.perf_counter()
    if left < LEAST:
        return "not run"
    flags = ["--tool", tool, "--error-exitcode", str(ERRORS), "--report-api-errors", "no"]
    flags += ["--padding", "64"] if tool == "memcheck" else []
    try:
        done = subprocess.run(
            [program, *flags, *command],
            capture_output=True, text=True, timeout=min(left, LONGEST), check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "not run" if isinstance(error, subprocess.TimeoutExpired) else f"no tool: {error}"
    if done.returncode == 0:
        return "clean"
    told = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    return " | ".join([*told[1:5], *told[5:][-1:]])[:800] or done.stderr.strip()[-300:]
