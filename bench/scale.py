"""What a million files on a hundred hosts would take, and what would hold them up.

    python bench/scale.py [--files 1000000] [--hosts 100] [--cores 32] [--sample 1000]
                          [--records bench/results/batch.json] [-o FILE.json]

First the costs are measured here, one after the other:

```
read     the batch process: a file to its program's key, parsed for the first time      (seconds)
again    the same of a text that is known
new      the batch process: all else for a computed program: look, put, bundle, record
hit      all else for a program that the store has
ray      the batch process: one more task through Ray, there and back
put      the part of `new` that is the store's: artifacts and row, synced
row      the part of `put` that is the database's: one transaction, which no other may share
```

`read` to `hit` come from a real batch over `--sample` files with a real store, whose executor
answers at once with the outcome of one program that was really optimized; `ray` from tasks that
fail at once, through a cluster of two nodes. What optimizing takes is what `bench/batch.py` saw.

Then the run is simulated, task by task: each batch process serves one event after the other and
keeps two tasks waiting for each worker, as Batch does; workers take the times that were seen, drawn
at random; rows of all batch processes meet in one database, one after the other (SQLite's figure;
PostgreSQL's commits overlap, so it is the safe side). A layout is a number of batch
processes (`--shard`), each with its share of the files and of the workers. The layout of
bench/batch.json's own run is simulated, too: how far the simulation is off is in the results.

```
Result ::= {costs {NAME: seconds}, optimizing {mean}, layouts [Layout], date, versions, machine}
Layout ::= {name, files, batches, workers, seconds, files_per_second, busy {driver, workers, store},
            bottleneck, measured_seconds?}          busy: shares of the time; the mean driver's
```
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import batch_files
import msgspec
from ray_nodes import Nodes

from nautile.batch import Asked, Batch
from nautile.batch.inputs import files
from nautile.batch.known import Known
from nautile.batch.reading import Reader
from nautile.executor.front import Front
from nautile.executor.machine import machine
from nautile.store import Store
from nautile.task import Outcome, Settings, Task, run, tasks_of

HERE = Path(__file__).resolve().parent
LIBRARIES = ("nautile", "numpy", "ray", "sqlalchemy")
AHEAD = 2  # tasks that wait, for each worker: as Batch has it
PUTS = 500  # of the measurement of the store


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--cores", type=int, default=32)
    parser.add_argument("--sample", type=int, default=1000)
    parser.add_argument("--records", type=Path, default=HERE / "results" / "batch.json")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "scale.json")
    given = parser.parse_args()
    seen = [r for r in json.loads(given.records.read_text()) if r.get("optimizing")]
    taken = max(seen, key=lambda r: int(r["files"]))["optimizing"]
    with tempfile.TemporaryDirectory(prefix="nautile-scale-") as folder:
        costs = measured(Path(folder), given.sample)
    print(json.dumps(costs, indent=1), flush=True)
    result = {
        "costs": costs,
        "optimizing": {"mean": taken["mean"]},
        "layouts": list(_layouts(given, costs, taken, seen)),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: metadata.version(name) for name in LIBRARIES},
        "machine": {"cores": machine().cores},
    }
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["layouts"], indent=1))


def _layouts(
    given: argparse.Namespace, costs: dict[str, float], taken: dict[str, Any], seen: list[Any]
) -> Iterator[dict[str, Any]]:
    """The runs that were measured, and those that nobody here can measure."""
    for row in seen:
        local = Layout(row["case"], row["files"], 1, row["jobs"], "ray" in row["case"])
        if not row["deaths"]:
            yield simulated(local, costs, row["optimizing"]) | {"measured_seconds": row["seconds"]}
    workers = given.hosts * given.cores
    for batches, ray in ((1, True), (10, True), (given.hosts, False)):
        name = f"{batches} batch process{'es' * (batches > 1)}, {'Ray' if ray else 'pools'}"
        yield simulated(Layout(name, given.files, batches, workers, ray), costs, taken)


# ---- what things cost here -----------------------------------------------------------------------


def measured(home: Path, count: int) -> dict[str, float]:
    """Seconds of each cost that the docstring names."""
    os.environ["NAUTILE_CACHE"] = str(home / "cache")
    _written(home / "in", count)
    read, again = _reading(home / "in", home / "known.sqlite3")
    executor = _Instant()
    with Store.open(str(home / "store")) as store:
        first, made = _batch(home, "first", store, executor)
        second, _ = _batch(home, "second", store, executor)
    hit = second / count - again
    twins = count - made
    new = (first - count * read - twins * hit) / made
    costs = {"read": read, "again": again, "new": new, "hit": hit, "ray": _ray()}
    real = _example().artifacts
    costs |= {"put": _put(home / "puts", real), "row": _put(home / "rows", {})}
    return {name: round(seconds, 6) for name, seconds in costs.items()}


def _reading(folder: Path, table: Path) -> tuple[float, float]:
    """Seconds a file, at first and again."""
    found = []
    for _ in range(2):
        start, count = time.process_time(), 0
        with Known(table) as known:
            reader = Reader(known, {})
            for file in files([str(folder)]):
                assert reader.read(file).programs
                count += 1
        found.append((time.process_time() - start) / count)
    return found[0], found[1]


def _batch(home: Path, name: str, store: Store, executor: _Instant) -> tuple[float, int]:
    """The seconds of a batch, and how many programs it computed."""
    asked = Asked(inputs=(str(home / "in"),), output=home / name, settings=Settings(compile=False))
    batch = Batch(asked, store, executor, 2)
    start = time.monotonic()
    summary = batch.run()
    seconds = time.monotonic() - start
    assert summary.failed == 0, summary.as_text()
    return seconds, summary.computed


@cache
def _example() -> Outcome:
    """What optimizing one program of the corpus gives, really."""
    (task,) = tasks_of(batch_files.corpus()[0], settings=Settings(compile=False))
    return run(task)


class _Instant(Front):
    """Finishes each task at once, with the outcome of the example under its key."""

    def _accept(self, ticket: int, task: Task) -> None:
        real = _example()
        record = dict(real.record) | {"key": task.key}
        outcome = msgspec.structs.replace(real, key=task.key, record=record)
        self._finish(ticket, task, outcome)

    def _wake(self) -> None:
        """Nothing runs elsewhere."""

    def cancel(self, ticket: int, *, running: bool = True) -> bool:
        """Nothing waits."""
        return False

    def close(self) -> None:
        """Nothing runs."""


def _written(folder: Path, count: int) -> None:
    """Files of one program of the corpus, half of them with sizes of their own, half of them one of
    these with other names."""
    draw, base = random.Random(11), batch_files.corpus()[0]
    sizes = re.compile(r"\b([TS])=\d+")
    texts = [sizes.sub(rf"\1={1024 + 8 * n}", base) for n in range(count - count // 2)]
    texts += [batch_files.renamed(draw.choice(texts), draw) for _ in range(count // 2)]
    draw.shuffle(texts)
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number:06}.nau").write_text(text)


def _put(place: Path, artifacts: Mapping[str, bytes]) -> float:
    """Seconds of a put of the example's record with these artifacts, each of its own content."""
    real = _example()
    with Store.open(str(place)) as store:
        start = time.monotonic()
        for number in range(PUTS):
            own = {name: data + f"{number}".encode() for name, data in artifacts.items()}
            store.put(f"{number:064x}", real.record, own, ingredients=dict(real.ingredients))
        return (time.monotonic() - start) / PUTS


