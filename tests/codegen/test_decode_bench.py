"""The bench of split reductions: what is built is what is run, and a dying child costs one case."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nautile.bundle import load_bundle
from nautile.worker import Worker

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import build_decode  # noqa: E402
import decode  # noqa: E402
import decode_cases  # noqa: E402
from decode_cases import CHOSEN, Case, tiled, variant  # noqa: E402

SIZES = {"B": 1, "H": 8, "Hk": 2, "T": 1, "S": 16384, "D": 32}
TINY = Case("decode", "decode", SIZES, "s", (1, 8), (32,))


def test_a_case_is_built_as_chosen_and_at_every_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_cases, "BUNDLES", tmp_path)
    worker = Worker()
    about = build_decode.build_case(TINY, "h200", worker)
    worker.close()
    assert [row["error"] for row in about.values() if "error" in row] == []
    manifest = load_bundle(tmp_path / TINY.name).manifest
    wanted = [CHOSEN, *map(variant, TINY.counts), *map(tiled, TINY.tiles)]
    assert list(about) == [p.name for p in manifest.programs] == wanted
    for count in TINY.counts:
        row = about[variant(count)]
        assert row["chunks"] == {"s": count}
        assert sum(map(len, row["tiles"])) == 2
        first = next(x for x in manifest.launches if x.program == variant(count))
        (kernel,) = first.implementations[-1].kernels
        assert kernel.grid[0] % count == 0
        assert kernel.cubins
    assert about[tiled(32)]["tiles"][0][0]["s"] == 32
    assert about[CHOSEN]["seconds"] < 1.03 * min(r["seconds"] for r in about.values())


def test_every_case_has_sizes_of_its_program_and_a_folder_of_its_own() -> None:
    found = decode_cases.cases()
    assert len({c.folder for c in found}) == len(found)
    text = (BENCH / "decode.nau").read_text()
    for case in found:
        head = text.split(f"def {case.program}(")[1].split("->")[0]
        assert all(f"{name}=" in head for name in case.sizes)
        assert f"{case.axis.upper()}=" in head
    assert {c.program for c in found if not c.counts} == {"prefill"}


def record(case: str) -> dict[str, Any]:
    return {
        "group": "decode", "case": case, "correct": True, "nautile": {"ms": 0.5, "kernels": 2},
        "peers": {"cudnn": {"ms": 0.6}}, "split": 32, "best_split": 64, "ratio_to_best": 1.02,
        "gb_per_s": 4000.0, "of_copy": 0.93,
    }  # fmt: skip


def test_a_child_that_dies_costs_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children run two cases each and then die; every case gets a record, in order."""
    path = tmp_path / "decode.json"
    wanted = [c for c in decode_cases.cases() if "S32768" in c.name]
    runs = []

    def child(options: argparse.Namespace, until: float) -> str | None:
        done = decode.read(path)
        decode.write(path, [*done, *(record(c.name) for c in wanted[len(done) :][:2])])
        runs.append(len(done))
        return None if len(runs) > 2 else "the process ended with status 4"

    monkeypatch.setattr(decode, "_child", child)
    monkeypatch.setattr(sys, "argv", ["decode.py", "--only", "S32768", "-o", str(path)])
    assert decode.main() == 1
    found = json.loads(path.read_text())
    assert [r["case"] for r in found] == [c.name for c in wanted]
    assert [r["correct"] for r in found] == [True, True, False, True, True, False]
    assert "x1.02" in decode.line(found[0])
    assert "status 4" in decode.line(found[2])


def test_what_there_was_no_time_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "decode.json"
    monkeypatch.setattr(sys, "argv", ["decode.py", "--seconds", "-1", "-o", str(path)])
    start = time.monotonic()
    assert decode.main() == 1
    assert time.monotonic() - start < 5
    assert {r["error"] for r in json.loads(path.read_text())} == {"not run: the time was over"}
