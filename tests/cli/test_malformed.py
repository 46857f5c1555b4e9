"""Malformed input: one clear message on standard error, exit status 2, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nautile.cli import main

GOOD = """def f(x: f32[N,C], *, N=8, C=16) -> f32[N,C]:
    y[n,c] = x[n,c] * 2
    return y
"""

CASES = {
    "unknown name": (GOOD.replace("* 2", "* zz[n,c]"), "zz"),
    "near name is named": (GOOD.replace("return y", "return yy"), "y"),
    "wrong rank": (GOOD.replace("x[n,c] *", "x[n] *"), "x"),
    "index without a range": (GOOD.replace("x[n,c] *", "x[n,c] * q +"), "q"),
    "cyclic definition": (GOOD.replace("x[n,c] *", "y[n,c] *"), "y"),
    "assigned twice": (GOOD.replace("    return", "    y[n,c] = x[n,c]\n    return"), "y"),
    "zero size": (GOOD.replace("N=8", "N=0"), "N"),
    "negative size": (GOOD.replace("N=8", "N=-3"), "N"),
    "size mismatch": (
        "def f(x: f32[N], y: f32[M], *, N=4, M=5) -> f32[N]:\n"
        "    z[i] = x[i] + y[i]\n    return z\n",
        "y",
    ),
    "nested parentheses": (GOOD.replace("2", "(" * 100_000 + "2" + ")" * 100_000), "nest"),
    "too many bytes": (GOOD + "#" * 10_000_000, "byte"),
    "not Python": ("def f(:\n", "1"),
    "a call of Python": (GOOD.replace("* 2", "* __import__('os')"), "__import__"),
    "empty": ("", "program"),
}


@pytest.mark.parametrize("case", CASES)
def test_malformed_text(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, mentioned = CASES[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.nau").write_text(text)
    assert main(["optimize", "bad.nau", "-o", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: bad.nau")
    assert mentioned in err
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.nau"]


@pytest.mark.parametrize("content", [b"\x7fELF\x00\x01\xff\xfe", b"\xff\xfe\xfa", b"a\x00b"])
def test_binary_file(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.nau"
    path.write_bytes(content)
    assert main(["optimize", str(path)]) == 2
    assert "error:" in capsys.readouterr().err


def test_missing_file_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(tmp_path / "no.nau")]) == 2
    assert "no.nau" in capsys.readouterr().err
    assert main(["optimize", str(tmp_path)]) == 2


def test_json_of_a_malformed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.nau"
    path.write_text(CASES["unknown name"][0])
    assert main(["optimize", "--json", str(path)]) == 2
    row = json.loads(capsys.readouterr().out)
    assert row["status"] == "error"
    assert row["error"]["code"] == "unknown-name"
    assert row["error"]["line"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dims", "N"],
        ["--dims", "N=x"],
        ["--dims", "Q=3"],
        ["--dims", "N=0"],
        ["--target", "h2000"],
        ["--numerics", "sloppy"],
        ["--no-such-option"],
    ],
)
def test_bad_options(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "good.nau"
    path.write_text(GOOD)
    assert main(["optimize", str(path), *arguments]) == 2
    assert capsys.readouterr().err


def test_one_bad_file_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.nau", tmp_path / "bad.nau"
    good.write_text(GOOD)
    bad.write_text("def\n")
    assert main(["optimize", "--json", str(bad), str(good)]) == 2
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["status"] for r in rows] == ["error", "ok"]
