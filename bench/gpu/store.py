"""Result files: a JSON list of records, one a case, rewritten whole after every case.

```
Record ::= group, case, program, dtype, shape {size: n}, correct, gpu, date, versions,
           error                                     why there is no figure
         | nautile {Timed, kernels}, variants {name: Timed + Ratio}, peers {name: Timed + Ratio +
           error}, skipped {peer: why}, relative_error, naive_error, tflops, gb_per_s,
           copy_gb_per_s, of_copy, same_size_copy, predicted_ms, smi, seed, wrong_variants
Timed  ::= ms, low, high, spread                     figures.summary of the rounds
Ratio  ::= ratio, ratio_low, ratio_high              its time over that of nautile
```

A record of a case that was wrong, or that did not run, has no time of ours and no ratio.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .case import Case

__all__ = ["Record", "failure", "head", "line", "merged", "read", "write"]

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """The records of a file; none where there is no file."""
    found: list[Record] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(path: Path, records: list[Record]) -> None:
    """The whole file at once, so that a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(records, indent=1) + "\n")
    os.replace(aside, path)


def head(case: Case) -> Record:
    """What every record of a case begins with."""
    return {
        "group": case.group,
        "case": case.name,
        "program": case.program,
        "dtype": case.dtype,
        "shape": dict(case.sizes),
    }


def failure(case: Case, error: str) -> Record:
    """The record of a case that gave no figure."""
    empty: Record = {"nautile": None, "variants": {}, "peers": {}, "skipped": {}, "versions": {}}
    return head(case) | {"correct": False, "error": error[:500], **empty}


def merged(files: Iterable[list[Record]]) -> list[Record]:
    """The records of several runs. Of two for one case the later one stands, unless it gave no
    figure because its time was over or it was not built."""
    kept: dict[tuple[str, str], Record] = {}
    for records in files:
        for record in records:
            key = (record["group"], record["case"])
            if key not in kept or not record.get("not_run"):
                kept[key] = record
    return list(kept.values())


def line(record: Record) -> str:
    """One record for people."""
    mark, ours = "ok " if record["correct"] else "BAD", record["nautile"]
    if ours is None:
        return f"{mark} {record['case']:56} {record.get('error', '')[:120]}"
    others = {**record["variants"], **record["peers"]}
    ratios = [f"{n} x{p['ratio']:.2f}" for n, p in others.items() if "ratio" in p]
    rate = f"{record['tflops']:.0f} TFLOP/s" if record.get("tflops") else ""
    rate = rate or f"{record['of_copy']:.0%} of copy"
    return f"{mark} {record['case']:56} {ours['ms']:.4f} ms, {rate}: {', '.join(ratios)}"
