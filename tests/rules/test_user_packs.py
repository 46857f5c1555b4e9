"""Packs of the user: checked before use, refused or accepted by name, told to the certificate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nautile import lang
from nautile.cli import main
from nautile.errors import InputError, SourceError
from nautile.options import Options
from nautile.rules.admission import admit
from nautile.stages import Optimization, optimize, saturate

PROGRAM = """
def dotted(x: f32[N,K], s: f32[N], *, N=64, K=64) -> f32[N]:
    y[i] = sum[k](x[i,k] * s[i])
    return y
"""
CLASSES = ("exact", "real")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("NAUTILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("nautile.rules.admission._KNOWN", {})
    return tmp_path / "cache"


def pack(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.nau"
    path.write_text(text)
    return str(path)


def test_a_sound_rule_joins_and_its_verdict_is_kept(tmp_path: Path, cache: Path) -> None:
    own = pack(tmp_path, "with exact:\n    mine = -(a * -b) >> a * b\n")
    admitted = admit(("algebra",), (own,), (), CLASSES)
    assert admitted.rules[-1].name == "mine"
    assert admitted.accepted == ()
    (kept,) = (cache / "rules").glob("*.json")
    assert json.loads(kept.read_text())["verdict"] == "sound"


def test_an_unsound_rule_is_refused_with_its_repair(tmp_path: Path) -> None:
    own = pack(tmp_path, "with real:\n    loose = sum[j](a * b) >> sum[j](a) * b\n")
    with pytest.raises(InputError, match="sound with: j not in b") as caught:
        admit(("algebra",), (own,), (), CLASSES)
    assert caught.value.code == "unsound-rule"


def test_what_is_accepted_stands_in_the_certificate(tmp_path: Path) -> None:
    own = pack(tmp_path, "with real:\n    wrong = exp(a) >> exp(a) * 2, a > 0\n")
    options = Options(rules=(own,), accept=("wrong",))
    result = optimize(PROGRAM, options)
    assert result.certificate is not None
    assert result.certificate.as_dict()["accepted_rules"] == [
        {"rule": "wrong", "verdict": "unsound"}
    ]
    assert "accepted   rule wrong" in result.as_text()


def test_a_wrong_program_fails_its_certificate(tmp_path: Path) -> None:
    own = pack(tmp_path, "with real:\n    loose = sum[j](a * b) >> a + b\n")
    result = optimize(PROGRAM, Options(rules=(own,), accept=("loose",)))
    assert result.certificate is not None
    assert "y depends on k" in result.certificate.failures[0].detail


def test_keys_follow_the_text_of_packs(tmp_path: Path) -> None:
    own = pack(tmp_path, "with exact:\n    mine = -(a * -b) >> a * b\n")
    (program,) = lang.parse(PROGRAM)
    keys = {Optimization(program, o).key for o in (Options(), Options(rules=(own,)))}
    pack(tmp_path, "with exact:\n    mine = -(-a * b) >> a * b\n")
    keys.add(Optimization(program, Options(rules=(own,))).key)
    keys.add(Optimization(program, Options(rules=(own,), accept=("mine",))).key)
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("text", "accept", "code"),
    [
        ("with exact:\n    mul_comm = a * b == b * a\n", (), "duplicate"),
        ("with exact:\n    mine = -(a * -b) >> a * b\n", ("other",), "unknown-name"),
        ("with exact:\n    mine = a +\n", (), "syntax"),
    ],
)
def test_packs_that_do_not_fit_are_refused(
    tmp_path: Path, text: str, accept: tuple[str, ...], code: str
) -> None:
    own = pack(tmp_path, text)
    with pytest.raises((InputError, SourceError)) as caught:
        admit(("algebra",), (own,), accept, CLASSES)
    assert caught.value.code == code


def test_a_shipped_pack_keeps_its_name(tmp_path: Path) -> None:
    own = pack(tmp_path, "with exact:\n    mine = -(a * -b) >> a * b\n", "algebra")
    with pytest.raises(InputError, match="shipped pack's name"):
        admit(None, (own,), (), CLASSES)


def test_approximate_laws_join_by_name_alone(tmp_path: Path) -> None:
    own = pack(tmp_path, "with approx:\n    tiny = sin(a) >> a, within(1e-2), a < 0.1, a > -0.1\n")
    assert "tiny" not in {r.name for r in admit(("algebra",), (own,), (), CLASSES).rules}
    admitted = admit(("algebra",), (own,), ("tiny",), CLASSES)
    assert admitted.rules[-1].name == "tiny"
    assert admitted.accepted == (("tiny", "sound"),)


def test_the_command_line_names_what_it_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pack(tmp_path, "with real:\n    loose = sum[j](a * b) >> sum[j](a) * b\n")
    source = tmp_path / "p.nau"
    source.write_text(PROGRAM)
    assert main(["optimize", str(source), "--rules", own]) == 2
    assert "loose is unsound (real)" in capsys.readouterr().err


def test_what_explodes_is_stopped_and_named(tmp_path: Path) -> None:
    own = pack(tmp_path, "with real:\n    explode = a * b >> (a * 2) * (b / 2)\n")
    result = optimize(PROGRAM, Options(rules=(own,), rows=400))
    saturation = result.as_dict()["saturation"]
    assert saturation["stop"] == "rows"
    assert "explode" in saturation["growth"]
    assert "most terms came from" in result.as_text()
    assert result.passed


def test_a_rule_may_rest_sooner(tmp_path: Path) -> None:
    """With `backoff(1)` a rule of two matches rests in the iteration after."""
    source = PROGRAM.replace("x[i,k] * s[i]", "tanh(x[i,k]) * sin(s[i]) + cos(x[i,k]) * s[i]")
    law = "with real:\n    turn = a * b >> b * sin(a + 0.5){}\n"
    found = []
    for hint in ("", ", backoff(1)"):
        own = pack(tmp_path, law.format(hint))
        options = Options(packs=("elementwise",), rules=(own,), accept=("turn",))
        result = Optimization(lang.parse(source)[0], options)
        saturate(result)
        found.append(result.snapshots[0].report.growth)
    assert found[0][0] == found[1][0]
    assert found[0][1] > found[1][1]
