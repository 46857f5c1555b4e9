"""What the command line prints: the JSON contract, stop reasons, bundles, listings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nautile.cli import main

ATTENTION = """def attention(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], *,
              H=4, T=300, S=333, D=64) -> bf16[H,T,D]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    p[h,t,s] = softmax[s](x[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""
KERNEL = [
    "name", "outputs", "reads_bytes", "writes_bytes", "tensor_flops", "vector_flops",
    "special_ops", "tile", "streams", "rules", "seconds", "split",
    "implementations",
]  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "attention.nau"
    path.write_text(ATTENTION)
    return path


def optimized(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["optimize", "--json", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, object] = json.loads(out)
    return found


def test_the_json_has_the_agreed_fields(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = optimized(capsys, str(source))
    assert list(row) == [
        "program", "source", "key", "target", "numerics", "status", "error", "saturation",
        "baseline", "chosen", "certificate", "timings",
    ]  # fmt: skip
    assert sorted(row["saturation"]) == ["growth", "iterations", "rows", "seconds", "stop"]  # type: ignore[call-overload]
    assert sorted(row["baseline"]) == ["bytes", "kernels", "seconds"]  # type: ignore[call-overload]
    chosen = row["chosen"]
    assert sorted(chosen) == ["bound", "bytes", "gap", "kernels", "seconds"]  # type: ignore[call-overload]
    assert [list(k) for k in chosen["kernels"]] == [KERNEL]  # type: ignore[index]
    assert list(row["timings"]) == ["parse", "saturate", "extract", "lower", "compile", "certify"]  # type: ignore[call-overload]


def test_two_runs_agree_but_for_times(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def timeless() -> dict[str, object]:
        row = optimized(capsys, str(source))
        del row["timings"]
        row["saturation"] = {k: v for k, v in row["saturation"].items() if k != "seconds"}  # type: ignore[attr-defined]
        return row

    assert timeless() == timeless()


@pytest.mark.parametrize(
    ("option", "value", "stop"), [("--rows", "30", "rows"), ("--seconds", "0.001", "time")]
)
def test_a_stopped_saturation_still_gives_a_program(
    option: str, value: str, stop: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = optimized(capsys, str(source), option, value)
    assert row["saturation"]["stop"] == stop  # type: ignore[index]
    assert row["certificate"]["verdict"] == "pass"  # type: ignore[index]


@pytest.mark.parametrize(
    "option", ["--rows=0", "--seconds=-1", "--memory=0", "--rows=9" + "9" * 30]
)
def test_budgets_out_of_range(
    option: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", str(source), option]) == 2
    assert capsys.readouterr().out == ""


def test_sizes_from_the_command_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = optimized(capsys, str(source), "--dims", "T=1700,S=4096")
    kernel = row["chosen"]["kernels"][-1]  # type: ignore[index]
    assert kernel["writes_bytes"] == 4 * 1700 * 64 * 2


def test_a_bundle_is_written_and_an_old_one_replaced(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert main(["build", "-o", str(out), str(source)]) == 0
    names = {p.name for p in (out / "attention").iterdir()}
    assert {"manifest.json", "certificate.json"} <= names
    assert any(n.endswith(".cubin") for n in names)
    assert "RawKernel" in next((out / "attention").glob("*.cu")).read_text()
    assert sorted(p.name for p in out.iterdir()) == ["attention"]


def test_output_that_is_no_bundle_is_left_alone(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "out" / "attention"
    taken.mkdir(parents=True)
    (taken / "thesis.txt").write_text("dear")
    assert main(["build", "-o", str(tmp_path / "out"), str(source)]) == 2
    assert [p.name for p in taken.iterdir()] == ["thesis.txt"]


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"]) == 0
    assert {json.loads(x)["name"] for x in capsys.readouterr().out.splitlines()} >= {"h200", "a100"}
    assert main(["rules", "list", "--json"]) == 0
    rules = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"exact", "real", "fast", "facts"} <= {r["class"] for r in rules}
    assert main(["rules", "show", rules[0]["rule"]]) == 0
    assert rules[0]["law"] in capsys.readouterr().out
    assert main(["rules", "show", "no_such_rule"]) == 2
    assert main(["examples", "attention"]) == 0
    assert "def attention" in capsys.readouterr().out


def test_interruption_leaves_no_child(source: Path) -> None:
    command = [sys.executable, "-m", "nautile", "optimize", "--dims", "T=4096,S=4096", str(source)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode in (0, 130, -signal.SIGINT)  # the last where it had hardly started


def test_without_a_gpu_running_is_refused_by_name(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "-q", "-o", str(tmp_path / "out"), str(source)]) == 0
    capsys.readouterr()
    assert main(["run", str(tmp_path / "out" / "attention")]) == 2
    assert "cupy" in capsys.readouterr().err.lower()
    assert main(["run", str(tmp_path / "nowhere")]) == 2
