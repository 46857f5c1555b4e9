"""The child process: its limits, its deaths, and that it always gives back what it had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nautile import rules
from nautile.egraph import Limits, saturate
from nautile.errors import LimitError, SaturationError
from nautile.snapshot import Snapshot
from nautile.terms import Axis, Const, Output, Term, apply, reduce_
from nautile.worker import Worker

from .programs import B, C, E, H, N, S, T, add, attention, causal, load, mul, output, scores, total

REAL = rules.load(classes=("exact", "real"))
ATTENTION = output("o", attention(causal(scores())), B, H, T, E)
ROOT = Path(__file__).parents[2]


def exploding(terms: int = 24) -> tuple[Output, ...]:
    """A long product, of which parts may leave the sum around it: associativity and commutativity
    have no end of ways to write it."""
    term: Term = load("x0", N, C)
    for i in range(1, terms):
        term = mul(term, load(f"x{i}", *((N, C), (N,), (C,))[i % 3]))
    return output("o", total(C, term), N)


# Rules that never rest: without the back-off of two-way laws one iteration may take any time.
WILD = rules.parse(
    "with real:\n"
    "    comm = a * b >> b * a\n"
    "    left = (a * b) * c >> a * (b * c)\n"
    "    right = a * (b * c) >> (a * b) * c\n"
)


@pytest.fixture(scope="module")
def worker() -> Worker:
    with Worker() as shared:
        yield shared


def same(a: Snapshot, b: Snapshot) -> bool:
    """Equal but for the seconds."""
    parts = ("classes", "axes", "free", "dtype", "roots", "made", "source")
    return all(getattr(a, p) == getattr(b, p) for p in parts)


def test_a_child_finds_what_this_process_finds(worker: Worker) -> None:
    first = worker.saturate(ATTENTION, REAL)
    assert same(first, saturate(ATTENTION, REAL, in_process=True))
    other = worker.saturate(output("o", add(load("x", N), load("y", N)), N), REAL)
    assert other.report.stop == "saturated"
    assert same(first, worker.saturate(ATTENTION, REAL))
    assert same(first, saturate(ATTENTION, REAL))


def test_regions_after_the_first_are_quick(worker: Worker) -> None:
    worker.saturate(ATTENTION, REAL)
    start = time.perf_counter()
    worker.saturate(ATTENTION, REAL)
    assert time.perf_counter() - start < 1.0


def test_rows_stop_it(worker: Worker) -> None:
    snapshot = worker.saturate(exploding(), WILD, limits=Limits(rows=500))
    assert snapshot.report.stop == "rows"
    assert snapshot.report.iterations >= 1
    assert len(snapshot.classes[snapshot.roots[0]]) >= 1


def test_growth_stops_it_in_proportion_to_the_region(worker: Worker) -> None:
    snapshot = worker.saturate(exploding(), WILD, limits=Limits(growth=2))
    assert snapshot.report.stop == "rows"
    assert max(snapshot.report.growth) <= 2500  # a rule ends before rows are looked at
    small = worker.saturate(ATTENTION, REAL, limits=Limits(growth=10))
    assert small.report.stop == "saturated"


def test_iterations_stop_it(worker: Worker) -> None:
    snapshot = worker.saturate(exploding(8), WILD, limits=Limits(iterations=2))
    assert (snapshot.report.stop, snapshot.report.iterations) == ("iterations", 2)


def test_no_iterations_give_the_source_alone(worker: Worker) -> None:
    snapshot = worker.saturate(ATTENTION, REAL, limits=Limits(iterations=0))
    assert all(len(ns) == 1 for ns in snapshot.classes.values())
    assert snapshot.report.stop == "iterations"


def test_time_stops_it_and_keeps_what_was_found(worker: Worker) -> None:
    limits = Limits(rows=10**9, seconds=0.5, iterations=1000)
    start = time.perf_counter()
    snapshot = worker.saturate(exploding(), WILD, limits=limits)
    assert time.perf_counter() - start < 8.0
    assert snapshot.report.stop == "time"
    assert len(snapshot.classes) > 50


@pytest.mark.slow
def test_memory_stops_it_and_keeps_what_was_found(worker: Worker) -> None:
    limits = Limits(rows=10**9, seconds=60.0, iterations=1000, memory_bytes=40 << 20)
    snapshot = worker.saturate(exploding(), WILD, limits=limits)
    assert snapshot.report.stop == "memory"
    assert snapshot.report.iterations >= 1
    assert len(snapshot.classes) > 50
    assert worker.saturate(ATTENTION, REAL).report.stop == "saturated"


def test_a_stopped_child_is_killed_on_time() -> None:
    with Worker() as own:
        own.saturate(output("o", load("x", N), N), REAL)
        assert own._child is not None
        os.kill(own._child.pid, signal.SIGSTOP)
        start = time.perf_counter()
        snapshot = own.saturate(ATTENTION, REAL, limits=Limits(seconds=0.5))
        assert time.perf_counter() - start < 30.0  # on a busy machine a new child takes long
        assert snapshot.report.stop == "time"
        assert all(len(ns) == 1 for ns in snapshot.classes.values())


def test_a_child_that_died_is_replaced() -> None:
    with Worker() as own:
        own.saturate(output("o", load("x", N), N), REAL)
        assert own._child is not None
        own._child.kill()
        own._child.wait()
        assert own.saturate(ATTENTION, REAL).report.stop == "saturated"


def test_an_unsound_rule_is_named_across_the_process(worker: Worker) -> None:
    bad = rules.parse("with exact:\n    one = a * 0 >> 1\n    two = a * 0 >> 2\n")
    from nautile.terms import Const

    outputs = output("o", mul(load("x", N), Const(0.0)), N)
    with pytest.raises(SaturationError, match="one, two"):
        worker.saturate(outputs, bad)
    assert worker.saturate(ATTENTION, REAL).report.stop == "saturated"


def test_closing_ends_the_child() -> None:
    own = Worker()
    own.saturate(output("o", load("x", N), N), REAL)
    child = own._child
    assert child is not None
    own.close()
    assert child.returncode is not None


def test_too_many_axes_are_refused() -> None:
    axes = [Axis(f"a{i}", 0, 2) for i in range(63)]
    term: Term = load("x", *axes)
    for axis in axes[1:]:
        term = total(axis, term)
    with pytest.raises(LimitError, match="63 axes"):
        saturate(output("o", term, axes[0]), REAL, in_process=True)


def test_names_never_reach_the_child() -> None:
    from nautile.egraph import encode, job_of

    name = '") (include "/etc/passwd'
    region = encode(output("o", apply("exp", load(name, N)), N))
    job = job_of(region, REAL, Limits())
    assert not any("passwd" in line for line in job.lines)
    assert saturate(output("o", load(name, N), N), REAL, in_process=True).roots == (0,)


DUMP = """
import hashlib, sys
sys.path.insert(0, "tests")
from egraph.test_worker import ATTENTION, REAL, exploding
from nautile.egraph import Limits, saturate
for outputs in (ATTENTION, exploding(9)):
    s = saturate(outputs, REAL, limits=Limits(rows=4000), in_process=True)
    parts = (s.classes, s.axes, s.free, s.dtype, s.roots, s.made, s.source, s.report.growth)
    print(hashlib.sha256(repr(parts).encode()).hexdigest())
