"""The tables that the service's code has in mind are those that the migrations make."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nautile.service.database import Database
from nautile.service.tables import metadata


def columns(found: list[Any]) -> dict[str, tuple[str, bool]]:
    return {c["name"]: (_kind(c["type"]), bool(c["nullable"])) for c in found}


def _kind(column: Any) -> str:
    """What is kept, in words that both databases share."""
    kinds = {
        "text": (sa.Text, sa.String),
        "number": (sa.Integer, sa.BigInteger),
        "real": (sa.Float,),
        "bytes": (sa.LargeBinary,),
        "truth": (sa.Boolean,),
    }
    plain = getattr(column, "impl_instance", column)
    return next(k for k, types in kinds.items() if isinstance(plain, types))


def test_tables_are_as_declared(database: Database) -> None:
    found = sa.inspect(database.engine)
    made = {name for name in found.get_table_names() if name.startswith("service_")}
    assert made == set(metadata.tables)
    for name, table in metadata.tables.items():
        declared = {c.name: (_kind(c.type), bool(c.nullable)) for c in table.columns}
        assert columns(found.get_columns(name)) == declared, name
        assert found.get_pk_constraint(name)["constrained_columns"] == [
            c.name for c in table.primary_key
        ]
        indices = {i["name"] for i in found.get_indexes(name) if not i.get("duplicates_constraint")}
        assert {i.name for i in table.indexes} == indices, name
        keys = {tuple(k["constrained_columns"]) for k in found.get_foreign_keys(name)}
        assert keys == {(k.parent.name,) for k in table.foreign_keys}, name
