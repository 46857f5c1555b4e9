"""Kill the service again and again, and count what came of what it had accepted.

```
cd tests && python -m service.kills --kills 300 [--database postgresql] [--seed 1] [-o FILE]
```

Programs are submitted all the time, each under an idempotency key, and again until somebody
answers. Meanwhile `kill -9` falls at random moments on the server, on its workers, on the
processes that execute for them, and on those that parse. In the end every accepted job must be
done, once, with the result of an undisturbed run, and no artifact may be damaged. Prints one JSON
object; the exit status tells whether all of that holds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from nautile.store import Store
from nautile.task import Settings, run, tasks_of

from .running import Server, program, serving

__all__ = ["Outcome", "disturbed"]

_SETTINGS = {
    "lease_seconds": 3,
    "claim_seconds": 0.1,
    "attempts": 100_000,  # kills are not the jobs' fault
    "drain_seconds": 5,
    "readers": 1,
}
_KINDS = ("server", "worker", "executor", "reader")
_WEIGHTS = (1, 2, 3, 1)  # what is at work is hit more often


@dataclass
class Outcome:
    """What happened. `problems` is empty where every promise held."""

    kills: Counter[str] = field(default_factory=Counter)
    accepted: dict[str, str] = field(default_factory=dict)  # the idempotency key's job
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "killed": dict(self.kills),
            "facts": {"accepted": len(self.accepted)},
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


def disturbed(
    address: str, artifacts: Path | None, folder: Path, kills: int, seed: int = 0, wait: float = 300
) -> Outcome:
    """Serve, submit and kill; then look at what is left."""
    begun, outcome = time.monotonic(), Outcome()
    chance, port = random.Random(seed), _free_port()
    with ExitStack() as stack:
        place = _Place(address, artifacts, folder, port)
        place.start()
        stack.callback(place.stop)
        stop = threading.Event()
        thread = threading.Thread(target=_submit, args=(place, outcome, stop, seed))
        thread.start()
        try:
            while outcome.kills.total() < kills:
                time.sleep(chance.uniform(0.1, 2.5))
                _kill(place, chance, outcome)
        finally:
            stop.set()
            thread.join(120)
        _settled(place, outcome, wait)
    with Store.open(address, artifacts) as store:
        _check(store, outcome)
    outcome.seconds = time.monotonic() - begun
    return outcome


@dataclass
class _Place:
    """The service, which may be gone, and comes back at the same address."""

    address: str
    artifacts: Path | None
    folder: Path
    port: int
    server: Server | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again."""
        self.stop()
        self._stack = ExitStack()
        for attempt in range(20):
            try:
                context = serving(
                    self.address,
                    self.folder,
                    "--workers",
                    "2",
                    artifacts=self.artifacts,
                    port=self.port,
                    **_SETTINGS,
                )
                self.server = self._stack.enter_context(context)
                return
            except RuntimeError:  # the port is not free yet
                if attempt == 19:
                    raise
                time.sleep(0.5)

    def stop(self) -> None:
        """End it in order, where it lives."""
        self.server = None
        self._stack.close()


