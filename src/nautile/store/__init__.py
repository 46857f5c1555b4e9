"""The store: results by key in a database, their artifacts by content on disk.

```
Store.open(place)                    a folder (SQLite), or the URL of a database
    get(key) -> Entry | None         put(key, record, artifacts) -> Entry
    read(digest) -> bytes | None     materialize(entry, folder) -> bool
    stats()  verify()  gc()          export(path)  import_(path)
```

What a process has put, it has for good: artifacts are synced to disk before the row that names
them is committed, and a row appears whole or not at all. Nothing damaged is ever handed out: an
artifact whose content does not fit its digest is a miss, moved aside and reported, and the next
`put` of that key heals it. Any number of processes use one store at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .entry import Entry
    from .reports import Collected, Exported, Imported, Problem, Stats, Verified
    from .store import Store

__all__ = [
    "Collected",
    "Entry",
    "Exported",
    "Imported",
    "Problem",
    "Stats",
    "Store",
    "Verified",
]


def __getattr__(name: str) -> Any:
    """The names above load SQLAlchemy only when one of them is used: the command line starts fast
    without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import entry, reports, store

    return next(vars(m)[name] for m in (store, entry, reports) if name in vars(m))
