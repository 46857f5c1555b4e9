"""Many files at once: every program of every expression file, each once, nothing lost.

```
inputs    folders, globs, lists -> files in a fixed order            inputs.py
reading   a file -> its programs and their keys, or an error         reading.py, known.py
run       keys -> results: from the store, from a program of the same key, or from a worker
results   OUT/results.jsonl, one record a program, whole lines, resumable
bundles   OUT/bundles/FILE/PROGRAM: the certified bundle under the program's own names
summary   OUT/summary.json, OUT/report.html, a table
```

A batch holds no list of programs: it streams, and remembers of each program a few digests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nautile.batch.plan import Asked
    from nautile.batch.run import Batch, Stopped
    from nautile.batch.summary import Summary

__all__ = ["Asked", "Batch", "Stopped", "Summary"]

_HOMES = {"Asked": "plan", "Batch": "run", "Stopped": "run", "Summary": "summary"}


def __getattr__(name: str) -> Any:
    """Names load on first use: the command line starts without the language."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
