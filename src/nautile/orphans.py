"""Processes that end with the one that started them, however that one ends.

Linux sends a signal of choice to a process whose parent thread is gone (prctl(2),
PR_SET_PDEATHSIG): even a parent that was killed leaves none behind. The setting holds for the
process that makes it alone, so children that start children ask for it by an environment variable.
"""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["DIE_WITH_PARENT", "die_with_parent", "die_with_parent_if_asked"]

DIE_WITH_PARENT = "NAUTILE_DIE_WITH_PARENT"
"""Where this variable is set, a child process ends with its parent."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """End this process (SIGKILL) when the thread that started it ends; at once if the process
    `parent` is gone already. The starting thread must live as long as this process is wanted."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_parent_if_asked() -> None:
    """The same, where the environment asks for it."""
    if os.environ.get(DIE_WITH_PARENT):
        die_with_parent(os.getppid())