"""


def test_every_run_gives_the_same_snapshot() -> None:
    def run(seed: str) -> str:
        command = [sys.executable, "-c", DUMP]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout

    first = run("0")
    assert len(first.split()) == 2
    assert first == run("12345")


def test_egglog_is_not_imported_until_it_saturates() -> None:
    command = (
        "import sys, nautile.egraph, nautile.worker, nautile.rules; print('egglog' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "False"


def test_provenance_and_matches_name_the_rules() -> None:
    snapshot = saturate(ATTENTION, REAL, in_process=True)
    assert "go_online" in snapshot.report.matches
    assert snapshot.report.matches["go_online"] >= 2
    online = [c for c, ns in snapshot.classes.items() for n in ns if n.kind == "online"]
    assert all("go_online" in snapshot.made[c] for c in online)
    untouched = [c for c, n in snapshot.source.items() if n.kind == "load"]
    assert all(c not in snapshot.made for c in untouched)
    assert S in snapshot.axes


def test_a_child_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with Worker() as own, pytest.raises(SaturationError, match="ended with status 1"):
        own.saturate(ATTENTION, REAL)


def test_laws_that_drop_each_others_results_end(worker: Worker) -> None:
    laws = "there = a - b >> -(b - a), instead", "back = -(a - b) >> b - a, instead"
    text = "with exact:\n" + "".join(f"    {law}\n" for law in laws)
    term = apply("sub", load("x", N), load("y", N))
    start = time.perf_counter()
    snapshot = worker.saturate(output("o", term, N), rules.parse(text), limits=Limits(seconds=20.0))
    assert time.perf_counter() - start < 15.0
    assert snapshot.report.stop in ("iterations", "saturated")


def test_a_number_times_itself_ends(worker: Worker) -> None:
    """exp(2 (min x - x)) has a slope of -2, which is 1 * -2, and 1 * (1 * -2), and so on."""
    x = load("x", N, S)
    low = reduce_("min", S, x)
    body = apply("exp", mul(Const(2.0), apply("sub", low, x)))
    snapshot = worker.saturate(output("o", total(S, body), N), REAL)
    assert snapshot.report.stop == "saturated"
    assert any(node.kind == "online" for nodes in snapshot.classes.values() for node in nodes)
