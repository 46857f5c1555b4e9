"""Interruptions from the keyboard, wherever they fall.

An import that is interrupted may end in an ImportError (extension modules replace the exception
that they meet), so the command line remembers that the signal came.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Inside, SIGINT raises KeyboardInterrupt and its number is put into the list."""
    seen: list[int] = []

    def handle(number: int, frame: Any) -> NoReturn:
        seen.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield seen  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
