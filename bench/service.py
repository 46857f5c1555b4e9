"""Load on a running service, over loopback: submissions, polls and event streams, all at once.

```
python bench/service.py [--streams 200] [--seconds 30] [--clients 8] [-o FILE]
```

A server of its own is started (SQLite, one worker, tokens). Some programs are new and are queued,
most are known and are answered from the store, as in a real day. Each kind of request has its
percentiles; every answer that is not what was asked for is an error. Event streams are all open
from the beginning to the end; each must tell its job's end. Afterwards the queue is filled beyond
its limit: refusals must be 429 or 503 with Retry-After, and nothing else. JSON out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from nautile import __version__
from nautile.service import tokens
from nautile.store import Store

PROGRAM = """\
def scaled(x: f32[N,M], *, N=64, M=128) -> f32[N,M]:
    y[n,m] = x[n,m] * {a} + {b}
    return y
"""
NEW = 0.05  # of the submissions
OUT = Path(__file__).with_name("results") / "service.json"


class Load:
    """What is asked, how long each answer took, and what was wrong."""

    def __init__(self, client: httpx.AsyncClient, until: float, seed: int = 0) -> None:
        self.client, self.until = client, until
        self.chance = random.Random(seed)
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.errors: Counter[str] = Counter()
        self.jobs: list[str] = []
        self.fresh = 0

    async def timed(self, name: str, method: str, path: str, *good: int, **more: Any) -> Any:
        """One request; its time is kept where the answer is as it has to be."""
        begun = time.perf_counter()
        try:
            answer = await self.client.request(method, path, **more)
        except httpx.TransportError as error:
            self.errors[f"{name}: {type(error).__name__}"] += 1
            return None
        if answer.status_code not in good:
            self.errors[f"{name}: {answer.status_code}"] += 1
            return None
        self.times[name].append(time.perf_counter() - begun)
        return answer

    async def submitter(self) -> None:
        """Submit: a known program mostly, a new one now and then."""
        while time.monotonic() < self.until:
            known = self.chance.random() > NEW
            self.fresh += not known
            a = self.chance.randint(1, 5) if known else 1000 + self.fresh
            body = {"text": PROGRAM.format(a=a, b=1), "compile": False}
            name = "submit known" if known else "submit new"
            answer = await self.timed(name, "POST", "/v1/optimizations", 200, 202, json=body)
            if answer is not None:
                self.jobs.append(answer.json()["id"])

    async def poller(self) -> None:
        """Look at a job, a result or the list."""
        while time.monotonic() < self.until:
            id = self.chance.choice(self.jobs[-200:]) if self.jobs else None
            if id is None:
                await asyncio.sleep(0.1)
                continue
            home = f"/v1/optimizations/{id}"
            await self.timed("poll", "GET", home, 200)
            await self.timed("result", "GET", f"{home}/result", 200, 409)
            await self.timed("list", "GET", "/v1/optimizations?limit=20", 200)

    async def listener(self, id: str) -> None:
        """Follow a job that stays queued until it is cancelled, and see its end."""
        begun, first, last = time.perf_counter(), None, ""
        try:
            path = f"/v1/optimizations/{id}/events"
            async with self.client.stream("GET", path, timeout=None) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("event: "):
                        first = first or time.perf_counter()
                        last = line.removeprefix("event: ")
        except httpx.TransportError as error:
            self.errors[f"stream: {type(error).__name__}"] += 1
            return
        if last != "cancelled" or first is None:
            self.errors[f"stream: ended with {last or 'nothing'}"] += 1
        else:
            self.times["stream's first event"].append(first - begun)

    def percentiles(self) -> dict[str, dict[str, float]]:
        """Milliseconds by kind of request."""
        found = {}
        for name, times in sorted(self.times.items()):
            ordered = sorted(times)
            row = {
                f"p{p}": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 2)
                for p in (50, 90, 99)
            }
            found[name] = {"count": len(ordered), **row, "max": round(1000 * ordered[-1], 2)}
        return found


async def loaded(url: str, token: str, streams: int, clients: int, seconds: float) -> Load:
    """Put the service under load; streams first."""
    limits = httpx.Limits(max_connections=streams + 4 * clients + 10)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=60, trust_env=False
    ) as client:
        load = Load(client, 0)
        await _warm(load)
        followed = await _parked(client, streams)
        listening = [asyncio.create_task(load.listener(id)) for id in followed]
        await asyncio.sleep(min(5.0, 0.02 * streams))
        load.times.clear()
        load.until = time.monotonic() + seconds
        asking = [load.submitter() for _ in range(clients)] + [
            load.poller() for _ in range(clients)
        ]
        await asyncio.gather(*asking)
        for id in followed:
            await load.timed("cancel", "DELETE", f"/v1/optimizations/{id}", 200)
        await asyncio.wait_for(asyncio.gather(*listening), 60)
        return load


async def _warm(load: Load) -> None:
    """Have the known programs known."""
    for a in range(1, 6):
        body = {"text": PROGRAM.format(a=a, b=1), "compile": False}
        answer = await load.client.post("/v1/optimizations", json=body)
        home = answer.raise_for_status().headers["location"]
        while (await load.client.get(home)).json()["state"] in ("queued", "running"):
            await asyncio.sleep(0.1)


async def _parked(client: httpx.AsyncClient, count: int) -> list[str]:
    """Jobs that wait: a token's lowest priority behind programs that take long."""
    found = []
    for n in range(count):
        body = {"text": PROGRAM.format(a=7, b=10_000 + n), "compile": False, "rows": 100 + n}
        answer = await client.post("/v1/optimizations", json=body)
        found.append(answer.raise_for_status().json()["id"])
    return found


