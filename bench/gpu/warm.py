"""Processes side by side before the race: each compiles the peers of its part of the cases, so that
the caches of torch and Triton on disk have them when the cases are measured one after the other."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence

__all__ = ["together"]


def together(count: int, seconds: float, command: Callable[[str], Sequence[str]]) -> int:
    """Run `command("number/count")` for each number at once; how many ended well. Those that do not
    end in time are killed: their cases are compiled when they are measured."""
    children = [subprocess.Popen(command(f"{n}/{count}")) for n in range(count)]
    deadline = time.monotonic() + seconds
    good = 0
    for child in children:
        try:
            good += child.wait(max(0.0, deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return good
