"""The workers of one `nautile serve`: started, started again when they die, ended with it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from prometheus_client import multiprocess

from .logs import event
from .metrics import FOLDER
from .settings import Settings

__all__ = ["supervise"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY = 60.0  # seconds of life after which a death is the first one again
_PATIENCE = 10.0  # seconds beyond the drain in which a worker has to end


async def supervise(settings: Settings, draining: asyncio.Event) -> None:
    """Keep `settings.workers` workers alive until `draining` is set; then wait for their end."""
    environment = os.environ | settings.environment()
    async with asyncio.TaskGroup() as group:
        for _ in range(settings.workers):
            group.create_task(_keep_one(settings, environment, draining))


async def _keep_one(
    settings: Settings, environment: Mapping[str, str], draining: asyncio.Event
) -> None:
    pause = _FIRST_PAUSE
    while not draining.is_set():
        born = time.monotonic()
        process = await _started(environment)
        if await _ended(process, draining):
            event("worker died", logging.WARNING, pid=process.pid, status=process.returncode)
            pause = _FIRST_PAUSE if time.monotonic() - born > _STEADY else pause
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await draining.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            await _stop(process, settings.drain_seconds + _PATIENCE)
        if os.environ.get(FOLDER):
            multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]


async def _started(environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "nautile", "worker", "--parent", str(os.getpid()))
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        start_new_session=True,  # an interrupt from the keyboard is the server's alone
    )


async def _ended(process: asyncio.subprocess.Process, draining: asyncio.Event) -> bool:
    """True when the worker has ended by itself, False when it is to be ended."""
    end = asyncio.create_task(process.wait())
    stop = asyncio.create_task(draining.wait())
    await asyncio.wait({end, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if end.done():
        return True
    end.cancel()
    return False


async def _stop(process: asyncio.subprocess.Process, seconds: float) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        event("worker killed", logging.WARNING, pid=process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
