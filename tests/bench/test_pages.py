"""The pages of results without peers show the figures that the files hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import pages
import render


def spent(wall: float, cpu: float) -> dict[str, float]:
    return {"wall_s": wall, "cpu_s": cpu}


EMISSION = {
    "date": "2026-01-02", "cores": 2, "processor": "P", "nvrtc": "13.5", "python": "3.11",
    "load": 1.5,
    "kernels": [{
        "kind": "product", "schedule": "sm_90a, tiles m=128", "emit": spent(0.5, 0.25),
        "compile": [spent(1.0, 0.5) | {"lines": 100}, spent(0.5, 0.125) | {"lines": 20}],
        "whole": spent(2.0, 0.875),
    }],
    "schedules": [{
        "kind": "product", "schedules": 64, "threads": 2, "emit": spent(1.0, 0.75),
        "compile": spent(20.0, 30.5), "whole": spent(21.0, 31.25), "refused": 3, "kernels": 65,
    }],
}  # fmt: skip
PROFILE = {
    "case": "c", "gpu": "G", "date": "2026-01-02", "ncu": "2025",
    "kernels": [
        {"name": "k_O", "whose": "nautile", "ms": 1.25, "tensor_cycles": 71.4, "registers": 168,
         "dram_read_bytes": 2e6, "dram_written_bytes": 0.5e6,
         "stalls": {"barrier": 0.5, "wait": 0.25, "math": 0.125, "other": 0.0625}},
    ],
}  # fmt: skip
SEEN = {"gpu": "G", "date": "2026-01-02"}
TOOLS = [
    {"tool": "racecheck", "bundle": "a", "verdict": "clean", "said": "clean"},
    {"tool": "racecheck", "bundle": "b", "verdict": "dirty", "said": "Race | at 0x10"},
    {"tool": "initcheck", "bundle": "a", "verdict": "not run", "said": "not run"},
]


def test_pages_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "emission.json").write_text(json.dumps(EMISSION))
    (tmp_path / "sanitizer.json").write_text(json.dumps([t | SEEN for t in TOOLS]))
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "c.json").write_text(json.dumps(PROFILE))
    names = sorted(p.name for p in pages.written(tmp_path))
    assert names == ["emission.md", "profiles.md", "sanitizer.md"]
    text = (tmp_path / "emission.md").read_text()
    assert "| product | sm_90a, tiles m=128 | 120 | 0.25 | 0.62 | 0.88 | 2.00 |" in text
    assert "64 schedules of product, 2 threads: emitted in 0.8 s of processor" in text
    shown = (tmp_path / "profiles.md").read_text()
    row = "| c | k_O | nautile | 1.2500 | 71 |  |  |  |  |  |  | 2 | 168 | barrier 50%, wait 25%"
    assert row in shown
    assert "other" not in shown
    tools = (tmp_path / "sanitizer.md").read_text().splitlines()
    assert "G, 2026-01-02." in tools
    assert "| a | clean | not run |" in tools
    assert "| b | Race \\| at 0x10 |  |" in tools
    index = render.render(tmp_path)
    assert all(f"[{name}]({name})" in index for name in names)


RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


@pytest.mark.parametrize("name", sorted(pages.PAGES))
def test_pages_that_are_kept_are_those_of_their_results(name: str) -> None:
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert pages.PAGES[name](found) == (RESULTS / f"{name}.md").read_text()


def test_a_folder_without_them(tmp_path: Path) -> None:
    assert pages.written(tmp_path) == []
    assert not list(tmp_path.iterdir())