async def overfull(url: str, token: str, count: int) -> dict[str, Any]:
    """Submit more than the queue holds."""
    answers: Counter[str] = Counter()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=60, trust_env=False
    ) as client:
        for n in range(count):
            body = {"text": PROGRAM.format(a=9, b=50_000 + n), "compile": False}
            answer = await client.post("/v1/optimizations", json=body)
            again = answer.headers.get("retry-after", "")
            code = answer.json().get("code", "")
            answers[f"{answer.status_code} {code} {'Retry-After' if again else ''}".strip()] += 1
    return dict(answers)


@contextmanager
def served(folder: Path, *options: str, **settings: object) -> Iterator[tuple[str, int]]:
    """A service on the folder's store: its address, and its process."""
    log = folder / f"log-{time.monotonic_ns()}"
    words = [sys.executable, "-m", "nautile", "serve", "--store", str(folder / "store")]
    words += ["--port", "0", *options]
    environment = os.environ | {f"NAUTILE_{k.upper()}": str(v) for k, v in settings.items()}
    with log.open("wb") as errors:
        process = subprocess.Popen(words, stdout=errors, stderr=errors, env=environment)
    try:
        while not (found := re.search(r'"addresses": \["([^"]+)"', log.read_text())):
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.05)
        yield f"http://{found[1]}", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def memory(process: int) -> int:
    """Bytes of a process in memory, at most so far."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) << 10  # type: ignore[index]


def main() -> int:
    """Run it, print and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--queue", type=int, default=50, help="limit of the overfull queue")
    parser.add_argument("-o", "--output", type=Path, default=OUT)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nautile-load-") as name:
        folder = Path(name)
        told = _measured(folder, asked)
    asked.output.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return 1 if told["errors"] else 0


def _measured(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    with Store.open(folder / "store") as store:
        plenty = 1_000_000
        token = tokens.create(store.database, "load", rate=1e6, burst=plenty, concurrency=plenty)
    with served(folder) as (url, _):
        warmed = asyncio.run(_only_warm(url, token))
    with served(folder, "--workers", "0") as (url, process):
        begun = time.monotonic()
        load = asyncio.run(loaded(url, token, asked.streams, asked.clients, asked.seconds))
        seconds, peak = time.monotonic() - begun, memory(process)
    with served(folder, "--workers", "0", queue=asked.queue) as (url, _):
        refused = asyncio.run(overfull(url, token, 2 * asked.queue))
    done = sum(len(times) for times in load.times.values())
    return {
        "streams": asked.streams,
        "clients": 2 * asked.clients,
        "seconds": round(seconds, 1),
        "known_programs": warmed,
        "requests": done,
        "requests_per_second": round(done / asked.seconds, 1),
        "milliseconds": load.percentiles(),
        "errors": dict(load.errors),
        "server_memory_bytes": peak,
        "overfull": refused,
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"nautile": __version__, "python": platform.python_version()},
    }


async def _only_warm(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=60, trust_env=False
    ) as client:
        await _warm(Load(client, 0))
    return 5


if __name__ == "__main__":
    sys.exit(main())
