"""A real PostgreSQL for tests: made in a folder of its own, on a free port of the loopback device.

Where the programs of the server are missing, tests that need it are skipped with that reason, or
fail when NAUTILE_POSTGRESQL=required. A server does not survive the process that started it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

USER = "nautile"
# Tests kill clients, not the machine: what is in the system's cache is as good as on the disk.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


@dataclass(frozen=True)
class Server:
    """A running server that trusts its one user."""

    port: int
    pid: int

    def url(self, options: str = "") -> str:
        """The URL of the server's database, with options of the session."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres{options}"

    def database(self) -> str:
        """The URL of a new, empty schema, which is all that its sessions see."""
        import psycopg

        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return self.url(f"?options=-csearch_path%3D{name}")


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`: the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: p.parts[-3])
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def running() -> Iterator[Server]:
    """A server for as long as the block runs."""
    where = programs()
    if where is None:
        needed = os.environ.get("NAUTILE_POSTGRESQL") == "required"
        (pytest.fail if needed else pytest.skip)("no PostgreSQL server is installed")
    folder = Path(tempfile.mkdtemp(prefix="nautile-postgresql-"))
    port = _free_port()
    try:
        _own(folder)
        data = folder / "data"
        made = [where / "initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8"]
        _as_user([*made, "--locale=C"], folder).wait(60)
        options = [f"-c{k}={v}" for k, v in SETTINGS.items()]
        command = [where / "postgres", "-D", data, "-p", port, f"-k{folder}", *options]
        process = _as_user(command, folder)
        try:
            _await(port, process, folder)
            yield Server(port, process.pid)
        finally:
            process.send_signal(signal.SIGQUIT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server for all tests of the session."""
    with running() as server:
        yield server


def _as_user(command: list[object], folder: Path) -> subprocess.Popen[bytes]:
    """Run as another user where this is root, which PostgreSQL refuses to run as."""
    words = [str(word) for word in command]
    if shutil.which("setpriv"):
        user = ["--reuid=postgres", "--regid=postgres", "--init-groups"] if _is_root() else []
        words = ["setpriv", "--pdeathsig=QUIT", *user, "--", *words]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)


def _own(folder: Path) -> None:
    if _is_root():
        shutil.chown(folder, "postgres", "postgres")


def _is_root() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with suppress(psycopg.OperationalError):
            psycopg.connect(f"postgresql://{USER}@127.0.0.1:{port}/postgres").close()
            return
        time.sleep(0.05)
    pytest.fail(f"PostgreSQL did not start:\n{(folder / 'log').read_text()[-2000:]}")
