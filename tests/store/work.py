"""What the processes of these tests do. It is loaded once, by the server that they are forked from,
together with all modules that a store uses: they start in milliseconds."""

from __future__ import annotations

import os
import random
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from nautile.errors import StoreError
from nautile.store import Store

with tempfile.TemporaryDirectory() as _folder, Store.open(_folder) as _store:
    _store.put("k", {}, {"a": b"1"})


def contents(n: int) -> dict[str, bytes]:
    """Artifacts that are known from their number; one of them is in every entry."""
    return {"own": random.Random(n).randbytes(3000), "same": b"the same for all" * 50}


def put_all(address: str, artifacts: Path, numbers: range, start: float) -> None:
    """Put these entries, all processes from the same moment on."""
    time.sleep(max(0.0, start - time.time()))
    with Store.open(address, artifacts) as store:
        for n in numbers:
            assert store.put(f"k{n}", {"n": n}, contents(n)).record == {"n": n}


def put_until_killed(address: str, artifacts: Path, first: int, told: Connection) -> None:
    """Put entries without end; tell the number of each one that was accepted."""
    with Store.open(address, artifacts) as store:
        for n in range(first, first + 10_000):
            store.put(f"k{n}", {"n": n}, contents(n))
            told.send(n)


def open_and_end(address: str, artifacts: Path) -> None:
    """Make the store, or bring it up to date."""
    Store.open(address, artifacts).close()


def without_rights(place: str, read_only: bool, told: Connection) -> None:
    """Read and write a store as a user who owns nothing: what was found, and the error's code."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    found: list[object] = []
    try:
        with Store.open(place, read_only=read_only) as store:
            found.append(store.get("k") is not None)
            store.put("new", {})
    except StoreError as error:
        found.append(error.code)
    told.send(found)
