"""The API does what its OpenAPI document says: tried by Schemathesis on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nautile.service import tokens
from nautile.store import Store

from .running import Server, serving

CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store, and a token that may do everything and as often as it likes."""
    folder = tmp_path_factory.mktemp("openapi")
    with Store.open(folder / "store") as store:
        scopes = ("submit", "read", "admin", "metrics")
        limits = {"rate": 1e6, "burst": 1_000_000, "concurrency": 1_000_000}
        return folder, tokens.create(store.database, "tester", scopes, **limits)


@pytest.fixture(scope="module")
def server(text: tuple[Path, str]) -> Iterator[Server]:
    """A server with a worker; event streams end soon, so that the tester can go on."""
    folder, token = text
    with serving(str(folder / "store"), folder, token=token, stream_seconds=0.1) as running:
        until = time.monotonic() + 60
        while running.client.get("/readyz").status_code != 200:  # a 503 is true, and no finding
            assert time.monotonic() < until
            time.sleep(0.2)
        yield running


def schemathesis(server: Server, token: str, folder: Path, *options: str) -> None:
    """Let it try; it has to find nothing."""
    program = Path(sys.executable).with_name("schemathesis")
    command = [str(program), "--config-file", str(CONFIG), "run", f"{server.url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {token}", "--no-color", "-c", "all", *options]
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Tested:" in done.stdout
    assert not [line for line in server.logged() if line["level"] == "error"]


def test_schemathesis_finds_nothing(server: Server, text: tuple[Path, str]) -> None:
    options = ("--phases", "examples,coverage", "--max-examples", "5", "--seed", "1")
    schemathesis(server, text[1], text[0], *options)


@pytest.mark.slow
def test_schemathesis_finds_nothing_for_minutes(server: Server, text: tuple[Path, str]) -> None:
    schemathesis(server, text[1], text[0], "--max-time", "400", "--seed", "2")


def test_the_document_tells_every_route_and_its_refusals(server: Server) -> None:
    document = server.client.get("/openapi.json").json()
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert len(operations) >= 18
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for (method, path), operation in operations.items():
        if path in ("/livez", "/readyz"):
            continue
        answers = operation["responses"]
        assert operation["security"] == [{"token": []}], (method, path)
        assert {"401", "403", "422", "429", "500", "503"} <= answers.keys(), (method, path)
        for status, answer in answers.items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], (path, status)
