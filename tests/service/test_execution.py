"""Real servers with real workers: results, renamed duplicates, failures, cancellation, deaths."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store.conftest import Place

from nautile import lang
from nautile.options import Options
from nautile.stages import optimize

from .running import PROGRAM, Server, program, serving, workers_of

SOFTMAX = """\
def soft(x: f32[N,M], *, N=64, M=512) -> f32[N,M]:
    y[n,m] = softmax[m](x[n,m])
    return y
"""
LAYERS = "".join(
    f"    s{n}[i,j] = softmax[j](b{n}[i,j] * {n}.25)\n    b{n + 1}[i,j] = gelu(s{n}[i,j] * {n}.5)\n"
    for n in range(1, 4)
)
LONG = (  # seconds of work
    "def long(x: f32[N,M], *, N=64, M=256) -> f32[N,M]:\n"
    f"    b1[i,j] = abs(x[i,j])\n{LAYERS}    return b4\n"
)
WRONG = "with real:\n    wrong = a + b >> a\n"
RIGHT = "with real:\n    relu_scaled = max(a * 2, 0) >> max(a, 0) * 2\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker."""
    folder = tmp_path_factory.mktemp("execution")
    with serving(str(folder / "store"), folder, lease_seconds=6, claim_seconds=0.1) as running:
        yield running


def kinds(server: Server, job: dict[str, object]) -> list[str]:
    """The events of a job that has ended."""
    lines = server.client.get(f"/v1/optimizations/{job['id']}/events").text.splitlines()
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


def test_a_result_is_that_of_the_command_line(server: Server) -> None:
    job = server.submit(SOFTMAX).json()
    assert server.wait(job["id"])["state"] == "done"
    record = server.client.get(job["links"]["result"]).json()
    (source,) = lang.parse(SOFTMAX)
    expected = optimize(source, Options()).as_dict()
    for name in ("program", "key", "target", "numerics", "status", "baseline"):
        assert record[name] == expected[name], name
    assert record["chosen"]["seconds"] == expected["chosen"]["seconds"]
    assert record["certificate"]["verdict"] == "pass"
    stages = kinds(server, job)
    assert (stages[0], stages[1], stages[-1]) == ("queued", "started", "done")
    assert "stage" in stages


def test_a_duplicate_is_answered_at_once_under_its_own_names(server: Server) -> None:
    first = server.submit(SOFTMAX).json()
    server.wait(first["id"])
    other = server.submit(re.sub(r"\bx\b", "input", re.sub(r"\by\b", "out", SOFTMAX)))
    assert other.status_code == 200
    job = other.json()
    record = server.client.get(job["links"]["result"]).json()
    assert record["chosen"]["kernels"][0]["outputs"] == ["out"]
    files = {a["path"]: a for a in server.client.get(job["links"]["artifacts"]).json()["artifacts"]}
    manifest = server.client.get(files["manifest.json"]["href"]).json()
    assert {b["name"] for b in manifest["buffers"]} >= {"input", "out"}
    for path, file in files.items():
        data = server.client.get(file["href"])
        assert len(data.content) == file["bytes"], path
        if path != "manifest.json":
            assert len(data.content) == manifest["files"][path]["bytes"]


@pytest.mark.parametrize(
    "path",
    [
        "../manifest.json",
        "..%2f..%2fstore.db",
        "%2e%2e/manifest.json",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "manifest.json%00.cu",
        "manifest.json/",
    ],
)
def test_no_path_leads_out_of_the_bundle(server: Server, path: str) -> None:
    job = server.submit(SOFTMAX).json()
    server.wait(job["id"])
    asked = server.client.build_request("GET", "/")
    raw = f"/v1/optimizations/{job['id']}/artifacts/{path}"  # as it is, not made tidy
    asked.url = asked.url.copy_with(raw_path=raw.encode())
    assert server.client.send(asked).status_code == 404


def test_a_users_rule_is_checked_before_it_is_used(server: Server) -> None:
    job = server.submit(rules=[{"name": "mine", "text": WRONG}]).json()
    ended = server.wait(job["id"])
    assert (ended["state"], ended["error"]["code"]) == ("failed", "unsound-rule")
    assert "/tmp" not in ended["error"]["message"]
    record = server.client.get(job["links"]["result"]).json()
    assert (record["status"], record["error"]["code"]) == ("error", "unsound-rule")
    refused = server.client.get(job["links"]["artifacts"])
    assert (refused.status_code, refused.json()["code"]) == (409, "no-result")
    right = server.submit(rules=[{"name": "mine.nau", "text": RIGHT}]).json()
    assert server.wait(right["id"])["state"] == "done"


