"""The API on a real server without workers' help: what it refuses, and how."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nautile.service import tokens
from nautile.store import Store

from .running import PROGRAM, Server, program, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def texts(folder: Path) -> dict[str, str]:
    """Tokens by what they may do."""
    with Store.open(folder / "store") as store:
        return {
            "user": tokens.create(store.database, "user", rate=10_000, burst=10_000),
            "other": tokens.create(store.database, "other"),
            "reader": tokens.create(store.database, "reader", ["read"]),
            "admin": tokens.create(store.database, "admin", ["admin"]),
            "slow": tokens.create(store.database, "slow", rate=0.5, burst=2),
            "few": tokens.create(store.database, "few", concurrency=2),
        }


@pytest.fixture(scope="module")
def server(folder: Path, texts: dict[str, str]) -> Iterator[Server]:
    """A server that queues and executes nothing."""
    limits: dict[str, Any] = {
        "body_bytes": 400_000,
        "text_bytes": 100_000,
        "header_seconds": 1,
        "body_seconds": 1,
        "send_seconds": 1,
        "beat_seconds": 0.2,
        "read_seconds": 5,
        "terms": 200,
        "queue": 12,
    }
    with serving(
        str(folder / "store"), folder, "--workers", "0", token=texts["user"], **limits
    ) as running:
        yield running


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem of a refusal, in the one form that all have."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["type"] == f"/problems/{code}"
    assert found["request_id"] == answer.headers["x-request-id"]
    return found


def post(server: Server, content: bytes, kind: str = "application/json") -> httpx.Response:
    return server.client.post("/v1/optimizations", content=content, headers={"Content-Type": kind})


# ---- bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad-json"),
        (b"{", 400, "bad-json"),
        (b"\xff\xfe", 400, "bad-json"),
        (b'{"text": "a", "text": "b"}', 400, "bad-json"),
        (b'{"text": NaN}', 400, "bad-json"),
        (b'{"text": "a", "seconds": Infinity}', 400, "bad-json"),
        (b'{"text": "a", "seconds": 1e999}', 400, "bad-json"),
        (b'{"text": "a", "rows": ' + b"9" * 5000 + b"}", 400, "bad-json"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "bad-json"),
        (b'{"a":' * 50_000, 400, "bad-json"),
        (rb'{"text": "\ud800"}', 400, "bad-json"),
        (b'{"text": "' + b"x" * 500_000 + b'"}', 413, "body-too-long"),
        (b'{"text": "' + b"x" * 150_000 + b'"}', 413, "limit"),
        (b"[]", 422, "validation"),
        (b'"text"', 422, "validation"),
        (b"{}", 422, "validation"),
        (b'{"text": "a", "surprise": 1}', 422, "validation"),
        (b'{"text": 1}', 422, "validation"),
        (b'{"text": "a", "compile": "yes"}', 422, "validation"),
        (b'{"text": "a", "target": "../../etc"}', 422, "validation"),
        (b'{"text": "a", "rules": [{"name": "../x", "text": "a >> a"}]}', 422, "validation"),
        (b'{"text": "a", "rules": [{"name": "/etc/passwd"}]}', 422, "validation"),
        (b'{"text": "a", "rules": [{"name": "passwd"}]}', 422, "unknown-name"),
    ],
)
def test_a_body_that_is_no_submission_is_refused(
    server: Server, body: bytes, status: int, code: str
) -> None:
    refused(post(server, body), status, code)


def test_a_body_of_another_type_is_refused(server: Server) -> None:
    body = json.dumps({"text": PROGRAM}).encode()
    refused(post(server, body, "text/plain"), 415, "unsupported-media-type")
    refused(post(server, body, "application/x-www-form-urlencoded"), 415, "unsupported-media-type")


NESTED = (
    f"def f(x: f32[N], *, N=4) -> f32[N]:\n    y[i] = {'(' * 5000}x[i]{')' * 5000}\n    return y\n"
)
TOWER = "def f(x: f32[N], *, N=2**2**2**2**2**2) -> f32[N]:\n    y[i] = x[i]\n    return y\n"
HUGE = "def f(x: f32[N], *, N=9**99999999) -> f32[N]:\n    y[i] = x[i]\n    return y\n"
MANY = "def f(x: f32[N], *, N=4) -> f32[N]:\n    y[i] = " + " + ".join(
    f"x[i] * {n}.5" for n in range(90)
)
WIDE = "def f(x: f32[N], *, N=4) -> f32[N]:\n" + "".join(
    f"    y{n}[i] = sin(x[i] * {n}.5) + {n}.25\n" for n in range(200)
)


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        (NESTED, {413}),
        (TOWER, {413, 422}),
        (HUGE, {413, 422}),
        (MANY + "\n    return y\n", {413}),
        (WIDE + "    return y9\n", {413}),
        ("import os", {422}),
        ("def f(", {422}),
        ("\0", {422}),
        (PROGRAM + PROGRAM.replace("scaled", "other"), {422}),
    ],
    ids=["nested", "tower", "huge", "many", "wide", "statement", "syntax", "nul", "several"],
)
def test_a_text_that_is_no_program_is_refused_in_time(
    server: Server, text: str, statuses: set[int]
) -> None:
    before = time.monotonic()
    answer = server.submit(text)
    assert answer.status_code in statuses, answer.text
    refused(answer, answer.status_code, answer.json()["code"])
    assert time.monotonic() - before < 8


def test_a_mistake_is_told_with_its_place(server: Server) -> None:
    text = PROGRAM.replace("x[n,m]", "z[n,m]")
    found = refused(server.submit(text), 422, "unknown-name")
    assert (found["line"], found["text"].strip()) == (2, "y[n,m] = z[n,m] * 2 + 1")
    refused(server.submit(dims={"Q": 3}), 422, "unknown-name")
    refused(server.submit(program="nobody"), 422, "unknown-name")
    refused(server.submit(target="abacus"), 422, "unknown-device")


# ---- who asks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Basic YTpi",
        "Bearer",
        "Bearer nau_000000000000_" + "A" * 43,
        "Bearer " + "x" * 10_000,
        "Bearer nau_' OR 1=1 --",
    ],
)
@pytest.mark.parametrize("path", ["/v1/devices", "/v1/optimizations", "/v1/nothing", "/metrics"])
def test_without_a_valid_token_nothing_is_told(
    server: Server, header: str | None, path: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = httpx.get(server.url + path, headers=headers, trust_env=False)
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def as_other(server: Server, text: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {text}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False)


def test_a_token_does_what_its_scopes_say(server: Server, texts: dict[str, str]) -> None:
    job = server.submit(program(1)).json()
    body = {"text": PROGRAM}
    with as_other(server, texts["reader"]) as reader:
        refused(reader.post("/v1/optimizations", json=body), 403, "forbidden")
        refused(reader.get("/metrics"), 403, "forbidden")
        refused(reader.get(f"/v1/optimizations/{job['id']}"), 404, "not-found")
        refused(reader.delete(f"/v1/optimizations/{job['id']}"), 403, "forbidden")
        assert reader.get("/v1/optimizations").json()["optimizations"] == []
    with as_other(server, texts["other"]) as other:
        for path in ("", "/result", "/artifacts", "/artifacts/manifest.json", "/events"):
            refused(other.get(f"/v1/optimizations/{job['id']}{path}"), 404, "not-found")
        refused(other.delete(f"/v1/optimizations/{job['id']}"), 404, "not-found")
        refused(other.post(f"/v1/optimizations/{job['id']}/requeue"), 403, "forbidden")
    with as_other(server, texts["admin"]) as admin:
        assert admin.get(f"/v1/optimizations/{job['id']}").status_code == 200
        assert "nautile_runs" in admin.get("/metrics").text
        refused(admin.post(f"/v1/optimizations/{job['id']}/requeue"), 409, "not-dead")
        assert admin.delete(f"/v1/optimizations/{job['id']}").json()["state"] == "cancelled"


def test_a_revoked_token_is_refused(server: Server, folder: Path) -> None:
    with Store.open(folder / "store") as store:
        text = tokens.create(store.database, "short")
        with as_other(server, text) as short:
            assert short.get("/v1/devices").status_code == 200
            assert tokens.revoke(store.database, text.split("_")[1])
            assert not tokens.revoke(store.database, text.split("_")[1])
            until = time.monotonic() + 8
            while short.get("/v1/devices").status_code == 200:
                assert time.monotonic() < until
                time.sleep(0.3)
            refused(short.get("/v1/devices"), 401, "unauthorized")


def test_a_token_asks_no_more_often_than_it_may(server: Server, texts: dict[str, str]) -> None:
    with as_other(server, texts["slow"]) as slow:
        answers = [slow.get("/v1/queue") for _ in range(4)]
        assert [a.status_code for a in answers[:2]] == [200, 200]
        refused(answers[-1], 429, "rate")
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 2


def test_jobs_in_flight_and_the_queue_are_bounded(server: Server, texts: dict[str, str]) -> None:
    made = []
    with as_other(server, texts["few"]) as few:
        for n in (101, 102, 103):
            made.append(few.post("/v1/optimizations", json={"text": program(n)}))
        refused(made[-1], 429, "too-many-jobs")
        assert made[-1].headers["retry-after"]
        for answer in made[:2]:
            assert few.delete(answer.headers["location"]).json()["state"] == "cancelled"
    made = [server.submit(program(n)) for n in range(200, 214)]
    refused(made[-1], 503, "queue-full")
    assert made[-1].headers["retry-after"]
    for answer in made:
        if answer.status_code == 202:
            server.client.delete(answer.headers["location"])


# ---- jobs --------------------------------------------------------------------------------------


def test_a_submission_with_its_key_is_one_job(server: Server) -> None:
    key = {"Idempotency-Key": "mine"}
    first = server.submit(program(2), headers=key)
    again = server.submit(program(2), headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["location"] == f"/v1/optimizations/{first.json()['id']}"
    assert (first.headers["idempotency-replayed"], again.headers["idempotency-replayed"]) == (
        "false",
        "true",
    )
    refused(server.submit(program(3), headers=key), 422, "idempotency-mismatch")
    refused(server.submit(program(2), headers={"Idempotency-Key": "a b"}), 422, "validation")
    server.client.delete(first.headers["location"])


def test_renamed_programs_share_a_run(server: Server) -> None:
    one = server.submit(program(4)).json()
    other = server.submit(program(4, "renamed").replace("x", "u")).json()
    assert one["key"] == other["key"]
    assert (one["program"], other["program"]) == ("scaled", "renamed")
    assert (one["position"], other["position"]) == (1, 1)
    for job in (one, other):
        server.client.delete(job["links"]["self"])


def test_what_is_not_there_yet_is_refused_with_advice(server: Server) -> None:
    job = server.submit(program(5)).json()
    for name in ("result", "artifacts", "explanation"):
        answer = refused(server.client.get(job["links"][name]), 409, "not-finished")
        assert answer["detail"]
    refused(server.client.post(f"{job['links']['self']}/explanation"), 409, "not-finished")
    assert server.client.delete(job["links"]["self"]).json()["state"] == "cancelled"
    refused(server.client.get(job["links"]["result"]), 409, "cancelled")
    assert server.client.delete(job["links"]["self"]).json()["state"] == "cancelled"
    refused(server.client.get("/v1/optimizations/opt_" + "0" * 24), 404, "not-found")
    refused(server.client.get("/v1/optimizations/..%2f..%2fetc"), 404, "not-found")


def test_pages_of_the_list(server: Server) -> None:
    made = [server.submit(program(n)).json()["id"] for n in (6, 7, 8)]
    page = server.client.get("/v1/optimizations?limit=2").json()
    rest = server.client.get(f"/v1/optimizations?limit=2&cursor={page['next']}").json()
    seen = [job["id"] for job in page["optimizations"] + rest["optimizations"]]
    assert seen[:3] == made[::-1]
    refused(server.client.get("/v1/optimizations?limit=0"), 422, "validation")
    refused(server.client.get("/v1/optimizations?cursor=x"), 422, "validation")
    for id in made:
        server.client.delete(f"/v1/optimizations/{id}")


def test_events_are_resumed_where_they_were_left(server: Server) -> None:
    job = server.submit(program(9)).json()
    with server.client.stream("GET", job["links"]["events"]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert [next(lines) for _ in range(4)][-2:] == ["id: 1", "event: queued"]
        assert ": still here" in [next(lines) for _ in range(5)]
        server.client.delete(job["links"]["self"])
        rest = list(lines)
    assert "event: cancelled" in rest
    assert "id: 2" in rest
    resumed = server.client.get(job["links"]["events"], headers={"Last-Event-ID": "1"}).text
    assert "id: 2" in resumed
    assert "id: 1" not in resumed
    ended = server.client.get(job["links"]["events"], headers={"Last-Event-ID": "2"})
    assert (ended.status_code, ended.text) == (204, "")
    refused(
        server.client.get(job["links"]["events"], headers={"Last-Event-ID": "x"}), 422, "validation"
    )


# ---- what stands around ------------------------------------------------------------------------


def test_every_answer_has_its_id_and_the_headers_of_security(server: Server) -> None:
    for path in ("/", "/livez", "/v1/devices", "/nothing", "/static/front.js"):
        answer = server.client.get(path, headers={"X-Request-Id": "abc-1"})
        assert answer.headers["x-request-id"] == "abc-1"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    made = server.client.get("/livez", headers={"X-Request-Id": "a b\t<x>"})
    assert made.headers["x-request-id"] not in ("", "a b\t<x>")


def test_answers_are_not_held_back(server: Server) -> None:
    times = []
    for _ in range(40):  # without TCP_NODELAY each takes the 40 ms of a delayed acknowledgement
        begun = time.perf_counter()
        server.client.get("/livez")
        times.append(time.perf_counter() - begun)
    assert min(times) < 0.03


def test_readiness_names_what_lacks(server: Server) -> None:
    assert server.client.get("/livez").json()["ok"] is True
    answer = server.client.get("/readyz")
    checks = answer.json()["checks"]
    assert answer.status_code == 503
    assert {name: check["ok"] for name, check in checks.items()} == {
        "database": True,
        "disk": True,
        "workers": False,
    }


def test_no_secret_enters_the_log(server: Server, texts: dict[str, str]) -> None:
    server.client.get("/v1/devices?token=" + texts["user"])
    server.submit("def secret_program(")
    log = server.log.read_text()
    assert "request" in {line["message"] for line in server.logged()}
    for text in texts.values():
        assert text not in log
        assert text.split("_", 2)[2] not in log
    assert "secret_program" not in log


def test_no_secret_enters_the_database(folder: Path, texts: dict[str, str]) -> None:
    data = b"".join(p.read_bytes() for p in (folder / "store").glob("store.db*"))
    assert texts["user"].split("_")[1].encode() in data
    for text in texts.values():
        assert text.split("_", 2)[2].encode() not in data


def raw(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def closed_after(connection: socket.socket) -> tuple[bytes, float]:
    """What still comes, and the seconds until the other side closes."""
    begun, data = time.monotonic(), b""
    try:
        while piece := connection.recv(65_536):
            data += piece
    except ConnectionResetError:
        pass
    return data, time.monotonic() - begun


def test_a_client_that_does_not_send_its_headers_is_left(server: Server) -> None:
    for sent in (b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: "):
        with raw(server) as connection:
            connection.sendall(sent)
            data, seconds = closed_after(connection)
            assert data == b""
            assert seconds < 5


def test_a_client_that_does_not_send_its_body_is_told(
    server: Server, texts: dict[str, str]
) -> None:
    head = (
        "POST /v1/optimizations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {texts['user']}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with raw(server) as connection:
        connection.sendall(head.encode())
        data, seconds = closed_after(connection)
    assert data.startswith(b"HTTP/1.1 408")
    assert b"slow-body" in data
    assert seconds < 5


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 100_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/optimizations HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
        b"Content-Length: 2\r\n\r\n",
    ],
    ids=["long", "tls", "hosts", "lengths"],
)
def test_what_is_no_http_is_refused_as_everything_else(server: Server, sent: bytes) -> None:
    with raw(server) as connection:
        connection.sendall(sent)
        data, _ = closed_after(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "bad-request"


@pytest.mark.slow
def test_a_client_that_does_not_take_its_answers_is_left(server: Server) -> None:
    count = 400
    with raw(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(asked * count)
        time.sleep(4)
        data, _ = closed_after(connection)
    whole = len(server.client.get("/openapi.json").content)
    assert len(data) < count * whole / 2
    assert server.client.get("/livez").status_code == 200


def test_chunks_without_a_length_are_bounded(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 10_000

    answer = server.client.post(
        "/v1/optimizations", content=pieces(), headers={"Content-Type": "application/json"}
    )
    refused(answer, 413, "body-too-long")
