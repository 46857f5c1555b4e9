"""A real `nautile serve` in a process of its own, on a free port of the loopback device."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["PROGRAM", "Server", "program", "serving", "workers_of"]

PROGRAM = """\
def scaled(x: f32[N,M], *, N=64, M=128) -> f32[N,M]:
    y[n,m] = x[n,m] * 2 + 1
    return y
"""


def program(number: int, name: str = "scaled") -> str:
    """A small program, another one for each number."""
    return PROGRAM.replace("scaled", name).replace("+ 1", f"+ {number}")


@dataclass
class Server:
    """A running server; `log` is the file of its standard error."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str
    client: httpx.Client

    def submit(
        self, text: str = PROGRAM, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Any:
        """The answer to a submission that compiles nothing."""
        body = {"text": text, "compile": False, **more}
        return self.client.post("/v1/optimizations", json=body, headers=dict(headers or {}))

    def wait(self, id: str, seconds: float = 90.0) -> dict[str, Any]:
        """The job when it has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found: dict[str, Any] = self.client.get(f"/v1/optimizations/{id}").json()
            if found["state"] not in ("queued", "running"):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{id} has not ended: {self.logged()[-10:]}")

    def logged(self) -> list[dict[str, Any]]:
        """What the server and its workers have logged; a line that is no JSON is an error here."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line]

    def stop(self, seconds: float = 30.0) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def serving(
    place: str,
    folder: Path,
    *options: str,
    artifacts: Path | None = None,
    token: str | None = None,
    port: int = 0,
    **settings: object,
) -> Iterator[Server]:
    """A server on the store at `place`; settings as in nautile.service.settings."""
    log = folder / f"log-{time.monotonic_ns()}"
    words = [sys.executable, "-m", "nautile", "serve", "--store", place, "--port", str(port)]
    words += [*options, *([] if token else ["--no-auth"])]
    words += ["--artifacts", str(artifacts)] if artifacts else []
    chosen = {"drain_seconds": 2, **settings}
    wanted = {f"NAUTILE_{name.upper()}": str(value) for name, value in chosen.items()}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=os.environ | wanted
        )
    try:
        url = _address(process, log)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as client:
            yield Server(process, log, url, client)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r'"addresses": \["([^"]+)"', log.read_text())
        if found:
            return f"http://{found[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"the server does not start: {log.read_text()}")


def workers_of(server: Server) -> list[int]:
    """The process numbers of its workers, as the system has them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"worker" in words and str(server.process.pid).encode() in words:
            found.append(int(path.parent.name))
    return found
