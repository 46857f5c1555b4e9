"""`nautile batch` as people run it: real workers, exit statuses, signals, kills."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.batch.doubles import by_input, rows, source
from tests.batch.kill import Harness, below, write_files
from tests.store.postgresql import Server, postgresql

from nautile.batch.results import NAME, records
from nautile.cli import main
from nautile.store import Store

__all__ = ["postgresql"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.nau").write_text(source(2))
    (folder / "b.nau").write_text(source(2, "g", "u", "v", "K"))
    return folder


def run(*arguments: object) -> int:
    return main(["batch", *map(str, arguments)])


HEAVY = ("numpy", "egglog", "highspy", "networkx", "alembic", "ray", "nautile.lang.parser")


def loaded_by(*arguments: object) -> set[str]:
    """Which of the heavy modules a batch of its own process loads, that goes well."""
    code = (
        "import sys; from nautile.cli import main; status = main(sys.argv[1:]);"
        f" print(*({set(HEAVY)!r} & sys.modules.keys())); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "batch", *map(str, arguments)]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(made.stdout.splitlines()[-1].split())


def test_a_batch_from_the_command_line(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "<bad>.nau").write_text("def broken(  # <script>")
    out = tmp_path / "out"
    assert run(inputs, "-o", out, "--no-compile", "--jobs", 1, "--json") == 1
    told, said = capsys.readouterr()
    assert [json.loads(line)["status"] for line in told.splitlines()] == ["error", "ok", "ok"]
    assert "failed: " in said
    summary = json.loads((out / "summary.json").read_text())
    expected = {"inputs": 3, "ok": 2, "failed": 1, "distinct": 1, "cached": 1, "computed": 1}
    assert {name: summary[name] for name in expected} == expected
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"<link|src=|onclick", page)
    assert page.count("<script") == 1
    assert "&lt;bad&gt;.nau" in page
    assert 'href="bundles/a.nau/f/"' in page
    again = [inputs / "[ab].nau", "-o", tmp_path / "again", "--store", out / "store"]
    assert loaded_by("--no-compile", "--quiet", *again) == set()
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["computed"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["empty"], "no expression files"),
        (["in", "--target", "z9"], "unknown device 'z9'"),
        (["in", "--numerics", "best"], "unknown numerics class 'best'"),
        (["in", "--rules", "none.nau"], "no rule pack none.nau"),
        (["in", "--dims", "N=x"], "--dims takes"),
        (["in/*.txt"], "no file matches"),
        (["in", "--arch", "x1"], "x1"),
        (["in", "--shard", "3/2"], "expected I/N"),
    ],
)
def test_usage_is_told_before_anything_runs(
    arguments: list[str], said: str, inputs: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(inputs.parent)
    (inputs.parent / "empty").mkdir()
    assert run(*arguments, "-o", "out") == 2
    assert said in capsys.readouterr().err
    assert not list(Path("out").glob("bundles"))


def test_an_output_that_cannot_be_written_is_told(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    assert run(inputs, "-o", tmp_path / "out") == 2
    assert "cannot be written" in capsys.readouterr().err


def begun(tmp_path: Path, *more: str) -> subprocess.Popen[bytes]:
    """A batch of its own process, once a worker saturates."""
    command = [sys.executable, "-m", "nautile", "batch", "in", "-o", "out", "--no-compile"]
    process = subprocess.Popen([*command, "--jobs", "1", *more], cwd=tmp_path)
    end = time.monotonic() + 60
    while len(list(below(process.pid))) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(("number", "least"), [(signal.SIGINT, 1), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_batch_that_resume_completes(
    number: signal.Signals, least: int, inputs: Path, tmp_path: Path
) -> None:
    """SIGINT lets the running program end; SIGTERM does not wait for it."""
    for n in range(3, 6):
        (inputs / f"{n}.nau").write_text(source(n))
    process = begun(tmp_path)
    everyone = list(below(process.pid))
    process.send_signal(number)
    assert process.wait(60) == 130
    Harness(tmp_path, 0, random.Random()).no_orphans(everyone)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert not summary["complete"]
    assert least <= summary["inputs"] < 5
    assert run(inputs, "-o", tmp_path / "out", "--no-compile", "--resume", "--quiet",
               "--jobs", 1) == 0  # fmt: skip
    assert [r["index"] for r in rows(tmp_path / "out")] == [0, 1, 2, 3, 4]


def killed(
    tmp_path: Path, files: int, kills: int, database: Callable[[], str] | None = None
) -> Harness:
    harness = Harness(tmp_path, files, random.Random(files), database)
    calm = harness.prepare()
    done, number = 0, 0
    while done < kills:
        number += 1
        done += harness.round(f"r{number}", kills - done, calm / 4)
    return harness


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_damaged_by_kills(tmp_path: Path) -> None:
    harness = killed(tmp_path, 30, 60)
    assert sum(harness.killed.values()) >= 60


def test_a_few_kills(tmp_path: Path) -> None:
    harness = killed(tmp_path, 4, 4)
    assert sum(harness.killed.values()) >= 4


@pytest.mark.slow
def test_kills_over_a_database_server(tmp_path: Path, postgresql: Server) -> None:
    harness = killed(tmp_path, 10, 20, postgresql.database)
    assert sum(harness.killed.values()) >= 20


def test_two_batches_at_once_share_a_database(tmp_path: Path, postgresql: Server) -> None:
    """Each key is computed once, or by both where they come to it at the same time; a batch that
    is ended goes on with what the other has put; a third one finds everything."""
    write_files(tmp_path / "in", 6, 3)
    place = ["--store", postgresql.database(), "--artifacts", str(tmp_path / "artifacts")]
    command = [sys.executable, "-m", "nautile", "batch", "in", "--no-compile", "--quiet"]
    command += ["--jobs", "1", "--resume", *place]
    both = [subprocess.Popen([*command, "-o", n], cwd=tmp_path) for n in ("one", "two")]
    end = time.monotonic() + 120
    while not (tmp_path / "two" / NAME).exists() or not list(records(tmp_path / "two" / NAME)):
        assert time.monotonic() < end
        time.sleep(0.05)
    both[1].send_signal(signal.SIGTERM)
    assert both[1].wait(60) in (0, 130, -signal.SIGTERM)  # the last: all its records were written
    both.append(subprocess.Popen([*command, "-o", "two"], cwd=tmp_path))
    assert [p.wait(200) for p in (both[0], both[2])] == [0, 0]
    first, second = by_input(tmp_path / "one"), by_input(tmp_path / "two")
    assert {m: r["key"] for m, r in first.items()} == {m: r["key"] for m, r in second.items()}
    assert all(r["status"] == "ok" for r in (*first.values(), *second.values()))
    computed = Counter(r["key"] for r in (*first.values(), *second.values()) if not r["cached"])
    keys = {r["key"] for r in first.values()}
    assert len(keys - set(computed)) <= 1  # stored, and its batch ended before the record
    assert max(computed.values()) <= 2
    with Store.open(place[1], Path(place[3])) as store:
        assert set(store.keys()) == keys
        assert store.verify().sound
    assert run(tmp_path / "in", "-o", tmp_path / "three", "--no-compile", "--quiet", *place) == 0
    assert json.loads((tmp_path / "three" / "summary.json").read_text())["computed"] == 0