def _ray(tasks: int = 2000) -> float:
    """Seconds of processor time of this process for one task more on a cluster of two nodes."""
    import ray

    from nautile.executor.ray_cluster import Cluster

    (task,) = tasks_of(batch_files.corpus()[0])
    unknown = msgspec.structs.replace(task, program="unknown")
    with Nodes(2).running() as nodes:
        try:
            with Cluster(nodes.address) as cluster:
                _through(cluster, unknown, 4)  # the actors start
                start = time.process_time()
                _through(cluster, unknown, tasks)
                return (time.process_time() - start) / tasks
        finally:
            ray.shutdown()


def _through(cluster: Any, task: Task, count: int) -> None:
    """So many times the task through the cluster, with a few that wait, as a batch does it."""
    waiting = 0
    for _ in range(count):
        cluster.submit(task)
        waiting += 1
        while waiting >= 2 * (1 + AHEAD):
            cluster.next()
            waiting -= 1
    while waiting:
        cluster.next()
        waiting -= 1


# ---- the simulation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Files, batch processes, workers of all of them together, and whether tasks go through Ray."""

    name: str
    files: int
    batches: int
    workers: int
    ray: bool


class _Store:
    """One database: a put waits for those before it."""

    def __init__(self, cost: float) -> None:
        self._cost, self._free, self.busy = cost, 0.0, 0.0

    def put(self, at: float) -> float:
        """When a put is done that comes at that time."""
        self._free = max(self._free, at) + self._cost
        self.busy += self._cost
        return self._free


