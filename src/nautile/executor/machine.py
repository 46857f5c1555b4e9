"""What this machine has to give: cores and memory, as a container or a cgroup leaves them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "machine", "memory_of", "processor_time_of", "resident"]

_EACH = 2 << 30  # bytes that a worker should have at least: most programs take under one
_PAGE, _HERTZ = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores that this process may use, and bytes of memory that are free to use."""

    cores: int
    memory_bytes: int

    @property
    def workers(self) -> int:
        """How many workers fit."""
        return max(1, min(self.cores, self.memory_bytes // _EACH))

    def share(self, workers: int) -> int:
        """Bytes that each of so many workers may use: nine tenths of all, divided."""
        return self.memory_bytes * 9 // 10 // max(workers, 1)


def machine() -> Machine:
    """This machine as it is now. Sources: sched_getaffinity(2), /proc/meminfo (MemAvailable), and
    the limits of control groups (v2: cpu.max, memory.max; v1: cfs_quota_us, limit_in_bytes)."""
    cores = len(os.sched_getaffinity(0))
    return Machine(max(1, min([cores, *_quota()])), min([_available(), *_limit()]))


def _available() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * _PAGE


def _quota() -> list[int]:
    """Whole cores that control groups leave, at least one; nothing where they set no limit."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return [max(1, math.floor(int(quota) / int(period)))] if quota != "max" else []
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup/cpu")
        quota, period = ((group / f"cpu.cfs_{n}_us").read_text() for n in ("quota", "period"))
        return [max(1, int(quota) // int(period))] if int(quota) > 0 else []
    return []


def _limit() -> list[int]:
    second = ("memory.max", "memory.current")
    first = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    for most, used in (second, first):
        with suppress(OSError, ValueError):
            group = Path("/sys/fs/cgroup")
            limit, taken = (int((group / n).read_text()) for n in (most, used))
            return [max(limit - taken, 0)]
    return []


def resident(process: int) -> int:
    """Bytes of a process that are in memory; 0 where it is gone."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    return 0


def memory_of(process: int) -> int:
    """Bytes in memory of a process and of all processes below it."""
    return sum(map(resident, _below([process])))


def processor_time_of(process: int) -> float:
    """Seconds of processor time that a process, all processes below it, and those of their children
    that they have waited for, have used (proc(5), /proc/pid/stat, fields 14 to 17)."""
    return sum(map(_processor_time, _below([process])))


def _processor_time(process: int) -> float:
    with suppress(OSError, ValueError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _HERTZ
    return 0.0


def _below(processes: Iterable[int]) -> set[int]:
    found: set[int] = set()
    left = list(processes)
    while left:
        process = left.pop()
        found.add(process)
        for task in _children(process):
            left += [child for child in task if child not in found]
    return found


def _children(process: int) -> list[list[int]]:
    """The children of each thread of a process (proc(5), /proc/pid/task/tid/children)."""
    found: list[list[int]] = []
    with suppress(OSError, ValueError):
        for thread in os.listdir(f"/proc/{process}/task"):
            text = Path(f"/proc/{process}/task/{thread}/children").read_text()
            found.append([int(n) for n in text.split()])
    return found
