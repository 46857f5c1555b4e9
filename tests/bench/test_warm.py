"""Peers compiled beforehand: every part of the cases once, and nothing waits for one that hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu.warm import together


def test_each_part_runs_once_and_at_the_same_time(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        f"mine = pathlib.Path({str(tmp_path)!r}) / sys.argv[1].replace('/', 'of')\n"
        "mine.touch(exist_ok=False)\n"
        "while len(list(mine.parent.iterdir())) < 3: time.sleep(0.01)\n"
        "sys.exit(mine.name.startswith('1'))"
    )
    good = together(3, 30.0, lambda part: [sys.executable, "-c", code, part])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0of3", "1of3", "2of3"]
    assert good == 2


def test_one_that_hangs_is_killed() -> None:
    def command(part: str) -> list[str]:
        return [sys.executable, "-c", f"import time; time.sleep({600 if part == '0/2' else 0})"]

    began = time.monotonic()
    assert together(2, 1.0, command) == 1
    assert time.monotonic() - began < 20


def test_peers_compiled_beforehand_take_part_late() -> None:
    from gpu.options import Options

    peer = SimpleNamespace(name="flex", kind="compiled", seconds=9.0, missing=lambda: False)
    cold, warm = (Options(("compiled",), warmed=w) for w in (False, True))
    assert cold.excludes(peer, 10.0) == "10 s are left, making it takes about 9 s"
    assert warm.excludes(peer, 10.0) is None
    assert warm.excludes(peer, 5.0) == "5 s are left, making it takes about 3 s"


def test_cases_are_picked_by_texts() -> None:
    from gpu.groups import cases

    assert cases(["gemm"], "") == cases(["gemm"])
    names = [c.name for c in cases(["gemm"], "gemm_rows,M8192")]
    assert names == ["products-gemm-M8192-N8192-K8192", "products-gemm_rows-M4096-N4096-K4096"]
    assert cases(["gemm"], "nothing") == []
