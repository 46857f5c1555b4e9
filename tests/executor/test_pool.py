"""The pool of workers: outcomes as they are in one process, and failures that cost one record.

Nothing in the workers is told that it is tested: they are killed, stopped and starved from outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nautile.executor import Pool, process
from nautile.executor.pool import Recycling
from nautile.task import Limits, Outcome, Task, run, tasks_of

SMALL = "def f(x: f32[N], *, N=1000) -> f32[N]:\n    y[n] = x[n] * 2 + 1\n    return y\n"
LONG = """def g(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], *, H=4, T=512, S=512, D=64
      ) -> bf16[H,T,D]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d])
    p[h,t,s] = softmax[s](x[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""


def task(text: str = SMALL, **limits: float) -> Task:
    (made,) = tasks_of(text, limits=msgspec.structs.replace(Limits(), **limits))
    return made


def code(outcome: Outcome) -> str:
    error = outcome.record["error"]
    return str(error["code"]) if error else "ok"


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    """Whether all processes have ended (or are no more than a name) within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(n) for n in path.read_text().split()]
    return found


class Stages:
    """Waits until a ticket has come to a stage."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, str]] = set()
        self.changed = threading.Condition()

    def __call__(self, ticket: int, stage: str) -> None:
        with self.changed:
            self.seen.add((ticket, stage))
            self.changed.notify_all()

    def wait(self, ticket: int, stage: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: (ticket, stage) in self.seen, 60)


@pytest.fixture(scope="module")
def stages() -> Stages:
    return Stages()


@pytest.fixture(scope="module")
def pool(stages: Stages) -> Iterator[Pool]:
    """One pool for all tests that leave it whole: its workers are replaced where they died."""
    with Pool(1, progress=stages) as made:
        yield made


def only(pool: Pool) -> Outcome:
    done = pool.next(60)
    assert done is not None
    assert pool.next(0) is None
    return done.outcome


def timeless(record: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in record.items() if k not in ("timings", "saturation")}


def test_an_outcome_is_what_the_task_gives_in_one_process(pool: Pool) -> None:
    asked = task()
    ticket = pool.submit(asked)
    done = pool.next(60)
    assert done is not None
    assert (done.ticket, done.task) == (ticket, asked)
    direct = run(asked)
    assert done.outcome.artifacts == direct.artifacts
    assert timeless(done.outcome.record) == timeless(direct.record)
    assert done.outcome.certified


def test_seconds_are_what_the_worker_took_without_the_wait_for_it() -> None:
    begun = time.monotonic()
    with Pool(1) as single:
        for _ in range(3):
            single.submit(task())
        taken = [done.seconds for done in single.results()]
    assert len(taken) == 3
    assert min(taken) > 0
    assert sum(taken) < time.monotonic() - begun


def test_a_worker_leads_a_session_of_its_own_and_computes_in_one_thread(pool: Pool) -> None:
    (worker,) = pool.workers
    assert os.getsid(worker) == worker
    environment = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    assert b"OPENBLAS_NUM_THREADS=1" in environment


def test_progress_names_the_stages(pool: Pool, stages: Stages) -> None:
    ticket = pool.submit(task())
    only(pool)
    told = {stage for number, stage in stages.seen if number == ticket}
    assert told == {"saturate", "extract", "lower", "compile", "certify", "bundle"}


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=pytest.mark.slow)]
)
def test_a_dead_worker_costs_its_record_alone(
    pool: Pool, stages: Stages, number: signal.Signals
) -> None:
    first, second = pool.submit(task(LONG)), pool.submit(task())
    stages.wait(first, "saturate")
    (worker,) = pool.workers
    below = children(worker)
    os.kill(worker, number)
    outcomes = {done.ticket: done.outcome for done in pool.results()}
    assert code(outcomes[first]) == "worker-died"
    assert number.name in outcomes[first].record["error"]["message"]
    assert outcomes[second].certified
    assert gone([worker, *below])


