"""Batches and the service under `kill -9`, in full: nothing lost, nothing doubled, nothing damaged.

    python bench/kills.py [--kills 300] [--only batch,service] [--databases sqlite,postgresql]
                          [-o bench/results/kills.json]

Runs the harnesses of the tests (tests/batch/kill.py, tests/service/kills.py) at length; what each
of them promises is in its docstring. Kills fall at random moments on the batch process, its workers
and their children; on the server, its workers, the processes that execute and those that parse.

```
Record ::= group "kills", case, database, correct, kills, killed {what: count}, seconds,
           facts {runs, rounds, files | accepted}, problems [text], date, versions, machine
```
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy

from nautile import __version__

ROOT = Path(__file__).resolve().parent.parent
TOLD = 2000  # characters of what a harness said when it failed


def main() -> int:
    """See the module's docstring; status 1 where a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="batch,service")
    parser.add_argument("--databases", default="sqlite,postgresql")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench/results/kills.json")
    asked = parser.parse_args()
    good = True
    for case in asked.only.split(","):
        for database in asked.databases.split(","):
            row = _row(case, database, asked.kills, asked.seed)
            print(json.dumps(row), flush=True)
            _keep(asked.output, row)
            good &= row["correct"]
    return 0 if good else 1


def _row(case: str, database: str, kills: int, seed: int) -> dict[str, Any]:
    """One harness on one database."""
    count = ["--kills", str(kills), "--seed", str(seed)]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nautile-kills-") as folder:
        output = Path(folder, "told.json")
        if case == "batch":
            command = ["tests.batch.kill", *count, *_flag(database)]
        else:
            command = ["service.kills", *count, "--database", database]
        place = ROOT if case == "batch" else ROOT / "tests"
        words = [sys.executable, "-m", *command, "-o", str(output)]
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{place}"}
        ended = subprocess.run(words, cwd=place, env=environment, capture_output=True, check=False)
        told = json.loads(output.read_text()) if output.exists() else {}
    problems = told.get("problems", [])
    if ended.returncode and not problems:
        problems = [(ended.stderr or ended.stdout).decode(errors="replace")[-TOLD:]]
    return {
        "group": "kills",
        "case": case,
        "database": database,
        "correct": not problems and bool(told),
        "kills": sum(told.get("killed", {}).values()),
        "killed": told.get("killed", {}),
        "seconds": round(time.monotonic() - begun, 1),
        "facts": told.get("facts", {}),
        "problems": problems,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "nautile": __version__,
            "python": platform.python_version(),
            "sqlalchemy": sqlalchemy.__version__,
        },
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
    }


def _flag(database: str) -> list[str]:
    return ["--postgresql"] if database == "postgresql" else []


def _keep(path: Path, row: Mapping[str, Any]) -> None:
    """Write the record beside those of other cases and databases."""
    old = json.loads(path.read_text()) if path.exists() else []
    mark = (row["case"], row["database"])
    rows = [r for r in old if (r["case"], r["database"]) != mark]
    path.write_text(json.dumps([*rows, row], indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
