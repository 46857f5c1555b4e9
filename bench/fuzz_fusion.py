"""The long run of random programs: every chosen program against the oracle.

    python bench/fuzz_fusion.py --count 20000 --seed 1 --jobs 2

Programs come in chunks that depend on the seed alone (tests/fusion/random_runs.py). Each finished
chunk is a line of `out/fuzz_fusion/<seed>.jsonl`: started again, the run goes on where it ended,
and no run tries what another one there has tried of the same source state. A failure is shrunk once
for each kind and the run goes on. `bench/results/fuzz_fusion.json` holds the runs

```
{"programs", "failures": count, "runs": [{"seed", "source", "programs": distinct ones tried,
 "failures": [{"program","numerics","found","shrunk","failures"}], "shares": {feature: share},
 "numerics": {class: count}, "seconds": of work, by stage, "wall", "cores", "date", "versions"}]}
```

one for each seed and source state (a digest of all code and laws, so that a run over changing code
can be told from one over the final state); totals are sums. It is written after every chunk, and
runs that other machines have recorded stay (`--restart` forgets what was done for the seed).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fusion.random_runs import body_of, chunk, limited, shrunk, signature  # noqa: E402
from fusion.random_trial import Trial, numerics_of, trial  # noqa: E402

from nautile.worker import Worker  # noqa: E402

Record = dict[str, Any]
STATE = ROOT / "out" / "fuzz_fusion"
RESULT = ROOT / "bench" / "results" / "fuzz_fusion.json"
SIZE = 60  # examples a chunk
LONGEST = 90.0  # seconds that one trial may take
SHRINKING = 90.0  # seconds for shrinking one failure


def source_state() -> str:
    """A digest of the package's code and laws as they are on disk."""
    digest = hashlib.blake2b(digest_size=6)
    for folder in ("src/nautile", "rules", "extract", "codegen"):
        for path in sorted((ROOT / folder).glob("**/*")):
            if path.suffix in (".py", ".nau", ".json") and path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def digest_of(text: str) -> str:
    return hashlib.blake2b(body_of(text).encode(), digest_size=6).hexdigest()


class Runner:
    """One process: a saturation worker, and the kinds of failures that were shrunk already."""

    def __init__(self, seed: int) -> None:
        self.seed, self.worker, self.kinds = seed, Worker(), set[str]()
        self.source = source_state()

    def attempt(self, text: str) -> Trial:
        try:
            with limited(LONGEST):
                return trial(text, self.worker, numerics_of(text))
        except TimeoutError as error:
            self.worker.close()
            return Trial(text, numerics_of(text), failures=[f"TimeoutError: {error}"])

    def run(self, number: int, known: frozenset[str]) -> Record:
        """One chunk, without the programs that were tried before."""
        started = time.time()
        texts = [t for t in chunk(number, self.seed, size=SIZE) if digest_of(t) not in known]
        trials = [self.attempt(t) for t in texts]
        shares = Counter(f for t in trials for f in t.features)
        seconds: Counter[str] = Counter()
        for t in trials:
            seconds.update(t.seconds)
        return {
            "chunk": number,
            "digests": [digest_of(t) for t in texts],
            "features": dict(shares),
            "numerics": dict(Counter(t.numerics for t in trials)),
            "seconds": {k: round(v, 3) for k, v in seconds.items()},
            "failures": [self.failure(t, number) for t in trials if t.failures],
            "source": self.source,
            "wall": round(time.time() - started, 1),
        }

    def failure(self, failed: Trial, number: int) -> Record:
        """The failed program, and a smaller one where its kind is new."""
        record: Record = {
            "program": failed.text,
            "numerics": failed.numerics,
            "found": failed.failures[:4],
        }
        kind = signature(failed.failures[0])
        if kind not in self.kinds:
            self.kinds.add(kind)
            text, failures = shrunk(
                failed.text, self.attempt, number, self.seed, size=SIZE, seconds=SHRINKING
            )
            record |= {"shrunk": text, "failures": failures[:4]}
        return record