def test_a_task_that_hangs_is_ended_by_the_clock(pool: Pool, stages: Stages) -> None:
    ticket = pool.submit(task(LONG, seconds=1.5))
    stages.wait(ticket, "saturate")
    (worker,) = pool.workers
    os.kill(worker, signal.SIGSTOP)
    outcome = only(pool)
    assert code(outcome) == "time-limit"
    assert "1.5 s" in outcome.record["error"]["message"]
    assert gone([worker])


def test_a_task_that_takes_too_much_memory_is_ended(pool: Pool) -> None:
    pool.submit(task(LONG, memory_bytes=50 << 20))
    assert code(only(pool)) == "memory-limit"


def test_a_task_that_takes_too_much_processor_time_is_ended(pool: Pool) -> None:
    pool.submit(task(LONG, cpu_seconds=0.5))
    assert code(only(pool)) == "time-limit"


def test_cancelling_reaches_tasks_that_wait_and_tasks_that_run(pool: Pool, stages: Stages) -> None:
    first, second = pool.submit(task(LONG)), pool.submit(task(LONG))
    stages.wait(first, "saturate")
    (worker,) = pool.workers
    assert not pool.cancel(first, running=False)
    assert pool.cancel(second)
    assert pool.cancel(first)
    outcomes = {done.ticket: code(done.outcome) for done in pool.results()}
    assert outcomes == {first: "cancelled", second: "cancelled"}
    assert gone([worker])
    assert not pool.cancel(first)


def test_closing_ends_every_process_and_every_task() -> None:
    stages = Stages()
    pool = Pool(1, progress=stages)
    tickets = [pool.submit(task(LONG)) for _ in range(2)]
    stages.wait(tickets[0], "saturate")
    (worker,) = pool.workers
    everyone = [worker, *children(worker)]
    pool.close()
    assert not any(map(alive, everyone))
    assert pool.workers == ()


@pytest.mark.parametrize(
    "recycling", [Recycling(tasks=1), Recycling(memory_bytes=1)], ids=["tasks", "memory"]
)
@pytest.mark.slow
def test_workers_are_replaced(recycling: Recycling) -> None:
    seen = set()
    with Pool(1, recycling=recycling) as pool:
        for _ in range(2):
            stages: list[int] = []
            pool.submit(task())
            while not stages:
                stages += pool.workers
            seen |= set(stages)
            assert only(pool).certified
    assert len(seen) == 2


def test_workers_that_do_not_start_fail_their_tasks_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_CODE", "raise SystemExit('no such library')")
    with Pool(1) as pool:
        for _ in range(2):
            pool.submit(task())
        outcomes = [done.outcome for done in pool.results()]
    assert [code(o) for o in outcomes] == ["worker-died"] * 2
    assert "workers do not start" in outcomes[0].record["error"]["message"]
    assert "no such library" in outcomes[0].record["error"]["message"]


def test_what_a_worker_sends_that_is_no_frame_costs_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = r"""
import sys
from nautile.executor.frames import Ready, framed
sys.stdout.buffer.write(framed(Ready()))
sys.stdout.buffer.flush()
sys.stdin.buffer.read(5)
sys.stdout.buffer.write(b"\0\0\0\4junk")
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""
    monkeypatch.setattr(process, "_CODE", broken)
    with Pool(1) as pool:
        pool.submit(task())
        assert code(only(pool)) == "worker-died"


PARENT = """
import sys, time
from nautile.executor import Pool
from nautile.task import tasks_of
pool = Pool(1, progress=lambda ticket, stage: print(stage, flush=True))
for _ in range(3):
    pool.submit(tasks_of(sys.argv[1])[0])
print(*pool.workers, flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_no_orphan_is_left_by_a_parent_that_was_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, LONG], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    try:
        while parent.stdout.readline().strip() != "extract":
            pass
        (worker,) = children(parent.pid)
        wait_for(lambda: bool(children(worker)))
        everyone = [worker, *children(worker)]
        for pid in everyone:  # so that none of them ends by itself, for want of work
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        assert gone(everyone)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
