"""A Ray cluster of several node processes gives what the pool gives, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nautile.errors import ExecutionError
from nautile.executor import ray_cluster
from nautile.executor.pool import Pool
from nautile.executor.protocol import Executor
from nautile.executor.ray_actors import Measurer
from nautile.executor.ray_cluster import Cluster
from nautile.task.make import tasks_of
from nautile.task.model import Limits, Outcome, Task

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's own sockets and logs
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

_STORE = 80 << 20  # bytes of each node's object store


def address(number: int) -> str:
    """A loopback address that no cluster of another process of the tests has."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"127.0.{process}.{number}"


def at(number: int) -> dict[str, Any]:
    """A node of its own loopback address (127.0.0.1 itself Ray would replace)."""
    return {"node_ip_address": address(number), "object_store_memory": _STORE}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without processors and two nodes of one each, every one at a loopback address."""
    from ray.cluster_utils import Cluster as Nodes

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "include_dashboard": False, **at(2)}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        for number in (3, 4):
            nodes.add_node(num_cpus=1, **at(number))
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        ray.init(address=nodes.address, _node_ip_address=address(2), **quiet)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def program(number: int) -> str:
    return (
        f"def p{number}(x: f32[N, M], *, N={8 + number}, M={64 + number}) -> f32[N]:\n"
        "    y[n] = sum[m](exp(x[n, m] - max[m](x[n, m])))\n    return y\n"
    )


def tasks(count: int, limits: Limits | None = None) -> list[Task]:
    text = "\n".join(program(k) for k in range(count))
    return list(tasks_of(text, filename="many.nau", limits=limits))


def found(executor: Executor, work: list[Task]) -> dict[int, Outcome]:
    for task in work:
        executor.submit(task)
    done = list(executor.results())
    assert len({d.ticket for d in done}) == len(done)
    return {d.ticket: d.outcome for d in done}


def told(outcome: Outcome) -> tuple[object, ...]:
    """What does not depend on the clock."""
    record = outcome.record | {"timings": None, "saturation": None}
    return record, outcome.key, sorted(outcome.artifacts.items())


def test_the_cluster_gives_what_the_pool_gives(nodes: Any) -> None:
    work = tasks(4)
    with Pool(1) as pool:
        expected = found(pool, work)
    with Cluster() as cluster:
        actual = found(cluster, work)
        assert cluster.jobs == 2
    assert all(o.ok for o in expected.values())
    assert {k: told(o) for k, o in actual.items()} == {k: told(o) for k, o in expected.items()}


@pytest.mark.slow
def test_nodes_of_another_release_do_nothing(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "code_version", lambda: "another")
    with Cluster() as cluster:
        (outcome,) = found(cluster, tasks(1)).values()
    assert outcome.record["error"]["code"] == "worker-died"
    assert "another release" in outcome.record["error"]["message"]


def killed(nodes: Any, victim: str) -> None:
    """Kill one optimizer at work, or a whole node under it."""
    if victim == "node":
        lost = nodes.list_all_nodes()[-1]
        nodes.remove_node(lost, allow_graceful=False)
        nodes.add_node(num_cpus=1, **at(5))
        return
    for process in _actors_of_this_machine()[:1]:
        os.kill(process, signal.SIGKILL)


def _actors_of_this_machine() -> list[int]:
    """Process ids of Ray's workers that are optimizers."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"ray::Optimizer"):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("victim", ["worker", pytest.param("node", marks=pytest.mark.slow)])
def test_what_dies_on_the_way_costs_nothing(nodes: Any, victim: str) -> None:
    work = tasks(6)
    with Cluster() as cluster:
        for task in work:
            cluster.submit(task)
        first = cluster.next()
        assert first is not None
        killed(nodes, victim)
        rest = list(cluster.results())
    assert sorted(d.ticket for d in (first, *rest)) == [1, 2, 3, 4, 5, 6]
    assert all(d.outcome.certified for d in (first, *rest))


@pytest.mark.slow
def test_a_task_that_loses_every_worker_is_given_up(nodes: Any) -> None:
    with Cluster(attempts=2) as cluster:
        cluster.submit(tasks(1)[0])
        done, end = None, time.monotonic() + 90
        while done is None and time.monotonic() < end:
            for process in _actors_of_this_machine():
                os.kill(process, signal.SIGKILL)
            done = cluster.next(0.05)
    assert done is not None
    assert done.outcome.record["error"]["code"] == "worker-died"


@pytest.mark.slow
def test_limits_hold_on_the_nodes(nodes: Any) -> None:
    with Cluster() as cluster:
        cluster.submit(tasks(1, Limits(seconds=0.01))[0])
        done = cluster.next(60)
    assert done is not None
    assert done.outcome.record["error"]["code"] == "time-limit"


@pytest.mark.slow
def test_a_cancelled_task_is_told(nodes: Any) -> None:
    with Cluster(jobs=1) as cluster:
        tickets = [cluster.submit(task) for task in tasks(3)]
        assert cluster.cancel(tickets[2])
        done = {d.ticket: d.outcome for d in cluster.results()}
        assert not cluster.cancel(tickets[2])
    assert done[tickets[2]].record["error"]["code"] == "cancelled"
    assert done[tickets[0]].ok


@pytest.mark.slow
def test_no_gpu_is_said_of_each_bundle(nodes: Any) -> None:
    import msgspec

    task = tasks(1)[0]
    wanted = msgspec.structs.replace(task.settings, compile=True)
    with Cluster(measure=True) as cluster:
        cluster.submit(msgspec.structs.replace(task, settings=wanted))
        done = cluster.next(120)
    assert done is not None
    assert done.outcome.record["measurement"]["error"]["code"] == "no-gpu"
    assert done.outcome.certified


def test_a_bundle_that_cannot_be_timed_says_why() -> None:
    report, files = Measurer().measure({"manifest.json": b"{}"}, 60.0)
    assert report["error"]["code"] == "not-measured"
    assert "bundle format None is unknown" in report["error"]["message"]
    assert files == {}


def test_an_address_without_a_cluster_is_refused() -> None:
    if ray.is_initialized():
        pytest.skip("connected already")
    with pytest.raises(ExecutionError) as refused:
        Cluster("127.0.0.1:1")
    assert refused.value.code == "no-cluster"
