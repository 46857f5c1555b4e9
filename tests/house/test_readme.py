"""Every command that the README shows is run, and must print what the README says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from nautile.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.S)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
STATUS = re.compile(r"# exit status (\d+)")
TIMES = re.compile(r"\d+(\.\d+)? (µs|ms|s)(?=,)")


def sessions() -> list[tuple[str, str]]:
    """(command, expected output) pairs of the console blocks that call nautile."""
    found = []
    for block in BLOCKS:
        for chunk in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = chunk.partition("\n")
            if command.startswith("nautile "):
                found.append((command, output))
    return found


def test_the_readme_shows_sessions() -> None:
    assert len(sessions()) >= 3


@pytest.mark.parametrize(("command", "expected"), sessions())
def test_command_prints_what_the_readme_says(
    command: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command, comments=True)[1:]
    arguments = [str(tmp_path) if a.startswith("out/") else a for a in words]
    status = int(STATUS.findall(command)[0]) if STATUS.search(command) else 0
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(arguments) == status
    actual = out.getvalue().replace(str(tmp_path), "out/demo")
    for line in filter(None, (TIMES.sub("TIME", x).rstrip() for x in expected.splitlines())):
        if line.strip() != "...":
            assert line in TIMES.sub("TIME", actual)


@pytest.mark.parametrize("target", re.findall(r"^\$ make (\w+)", README, re.M))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("code", [c for c in PYTHON if "cupy" not in c])
def test_python_blocks_run(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "README.md", "exec"), {})
