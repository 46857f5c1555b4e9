"""How fast the store puts and gets, and that its memory stays flat: 100,000 entries on SQLite.

    python bench/store.py [--entries 100000] [--folder DIR] [-o bench/results/store.json]

An entry is what a batch stores: a record of about 4 kB, one artifact of its own (8 kB) and two that
others have, too. Every put is durable: files and folders synced, one transaction. The peer is
Python's sqlite3 that commits one row a record with the same settings, without artifacts: the floor
of any store on that disk. Put rates are given for each tenth, so that a slope would be seen.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy

from nautile import __version__
from nautile.store import Store

OWN, SHARED = 8_000, 2_000  # bytes of artifacts
TENTHS = 10


def main() -> None:
    """Run all parts in one new store and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where to put the store; its disk is measured")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nautile-store-", dir=options.folder))
    try:
        rows = list(measure(folder, options.entries))
    finally:
        shutil.rmtree(folder)
    text = json.dumps(rows, indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    print(text)


def measure(folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """One row a part."""
    place, luck = folder / "store", random.Random(1)
    keys = [f"{n:064x}" for n in range(count)]
    with Store.open(place) as store:
        yield row(
            "put", count, **puts(store, keys), peers=raw(folder / "raw.db", min(count, 5_000))
        )
        chosen = [luck.choice(keys) for _ in range(min(count, 50_000))]
        yield row("get", len(chosen), **timed_all(store.get, chosen))
        yield row("get, missing", 20_000, **timed_all(store.get, [f"x{n}" for n in range(20_000)]))
        some = chosen[:5_000]
        yield row("get and read artifacts", len(some), **timed_all(lambda k: read(store, k), some))
        yield row("put again", len(some), **timed_all(lambda k: put(store, k, 0), some))
    with clocked() as opened, Store.open(place) as store:
        store.get(keys[0])
    yield row("open and first get", 1, seconds=opened())
    with Store.open(place) as store:
        parts: dict[str, Callable[[], Any]] = {
            "stats": store.stats,
            "gc, dry run, half of it": lambda: store.gc(max_bytes=count * 6_000, dry_run=True),
            "verify": store.verify,
            "export": lambda: store.export(folder / "archive.tar"),
        }
        for name, part in parts.items():
            with clocked() as took:
                result = part()
            yield row(name, count, seconds=took(), result=short(result.as_dict()))
    (folder / "archive.tar").unlink()


def puts(store: Store, keys: list[str]) -> dict[str, Any]:
    """Put all keys; the rate of each tenth and the memory after it."""
    rates, memory = [], []
    start = time.perf_counter()
    size = max(1, len(keys) // TENTHS)
    for at in range(0, len(keys), size):
        part = keys[at : at + size]
        begin = time.perf_counter()
        for n, key in enumerate(part, at):
            put(store, key, n)
        rates.append(round(len(part) / (time.perf_counter() - begin), 1))
        memory.append(rss())
    seconds = time.perf_counter() - start
    correct = len(list(store.keys())) == len(keys)
    return {"seconds": seconds, "rates": rates, "rss_mib": memory, "correct": correct}


def put(store: Store, key: str, n: int) -> Any:
    """Store the entry of that number; it is drawn from the number alone."""
    luck = random.Random(n)
    made_of = {"term": key[:40], "target": luck.choice(["h100", "h200"]), "code": __version__}
    artifacts = {
        "kernel.cubin": luck.randbytes(OWN),
        "kernel.cu": bytes(SHARED - 1) + bytes([n % 50]),
        "manifest.json": bytes(SHARED - 1) + bytes([n % 7]),
    }
    return store.put(key, record(n), artifacts, ingredients=made_of)


def record(n: int) -> dict[str, Any]:
    """A record as long as that of a program of three kernels."""
    kernel = {"name": f"kernel_{n}", "tile": {"t": 64, "s": 128}, "rules": ["exp_scale"] * 60}
    return {"program": f"p{n}", "status": "ok", "chosen": {"kernels": [kernel] * 4, "seconds": n}}


def read(store: Store, key: str) -> bool:
    """Whether the entry and all its artifacts are there."""
    entry = store.get(key)
    return entry is not None and all(map(store.read, entry.artifacts.values()))


def timed_all(action: Callable[[str], Any], keys: list[str]) -> dict[str, Any]:
    """Seconds and latencies of the action on each key; `hits` are answers that are not empty."""
    latencies, hits = [], 0
    for key in keys:
        begin = time.perf_counter()
        hits += bool(action(key))
        latencies.append(time.perf_counter() - begin)
    latencies.sort()
    ms = {f"p{p}": round(1e3 * latencies[len(latencies) * p // 100], 3) for p in (50, 99)}
    return {"seconds": sum(latencies), "latency_ms": ms, "hits": hits, "rss_mib": rss()}


def raw(path: Path, count: int) -> dict[str, Any]:
    """sqlite3 alone: one committed row a record, with the store's settings."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE t (key TEXT PRIMARY KEY, record TEXT)")
    with clocked() as took:
        for n in range(count):
            database.execute("INSERT INTO t VALUES (?, ?)", (f"{n:064x}", json.dumps(record(n))))
    database.close()
    return {"sqlite3, no artifacts": {"per_second": round(count / took(), 1)}}


@contextmanager
def clocked() -> Iterator[Callable[[], float]]:
    """A function that tells how long the block took."""
    begin = time.perf_counter()
    end = [0.0]
    try:
        yield lambda: end[0] - begin
    finally:
        end[0] = time.perf_counter()


def rss() -> float:
    """The process's memory now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def short(result: dict[str, Any]) -> dict[str, Any]:
    """The figures of a report that say that it did its work."""
    wanted = ("entries", "artifacts", "bytes", "sound", "shared_bytes", "remaining_entries")
    return {name: result[name] for name in wanted if name in result}


def row(case: str, count: int, **found: Any) -> dict[str, Any]:
    """A row of the results, with the machine and the date in it."""
    seconds = found.pop("seconds")
    return {
        "group": "store",
        "case": case,
        "count": count,
        "correct": found.pop("correct", True),
        "nautile": {"seconds": round(seconds, 3), "per_second": round(count / seconds, 1)} | found,
        "peers": found.pop("peers", {}),
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "nautile": __version__,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "sqlalchemy": sqlalchemy.__version__,
        },
    }


if __name__ == "__main__":
    main()