class _Driver:
    """A batch process: it reads file after file, hands tasks out while there is room, and takes
    what is done. Half of its files are new, the others are hits, or wait for one in flight, which
    costs it the same."""

    def __init__(self, layout: Layout, costs: dict[str, float], draw: Callable[[], float]) -> None:
        self.now = self.busy = self.worked = 0.0
        self.left = layout.files // layout.batches
        self._workers = max(1, layout.workers // layout.batches)
        self._costs, self._draw, self._ray = costs, draw, layout.ray
        self._idle = self._workers
        self._queue: deque[float] = deque()  # since when each waits
        self._running: list[float] = []  # until when each runs

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return not (self.left or self._queue or self._running)

    def step(self, store: _Store) -> None:
        """One event: what is done, where something is, or the next file, or a wait."""
        full = len(self._queue) + len(self._running) >= self._workers * (1 + AHEAD)
        if self._running and (self._running[0] <= self.now or full or not self.left):
            self._take(store)
        else:
            self._read()

    def _read(self) -> None:
        self.left -= 1
        self._spend(self._costs["read"])
        if self.left % 2:
            self._spend(self._costs["hit"])
            return
        self._spend(self._costs["ray"] if self._ray else 0.0)
        self._queue.append(self.now)
        self._hand_out(self.now)

    def _hand_out(self, at: float) -> None:
        while self._idle and self._queue:
            seconds, since = self._draw(), self._queue.popleft()
            heapq.heappush(self._running, max(at, since) + seconds)
            self.worked += seconds
            self._idle -= 1

    def _take(self, store: _Store) -> None:
        """Wait for the first that is done. Its worker had its next task at once (the executor's own
        thread gives it); the put is over when the database has taken it."""
        done = heapq.heappop(self._running)
        self._idle += 1
        self._hand_out(done)
        self.now = max(self.now, done)
        self._spend(max(0.0, self._costs["new"] - self._costs["row"]))
        self.now = store.put(self.now)

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds


def _times(optimizing: dict[str, Any]) -> Callable[[], float]:
    """What a program takes its worker, drawn between the percentiles that were seen, with their
    mean."""
    draw, seen = random.Random(3), optimizing["percentiles"]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(seen)]
    scale = optimizing["mean"] / fmean(middles)

    def time_() -> float:
        k = draw.randrange(len(middles))
        return float(scale * draw.uniform(seen[k], seen[k + 1]))

    return time_


def simulated(
    layout: Layout, costs: dict[str, float], optimizing: dict[str, Any]
) -> dict[str, Any]:
    """One run: batch processes in the order of their own clocks, over one store."""
    draw, store = _times(optimizing), _Store(costs["row"])
    drivers = [_Driver(layout, costs, draw) for _ in range(layout.batches)]
    turns = [(0.0, k) for k in range(layout.batches)]
    while turns:
        _, k = heapq.heappop(turns)
        drivers[k].step(store)
        if not drivers[k].ended:
            heapq.heappush(turns, (drivers[k].now, k))
    seconds = max(d.now for d in drivers)
    busy = {
        "driver": fmean(d.busy for d in drivers) / seconds,
        "workers": sum(d.worked for d in drivers) / seconds / layout.workers,
        "store": store.busy / seconds,
    }
    return {
        "name": layout.name,
        "files": layout.files,
        "batches": layout.batches,
        "workers": layout.workers,
        "seconds": round(seconds, 1),
        "files_per_second": round(layout.files / seconds, 2),
        "busy": {name: round(share, 3) for name, share in busy.items()},
        "bottleneck": max(busy, key=lambda name: busy[name]),
    }


if __name__ == "__main__":
    main()
