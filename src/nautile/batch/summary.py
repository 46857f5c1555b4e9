"""What a batch came to: OUT/summary.json and the table for people.

```
{"inputs", "ok", "failed", "distinct", "cached", "seconds", "files_per_second",
 "files", "resumed", "computed", "uncertified", "errors": {code: n}, "complete": true|false}
```

`inputs` are programs, and files that hold none; `failed` counts errors and failed certificates
(`uncertified` the latter alone); `distinct` are keys, whatever the names; `cached` are records
whose result was made for another program or in an earlier run; `resumed` ones were there before.
`files_per_second` is of this run: programs that got their records over `seconds`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nautile.batch.results import Before, status_of

__all__ = ["NAME", "Summary"]

NAME = "summary.json"


@dataclass(slots=True)
class Summary:
    """Counts, filled as records are made."""

    files: int = 0
    inputs: int = 0
    resumed: int = 0
    computed: int = 0
    cached: int = 0
    ok: int = 0
    uncertified: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    complete: bool = False
    _keys: set[bytes] = field(default_factory=set)

    @property
    def failed(self) -> int:
        """Records of errors, and of programs whose certificate failed."""
        return self.inputs - self.ok

    @property
    def distinct(self) -> int:
        """Keys of all records that have one."""
        return len(self._keys)

    @property
    def rate(self) -> float:
        """Records a second of this run."""
        return (self.inputs - self.resumed) / self.seconds if self.seconds else 0.0

    @property
    def exit_status(self) -> int:
        """3 where a certificate failed, 1 where another input did, else 0."""
        return 3 if self.uncertified else 1 if self.failed else 0

    def add(self, record: Mapping[str, Any]) -> bool:
        """Count a new record; whether it is one of a failure."""
        error = record.get("error") or {}
        key, cached = str(record.get("key") or ""), bool(record["cached"])
        return self._count(status_of(record), key.encode(), cached, error.get("code", ""))

    def resume(self, before: Before) -> None:
        """Count a record of an earlier run."""
        self.resumed += 1
        self._count(before.status, before.key, before.cached, before.code)

    def _count(self, status: str, key: bytes, cached: bool, code: str) -> bool:
        self.inputs += 1
        self.cached += cached
        if key:
            self._keys.add(key[:16])
        if status == "ok":
            self.ok += 1
            return False
        self.uncertified += status == "uncertified"
        self.errors[code if status == "failed" else "certificate"] += 1
        return True

    def as_dict(self) -> dict[str, Any]:
        """The object of summary.json."""
        return {
            "inputs": self.inputs,
            "ok": self.ok,
            "failed": self.failed,
            "distinct": self.distinct,
            "cached": self.cached,
            "seconds": round(self.seconds, 3),
            "files_per_second": round(self.rate, 3),
            "files": self.files,
            "resumed": self.resumed,
            "computed": self.computed,
            "uncertified": self.uncertified,
            "errors": dict(sorted(self.errors.items())),
            "complete": self.complete,
        }

    def as_text(self) -> str:
        """A table for people."""
        errors = ", ".join(f"{code} {n}" for code, n in self.errors.most_common())
        rows = [
            ("programs", f"{self.inputs} in {self.files} files, {self.distinct} distinct"),
            ("ok", str(self.ok)),
            ("failed", f"{self.failed}{f' ({errors})' if errors else ''}"),
            ("computed", f"{self.computed}, {self.cached} shared or from the store"),
            ("resumed", str(self.resumed)),
            ("time", f"{self.seconds:.1f} s, {self.rate:.2f} programs a second"),
        ]
        return "\n".join(f"{name:10} {value}" for name, value in rows)

    def write(self, folder: Path) -> None:
        """Write summary.json, whole or not at all. Raises OSError."""
        aside = folder / f".{NAME}.{os.getpid()}"
        aside.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
        os.replace(aside, folder / NAME)
