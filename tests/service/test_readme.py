"""What the READMEs show of the service is run as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from nautile.cli import main
from nautile.service.settings import Settings

from .running import serving

ROOT = Path(__file__).resolve().parents[2]
SERVE = (ROOT / "README.md").read_text().partition("## Serve")[2].partition("\n## ")[0]
OWN = (ROOT / "src/nautile/service/README.md").read_text()
UNIT = (ROOT / "src/nautile/service/nautile.service").read_text()


def commands(text: str) -> list[list[str]]:
    """The commands of the shell blocks, as words."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.S)).replace("\\\n", " ")
    return [words for line in blocks.splitlines() if (words := shlex.split(line, comments=True))]


def test_the_readmes_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {words[0]: words for words in commands(SERVE) if words[0] == "curl"}
    with serving(str(tmp_path / "store"), tmp_path, "--workers", "0") as server:
        words = [w.replace("http://127.0.0.1:8087", server.url) for w in shown["curl"]]
        done = subprocess.run(words, capture_output=True, check=True, timeout=30)
        assert json.loads(done.stdout)["state"] == "queued"
    assert [w[:2] for w in commands(SERVE) if w[0] == "nautile"] == [
        ["nautile", "serve"],
        ["nautile", "token"],
        ["nautile", "worker"],
    ]
    place = ["--store", str(tmp_path / "store")]
    assert main(["token", "create", "alice", *place]) == 0
    text = capsys.readouterr().out.strip()
    assert re.fullmatch(r"nau_[0-9a-f]{12}_\S{43}", text)
    assert main(["token", "list", *place]) == 0
    assert "alice" in (told := capsys.readouterr().out)
    assert text.split("_", 2)[2] not in told
    assert main(["token", "revoke", text.split("_")[1], *place]) == 0
    assert main(["token", "revoke", text.split("_")[1], *place]) == 2
    assert main(["token", "create", "bob", "--scopes", "everything", *place]) == 2
    assert main(["queue", "show", "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["runs"]["queued"] == 1
    assert main(["queue", "requeue", *place]) == 0


def test_every_variable_is_told_and_exists() -> None:
    told: set[str] = set()
    for line in OWN.splitlines():
        if line.startswith("| `NAUTILE_"):
            told |= set(re.findall(r"`(?:NAUTILE)?_([A-Z_]+)`", line.split("|")[1]))
    known = {field.name.upper() for field in fields(Settings)}
    assert told - known == {"CACHE"}
    assert known - told == {
        "HEADER_BYTES",
        "BEAT_SECONDS",
        "POLL_SECONDS",
        "CLAIM_SECONDS",
        "PACKS",
        "STREAM_SECONDS",
    }


def test_defaults_are_told_truly() -> None:
    row = next(line for line in OWN.splitlines() if line.startswith("| `NAUTILE_QUEUE`"))
    settings = Settings()
    assert f"{settings.queue}, {settings.attempts}, {settings.lease_seconds:g}" in row


def test_the_units_variables_exist() -> None:
    known = {field.name.upper() for field in fields(Settings)} | {"CACHE"}
    assert set(re.findall(r"NAUTILE_([A-Z_]+)", UNIT)) <= known
    seconds = int(re.findall(r"TimeoutStopSec=(\d+)", UNIT)[0])
    assert seconds > Settings().drain_seconds + 10  # what the supervisor waits, at most


@pytest.mark.parametrize(
    "words",
    [
        ["--no-auth", "--host", "0.0.0.0"],
        ["--port", "1", "--host", "203.0.113.1"],
    ],
)
def test_an_address_that_does_not_do_is_refused(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nautile", "serve", "--store", str(tmp_path / "store")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("value", ["many", "-1", "0", "nan"])
def test_a_variable_that_does_not_do_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAUTILE_LEASE_SECONDS", value)
    assert main(["worker", "--store", str(tmp_path / "store")]) == 2
