"""The tables of the store, as the newest migration leaves them.

```
store_entries     key | term record ingredients files checksum size version | created used hits
store_artifacts   digest | bytes created                one row for each content that entries use
store_links       key, digest                           which entry uses which content
store_meta        name | value                          the store's identity, which release made it
store_schema      version_num                           the number of the last migration
```

JSON is kept as text: it is read whole, and both databases then hold the same bytes. Times are
seconds since 1970. `files` repeats the links with their paths, so that a `get` reads one row.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = ["APPLICATION", "VERSION_TABLE", "artifacts", "entries", "links", "meta", "metadata"]

APPLICATION = 0x4E617574  # "Naut": how SQLite tells whose file it is; set by the first migration
VERSION_TABLE = "store_schema"

metadata = MetaData()

meta = Table(
    "store_meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

entries = Table(
    "store_entries",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("term", Text),
    Column("record", Text, nullable=False),
    Column("ingredients", Text, nullable=False),
    Column("files", Text, nullable=False),
    Column("checksum", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("version", String(64), nullable=False),
    Column("created", Float(53), nullable=False),
    Column("used", Float(53), nullable=False),
    Column("hits", BigInteger, nullable=False),
    Index("store_entries_term", "term"),
    Index("store_entries_used", "used", "key"),
)

artifacts = Table(
    "store_artifacts",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("created", Float(53), nullable=False),
)

links = Table(
    "store_links",
    metadata,
    Column("key", ForeignKey("store_entries.key", ondelete="CASCADE"), primary_key=True),
    Column("digest", ForeignKey("store_artifacts.digest"), primary_key=True),
    Index("store_links_digest", "digest"),
    sqlite_with_rowid=False,
)
