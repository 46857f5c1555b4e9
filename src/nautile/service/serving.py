"""`nautile serve` and `nautile worker`, once their settings are known."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

from nautile.errors import InputError
from nautile.store import Store

from . import logs, tokens
from .app import application, context_of
from .server import Server, configured
from .settings import Settings
from .supervisor import supervise
from .worker import Worker

__all__ = ["loopback", "open_store", "serve", "work"]


def open_store(settings: Settings) -> Store:
    """The store of these settings. Raises StoreError."""
    folder = Path(settings.artifacts) if settings.artifacts else None
    return Store.open(settings.store, folder)


def serve(settings: Settings, *, authenticated: bool) -> None:
    """Answer requests until a signal, with workers beside.

    Raises InputError (`usage`, `address`) and StoreError before anything is answered.
    """
    if not authenticated and not loopback(settings.host):
        message = f"--no-auth listens to this machine alone, not to {settings.host}"
        raise InputError(message, code="usage")
    logs.configure()
    with open_store(settings) as store, _bound(settings) as listening:
        context = context_of(settings, store, authenticated=authenticated)
        if authenticated and not tokens.listed(store.database):
            logs.event("no token exists yet: see `nautile token create`", logging.WARNING)
        server = Server(configured(application(context), context), context)

        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again at its end
            signal.signal(number, lambda *_: None)

        async def both() -> None:
            workers = asyncio.create_task(supervise(settings, context.draining))
            await server.serve(sockets=[listening])
            context.draining.set()
            await workers

        asyncio.run(both())
    logs.event("ended")


def work(settings: Settings, parent: int | None = None) -> None:
    """Execute runs until a signal, or until the process `parent` has ended."""
    logs.configure()
    with open_store(settings) as store:
        worker = Worker(store, settings, parent=parent)

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        worker.run()


def loopback(host: str) -> bool:
    """True for a name or address of this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends without delay (TCP_NODELAY) on sockets that say that they are TCP's.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((settings.host.strip("[]"), settings.port))
        found.listen(2048)
    except (OSError, OverflowError) as error:
        found.close()
        message = f"cannot listen at {settings.host}:{settings.port}: {error}"
        raise InputError(message, code="address") from None
    return found