def read(path: Path) -> list[Record]:
    """The finished chunks; a last line that was cut off is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def summaries(records: list[Record], seed: int) -> list[Record]:
    """One for each source state that the seed's chunks were tried with."""
    sources = dict.fromkeys(r["source"] for r in records)
    return [summary([r for r in records if r["source"] == s], seed, s) for s in sources]


def summary(records: list[Record], seed: int, source: str) -> Record:
    totals: dict[str, Counter[str]] = {k: Counter() for k in ("features", "seconds", "numerics")}
    for r in records:
        for what, total in totals.items():
            total.update(r[what])
    tried = sum(len(r["digests"]) for r in records)
    shares = sorted(totals["features"].items())
    return {
        "seed": seed,
        "source": source,
        "programs": tried,
        "failures": [f for r in records for f in r["failures"]],
        "shares": {k: round(v / max(tried, 1), 4) for k, v in shares},
        "numerics": dict(totals["numerics"]),
        "seconds": {k: round(v, 1) for k, v in totals["seconds"].items()},
        "wall": round(sum(r["wall"] for r in records), 1),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": {n: version(n) for n in ("nautile", "egglog", "numpy", "hypothesis")},
    }


def merged(path: Path, runs: list[Record]) -> Record:
    """The recorded runs with these in place of those of their seeds and source states."""
    new = {(r["seed"], r["source"]): r for r in runs}
    old = json.loads(path.read_text()).get("runs", []) if path.exists() else []
    kept = [r for r in old if (r["seed"], r["source"]) not in new]
    every = [*kept, *runs]
    count = sum(r["programs"] for r in every)
    return {"programs": count, "failures": sum(len(r["failures"]) for r in every), "runs": every}


_runner: Runner | None = None


def _one(task: tuple[int, int, frozenset[str]]) -> Record:
    """In a process of the pool: a chunk by that process' runner."""
    global _runner
    number, seed, known = task
    _runner = _runner or Runner(seed)
    return _runner.run(number, known)


def run(arguments: argparse.Namespace) -> list[Record]:
    """Chunks until enough programs were tried, or the time is over."""
    path = STATE / f"{arguments.seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if arguments.restart:
        path.unlink(missing_ok=True)
    records = read(path)
    known = tried_elsewhere(path)
    end = time.monotonic() + arguments.seconds
    number = max((r["chunk"] for r in records), default=-1) + 1
    pool = multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=20)
    with pool, path.open("a") as state:
        while time.monotonic() < end:
            own = frozenset(d for r in records for d in r["digests"])
            if len(own) >= arguments.count:
                break
            tasks = [(number + k, arguments.seed, known | own) for k in range(arguments.jobs)]
            number += arguments.jobs
            for record in pool.imap_unordered(_one, tasks):
                records.append(record)
                state.write(json.dumps(record) + "\n")
                state.flush()
                told(records, arguments)
    return records


def tried_elsewhere(path: Path) -> frozenset[str]:
    """The programs that runs of other seeds have tried here, with the code as it is now."""
    source = source_state()
    others = [p for p in path.parent.glob("*.jsonl") if p != path]
    return frozenset(
        d for p in others for r in read(p) if r["source"] == source for d in r["digests"]
    )


def told(records: list[Record], arguments: argparse.Namespace) -> None:
    """Write the runs, and a line of progress."""
    runs = summaries(records, arguments.seed)
    found = merged(arguments.output, runs)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    last = records[-1]
    print(
        f"seed {arguments.seed}: {sum(r['programs'] for r in runs)} programs, "
        f"{sum(len(r['failures']) for r in runs)} failures; "
        f"chunk {last['chunk']}: {len(last['digests'])} in {last['wall']} s",
        file=sys.stderr,
        flush=True,
    )
    for failure in last["failures"]:
        print(failure.get("shrunk", failure["program"]), failure["found"][:2], file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="distinct programs to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--restart", action="store_true", help="forget what was done before")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    records = run(arguments)
    return 3 if any(r["failures"] for r in records) else 0


if __name__ == "__main__":
    sys.exit(main())
