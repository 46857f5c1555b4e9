"""Makes `tests/data/store-0001`, a store of the first schema, as its release wrote it.

Run once, with the code of that schema; the folder is what the tests upgrade. `now` is fixed, so
that what must come out is known: entry `alpha` with two artifacts, `beta` with one of them.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from sqlalchemy import Connection

from nautile.store import opening
from nautile.store.migration import upgrade
from nautile.store.store import Store


def main(folder: Path) -> None:
    """Write the store."""

    def first(connection: Connection, target: str | None = None) -> bool:
        return upgrade(connection, "0001")

    opening.migration.upgrade = first  # type: ignore[assignment]
    opening.migration.newest = lambda: "0001"  # type: ignore[assignment]
    with Store.open(folder, clock=lambda: 1_700_000_000.0) as store:
        files = {"kernel.cu": b"// kernel\n", "manifest.json": b"{}\n"}
        made_of = {"term": "t1", "target": "h200"}
        store.put("alpha", {"program": "f", "status": "ok"}, files, ingredients=made_of)
        made_of = {"term": "t1", "target": "h100"}
        store.put("beta", {"program": "g"}, {"k.cu": b"// kernel\n"}, ingredients=made_of)
    with sqlite3.connect(folder / "store.db") as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
