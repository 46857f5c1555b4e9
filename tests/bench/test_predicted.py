"""bench/predicted.py: times find their predictions, whatever is missing or foreign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import predicted


def built(name: str) -> dict[str, Any]:
    ways = [{"schedule": "wide", "seconds": 2e-3}, {"schedule": "narrow", "seconds": 4e-3}]
    kernels = [{"name": "k", "implementations": ways}]
    return {
        "program": name, "key": "abc", "target": "h200", "status": "ok",
        "chosen": {"seconds": 2e-3, "kernels": kernels},
    }  # fmt: skip


def report(name: str) -> dict[str, Any]:
    ways = [
        {"schedule": "wide", "ms": 3.0, "picked": True},
        {"schedule": "narrow", "ms": 2.0, "picked": False},
        {"schedule": "unknown", "ms": 1.0, "picked": False},
    ]
    contests = [{"launch": "k", "implementations": ways}]
    return {
        "program": name, "gpu": "a card", "ms": 3.1, "verdict": "pass", "contests": contests
    }  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    first, second, out = (tmp_path / n for n in ("built.jsonl", "bench.json", "out.json"))
    failed = {"program": "bad", "status": "error", "chosen": None}
    rows = [built("one"), failed, built("two")]
    first.write_text("\n".join(map(json.dumps, rows)))
    second.write_text(json.dumps(report("one")))
    return first, second, out


def test_kernels_stand_beside_their_predictions(files: tuple[Path, Path, Path]) -> None:
    first, second, out = files
    assert predicted.main([str(first), "--bench", str(second), "-o", str(out)]) == 0
    (record,) = json.loads(out.read_text())
    assert record["case"] == "one"
    assert record["correct"] is True
    assert record["nautile"] == {
        "ms": pytest.approx(3.1), "predicted_ms": pytest.approx(2.0), "kernels": 1
    }  # fmt: skip
    assert [(k["schedule"], k["ratio"], k["picked"]) for k in record["kernels"]] == [
        ("wide", pytest.approx(1.5), True), ("narrow", pytest.approx(0.5), False),
    ]  # fmt: skip
    table = out.with_suffix(".md").read_text()
    assert "| one | **k** | wide | 2.0000 | 3.0000 | 1.50 | a card, " in table
    assert "geometric mean 1.55" in table


def test_without_times_there_is_no_record(files: tuple[Path, Path, Path]) -> None:
    first, _, out = files
    assert predicted.main([str(first), "-o", str(out)]) == 1
    assert json.loads(out.read_text()) == []