def test_cancelling_ends_the_process_that_runs(server: Server) -> None:
    job = server.submit(LONG).json()
    _until_event(server, job, "stage")
    (worker,) = workers_of(server)
    before = _below(worker)
    assert before
    server.client.delete(job["links"]["self"])
    until = time.monotonic() + 10
    while any(_lives(p) for p in before):
        assert time.monotonic() < until, "the process goes on"
        time.sleep(0.1)
    assert kinds(server, job)[-1] == "cancelled"
    again = server.submit(program(31)).json()  # and the worker goes on, too
    assert server.wait(again["id"])["state"] == "done"


def test_the_job_of_a_killed_worker_is_done_by_the_next_one(server: Server) -> None:
    job = server.submit(LONG.replace("abs", "sin")).json()
    _until_event(server, job, "stage")
    (worker,) = workers_of(server)
    children = _below(worker)
    os.kill(worker, signal.SIGKILL)
    ended = server.wait(job["id"])
    assert (ended["state"], ended["attempts"]) == ("done", 2)
    assert not any(_lives(p) for p in children)
    assert [n for n in workers_of(server) if n != worker]


def test_a_result_that_the_clock_cut_short_answers_its_own_jobs_alone(server: Server) -> None:
    hurried = {"seconds": 0.001}
    job = server.submit(LONG, **hurried).json()
    assert server.wait(job["id"])["state"] == "done"
    record = server.client.get(job["links"]["result"]).json()
    assert record["saturation"]["stop"] == "time"
    assert server.client.get(job["links"]["artifacts"]).status_code == 200
    again = server.submit(LONG, **hurried)
    assert again.status_code == 202  # it may come out better
    server.client.delete(again.headers["location"])


def _until_event(server: Server, job: dict[str, object], kind: str) -> None:
    with server.client.stream("GET", f"/v1/optimizations/{job['id']}/events") as stream:
        for line in stream.iter_lines():
            if line == f"event: {kind}":
                return
    raise AssertionError(f"no event {kind}")


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _below(process: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == process:
            child = int(path.parent.name)
            found += [child, *_below(child)]
    return found


def test_a_killed_server_has_lost_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    with serving(place, tmp_path, lease_seconds=3, claim_seconds=0.1) as first:
        known = first.submit(PROGRAM).json()
        first.wait(known["id"])
        jobs = [first.submit(program(n)).json() for n in range(50, 52)]
        workers = workers_of(first)
        first.process.kill()
        first.process.wait()
        until = time.monotonic() + 15
        while any(_lives(p) for p in workers):
            assert time.monotonic() < until, "a worker outlives its server"
            time.sleep(0.1)
    with serving(place, tmp_path, lease_seconds=3, claim_seconds=0.1) as second:
        assert second.client.get(known["links"]["result"]).json()["status"] == "ok"
        for job in jobs:
            assert second.wait(job["id"])["state"] == "done"


def test_a_drain_hands_back_what_it_cannot_end(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    with serving(place, tmp_path, drain_seconds=1, claim_seconds=0.1) as first:
        job = first.submit(LONG).json()
        _until_event(first, job, "stage")
        with first.client.stream("GET", job["links"]["events"]) as stream:
            begun = time.monotonic()
            first.process.send_signal(signal.SIGTERM)
            for _ in stream.iter_lines():
                pass  # the stream ends with the server
        assert first.process.wait(20) == 0
        assert time.monotonic() - begun < 15
    with serving(place, tmp_path, "--workers", "0") as second:
        found = second.client.get(f"/v1/optimizations/{job['id']}").json()
        assert (found["state"], found["attempts"]) == ("queued", 0)


def test_postgresql_serves_as_well(place: Place, tmp_path: Path) -> None:
    if place.backend != "postgresql":
        pytest.skip("the other tests run on SQLite")
    with serving(place.address, tmp_path, artifacts=place.artifacts, claim_seconds=0.1) as server:
        job = server.submit(PROGRAM).json()
        assert server.wait(job["id"])["state"] == "done"
        assert server.client.get(job["links"]["result"]).json()["status"] == "ok"
        assert server.submit(PROGRAM).status_code == 200
        assert server.client.get("/readyz").status_code == 200


@pytest.mark.slow
def test_a_ray_cluster_executes_as_well(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    place = str(tmp_path / "store")
    with serving(place, tmp_path, claim_seconds=0.1, executor="ray", drain_seconds=20) as server:
        job = server.submit(PROGRAM).json()
        assert server.wait(job["id"], seconds=180)["state"] == "done"
        assert server.client.get(job["links"]["result"]).json()["status"] == "ok"
