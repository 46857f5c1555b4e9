"""Run the bundles of a folder on the GPU and judge each against its stored float64 reference.

    python bench/check_bundles.py [--prefix fused-] [--seconds 280] [-o FILE]

Needs numpy and cupy. Every bundle runs in a child process of its own, so that one that hangs or
breaks costs its own line only. The exit status is 1 where a verdict is not pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BUNDLES = Path(__file__).resolve().parent / "bundles"
LONGEST = 60.0  # seconds of one bundle


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", default="fused-")
    parser.add_argument("--seconds", type=float, default=280.0, help="limit of the whole run")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    start, rows = time.perf_counter(), []
    for folder in sorted(BUNDLES.glob(f"{options.prefix}*")):
        left = options.seconds - (time.perf_counter() - start)
        row = {"bundle": folder.name, **(_checked(folder, min(left, LONGEST)) if left > 5 else {})}
        rows.append(row)
        print(row.get("verdict", "not run"), folder.name, row.get("error", ""), flush=True)
        if options.output:
            options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if rows and all(r.get("verdict") == "pass" for r in rows) else 1


def _checked(folder: Path, seconds: float) -> dict[str, Any]:
    """The launcher's report on one bundle."""
    command = [sys.executable, "-m", "nautile.runtime", "bench", str(folder)]
    command += ["--repeats", "20", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"verdict": "timeout"}
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"verdict": "error", "error": done.stderr.strip()[-300:]}
    return report


if __name__ == "__main__":
    sys.exit(main())
