"""Kills a batch at random moments, and compares what it comes to with an undisturbed run.

    python -m tests.batch.kill [--kills 300] [--files 40] [--seed 0] [--postgresql] [-o FILE]

Each round runs `nautile batch --resume` on the same files until a run comes to its end; until the
wanted number of kills is reached, the batch process, one of its workers, or a child of a worker is
killed (SIGKILL) at a random moment. Then: every input has one record, none has two, every record is
that of the undisturbed run, every bundle loads, the store verifies, and no process is left. Each
round has a store of its own: in a folder, or a schema of a PostgreSQL server that is started here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.batch.doubles import source
from tests.store.postgresql import running

from nautile.batch.results import NAME, records
from nautile.bundle import load_bundle
from nautile.store import Store

__all__ = ["Harness", "below", "write_files"]

_LONGEST = 300.0  # seconds of one run


def write_files(folder: Path, count: int, seed: int) -> None:
    """Expression files, about half of them equal to another one up to names, one in twenty
    malformed."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    for n in range(count):
        names = [f"{letter}{draw.randrange(100)}" for letter in "xyf"]
        x, y, f = names
        text = source(1 + draw.randrange(max(1, count // 2)), f, x, y, f"N{draw.randrange(100)}")
        (folder / f"{n:04}.nau").write_text("def broken(" if n % 20 == 19 else text)


def below(pid: int) -> Iterator[int]:
    """All processes below one."""
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                yield child
                yield from below(child)


@dataclass(slots=True)
class Harness:
    """One folder of inputs, the records of its undisturbed run, and counts of what was killed.
    `database` makes the URL of a new, empty database; without, stores are in folders."""

    home: Path
    files: int
    draw: random.Random
    database: Callable[[], str] | None = None
    killed: dict[str, int] = field(default_factory=dict)
    expected: dict[tuple[str, str | None], Any] = field(default_factory=dict)
    runs: int = 0
    stores: dict[str, tuple[str, Path]] = field(default_factory=dict)

    def store(self, name: str) -> tuple[str, Path]:
        """Where the store of a run is, and its artifacts."""
        if name not in self.stores:
            folder = self.home / f"{name}.store"
            address = self.database() if self.database else str(folder)
            self.stores[name] = (address, folder)
        return self.stores[name]

    def prepare(self) -> float:
        """Write the inputs and run them undisturbed; returns the seconds that took."""
        write_files(self.home / "in", self.files, self.draw.randrange(1 << 30))
        start = time.monotonic()
        process = self.start("calm")
        assert process.wait(_LONGEST) in (0, 1)
        self.expected = self.found("calm")
        return time.monotonic() - start

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """A batch into the folder of that name, with a store of its own."""
        self.runs += 1
        address, folder = self.store(name)
        place = ["--store", address, "--artifacts", str(folder)]
        command = [
            sys.executable,
            "-m",
            "nautile",
            "batch",
            "in",
            "-o",
            name,
            "--resume",
            "--quiet",
        ]
        return subprocess.Popen([*command, "--jobs", "2", "--no-compile", *place], cwd=self.home)

    def found(self, name: str) -> dict[tuple[str, str | None], Any]:
        """The records by input; AssertionError where an input has two."""
        made: dict[tuple[str, str | None], Any] = {}
        for row in records(self.home / name / NAME):
            mark = (row["input"]["path"], row["input"]["program"])
            assert mark not in made, f"two records of {mark}"
            made[mark] = row
        return made

    def round(self, name: str, kills: int, pace: float) -> int:
        """Run until a run comes to its end, with up to so many kills; returns their number."""
        done = 0
        while True:
            process = self.start(name)
            done += self.disturb(process, kills - done, pace)
            status = process.wait(_LONGEST)
            if status in (0, 1) and not self.transient(name):
                break
            assert status in (0, 1, -signal.SIGKILL), f"a run ended with status {status}"
        self.check(name)
        return done

    def disturb(self, process: subprocess.Popen[bytes], kills: int, pace: float) -> int:
        """Kill at random until the batch itself is dead, or has ended."""
        done = 0
        while done < kills:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.draw.expovariate(1 / pace))
            if process.poll() is not None:
                break
            victims, patient = list(below(process.pid)), self.draw.random() < 0.7
            while patient and not victims and process.poll() is None:
                time.sleep(0.1)  # mostly after its start, which is a large part of these short runs
                victims = list(below(process.pid))
            whole = not victims or self.draw.random() < 0.3
            victim = process.pid if whole else self.draw.choice(victims)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                done += 1
                kind = "batch" if victim == process.pid else "worker or its child"
                self.killed[kind] = self.killed.get(kind, 0) + 1
            if victim == process.pid:
                process.wait()
                self.no_orphans(victims)
        return done

    def no_orphans(self, pids: list[int]) -> None:
        """Every process of a batch that was killed ends."""
        end = time.monotonic() + 10
        while left := [p for p in pids if _lives(p)]:
            assert time.monotonic() < end, f"processes {left} are left"
            time.sleep(0.02)

    def transient(self, name: str) -> bool:
        """Whether a record says that its worker was lost: the next run tries it again."""
        codes = {(r["error"] or {}).get("code") for r in records(self.home / name / NAME)}
        return bool(codes & {"worker-died", "saturation"})

    def check(self, name: str) -> None:
        """All that must be true of a batch that has come to its end."""
        found = self.found(name)
        assert found.keys() == self.expected.keys()
        for mark, row in found.items():
            assert _lasting(row) == _lasting(self.expected[mark]), f"{mark} differs"
            if row["bundle"]:
                loaded = load_bundle(self.home / name / row["bundle"])
                assert [p.name for p in loaded.manifest.programs] == [row["program"]]
        summary = json.loads((self.home / name / "summary.json").read_text())
        assert summary["inputs"] == len(found)
        assert summary["complete"]
        with Store.open(*self.store(name)) as store:
            bad = [p for p in store.verify().problems if p.bad]
            assert not bad, bad
            keys = {r["key"] for r in found.values() if r["status"] == "ok" and _is_kept(r)}
            assert keys <= set(store.keys())


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_kept(row: Any) -> bool:
    """Whether the store has it: not, where the saturation's own process was killed, which is what
    it looks like when the memory does not suffice."""
    return row["saturation"]["stop"] not in ("time", "memory")


def _lasting(row: Any) -> Any:
    """What must be equal however a record came about. Certificates and kernels are those of
    whichever program of the key was optimized first, under this program's names."""
    return {
        "status": row["status"],
        "key": row["key"],
        "index": row["index"],
        "code": (row["error"] or {}).get("code"),
        "bundle": row["bundle"],
        "kernels": row["chosen"] and [
            {k: v for k, v in kernel.items() if k != "implementations"}
            for kernel in row["chosen"]["kernels"]
        ],
        "verdict": row["certificate"] and row["certificate"]["verdict"],
    }  # fmt: skip


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        database = stack.enter_context(running()).database if given.postgresql else None
        harness = Harness(Path(home), given.files, random.Random(given.seed), database)
        calm = harness.prepare()
        print(f"undisturbed: {calm:.1f} s, {len(harness.expected)} records", flush=True)
        done, number = 0, 0
        while done < given.kills:
            number += 1
            done += harness.round(f"r{number}", min(given.kills - done, 12), calm / 8)
            print(
                f"round {number}: {done} kills, {harness.runs} runs, {harness.killed}", flush=True
            )
        facts = {"rounds": number, "runs": harness.runs, "files": given.files}
        told = json.dumps({"killed": harness.killed, "facts": facts})
        print(told)
        if given.output:
            given.output.write_text(told + "\n")


if __name__ == "__main__":
    main()