def _submit(place: _Place, outcome: Outcome, stop: threading.Event, seed: int) -> None:
    """Submit a program after the other, two of three new ones, until told to stop."""
    chance, number = random.Random(seed + 1), 0
    while not stop.is_set():
        number += 1
        subject = chance.randint(1, max(1, number * 2 // 3 + 1))
        text = program(subject, chance.choice(("scaled", "renamed", "again")))
        key = f"key-{seed}-{number}"
        while True:  # until somebody answers: whether the last try arrived is not known
            with suppress(httpx.TransportError):
                answer = httpx.post(
                    f"{place.url}/v1/optimizations",
                    json={"text": text, "compile": False},
                    headers={"Idempotency-Key": key},
                    timeout=20,
                    trust_env=False,
                )
                if answer.status_code in (200, 202):
                    outcome.accepted[key] = answer.json()["id"]
                    break
                if answer.status_code not in (429, 503):
                    outcome.problems.append(f"{key}: {answer.status_code} {answer.text[:200]}")
                    break
            time.sleep(0.2)
        time.sleep(chance.uniform(0.0, 0.5))


def _kill(place: _Place, chance: random.Random, outcome: Outcome) -> None:
    assert place.server is not None
    server = place.server.process.pid
    if place.server.process.poll() is not None:
        outcome.problems.append(f"the server ended by itself: {place.server.logged()[-3:]}")
        place.start()
        return
    (kind,) = chance.choices(_KINDS, weights=_WEIGHTS)
    victims = {"server": [server]}.get(kind) or _processes(server, kind)
    if not victims:
        return
    with suppress(ProcessLookupError):
        os.kill(chance.choice(victims), signal.SIGKILL)
        outcome.kills[kind] += 1
    if kind == "server":
        place.start()


def _processes(server: int, kind: str) -> list[int]:
    """The service's processes of one kind, by their command lines."""
    workers = [p for p in _children(server) if b"worker" in _words(p)]
    if kind == "worker":
        return workers
    if kind == "reader":
        return [p for p in _children(server) if b"nautile.service.reading" in _words(p)]
    return [child for worker in workers for child in _children(worker)]


def _children(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(path.parent.name))
    return found


def _words(process: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return []


def _settled(place: _Place, outcome: Outcome, wait: float) -> None:
    """Wait until every accepted job has ended, and look at each."""
    until, left = time.monotonic() + wait, dict(outcome.accepted)
    with httpx.Client(base_url=place.url, timeout=30, trust_env=False) as client:
        while left and time.monotonic() < until:
            for key, id in list(left.items()):
                found = client.get(f"/v1/optimizations/{id}").json()
                if found.get("state") in ("queued", "running"):
                    continue
                del left[key]
                if found.get("state") != "done":
                    outcome.problems.append(f"{key}: {found}")
                elif client.get(f"/v1/optimizations/{id}/result").status_code != 200:
                    outcome.problems.append(f"{key}: no result")
            time.sleep(0.3)
    outcome.problems += [f"{key}: lost, or not done in {wait} s" for key in left]


def _check(store: Store, outcome: Outcome) -> None:
    """What the database and the artifacts say, beside what the API said."""
    with store.reading() as connection:
        rows = connection.execute(sa.text("SELECT id, idempotency, key FROM service_jobs")).all()
        runs = connection.execute(sa.text("SELECT state, key FROM service_runs")).all()
    by_key = Counter(row.idempotency for row in rows)
    outcome.problems += [f"{key}: {n} jobs" for key, n in by_key.items() if n > 1]
    ids = {row.idempotency: row.id for row in rows}
    outcome.problems += [
        f"{key}: the job {id} is not there" for key, id in outcome.accepted.items()
        if ids.get(key) != id
    ]  # fmt: skip
    outcome.problems += [f"a run is {r.state}" for r in runs if r.state != "done"]
    outcome.problems += [f"the store: {p}" for p in store.verify().problems if p.bad]
    _compare(store, sorted({row.key for row in rows}), outcome)


def _compare(store: Store, keys: list[str], outcome: Outcome) -> None:
    """A few results beside those of runs that nobody disturbed."""
    undisturbed = {}
    for number in (1, 2, 3):
        (task,) = tasks_of(program(number), Settings())
        undisturbed[task.key] = task
    for key in keys:
        entry = store.get(key)
        if entry is None:
            outcome.problems.append(f"{key}: not in the store")
        elif key in undisturbed:
            found, expected = entry.record, run(undisturbed[key]).record
            if _told(found) != _told(expected):
                outcome.problems.append(f"{key}: another result than undisturbed")


def _told(record: dict[str, Any]) -> tuple[Any, ...]:
    kernels = record["chosen"]["kernels"]
    return (
        record["key"],
        record["status"],
        [k["tile"] for k in kernels],
        record["certificate"]["verdict"],
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, Path | None]]:
    if kind == "sqlite":
        yield str(folder / "store"), None
        return
    from store.postgresql import running

    with running() as server:
        yield server.database(), folder / "artifacts"


def _main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nautile-kills-") as name:
        folder = Path(name)
        with _database(asked.database, folder) as (address, artifacts):
            outcome = disturbed(address, artifacts, folder, asked.kills, asked.seed, wait=1800)
    told = {"database": asked.database, "seed": asked.seed, **outcome.as_dict()}
    print(json.dumps(told))
    if asked.output:
        asked.output.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(_main())
