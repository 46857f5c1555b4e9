"""An e-graph in the JSON of egraph-serialize, which e-graph visualizers and extraction-gym read.

```
{"nodes": {key: {"op", "children": [node keys], "eclass", "cost", "subsumed"}},
 "root_eclasses": [class keys], "class_data": {class key: {"type", ...texts}}}
```

A child is given by one node of its class: the one of the chosen program, else that of the cheapest
term. A class' data are texts: its `type`, `axes`, `term`, the `rules` whose result landed in it,
and where there are any the `outputs` that it is the root of and its node in the `chosen` program.
"""

from __future__ import annotations

import json
from typing import Any

from .table import ClassRow, Table

__all__ = ["serialized"]


def serialized(rows: Table) -> str:
    """The e-graph as JSON text."""
    stand_in = [rows.key(_stand_in(rows, c)) for c in rows.classes]
    nodes = {
        rows.key(n): {
            "op": row.head.text,
            "children": [stand_in[c] for c in row.children],
            "eclass": rows.classes[row.owner].key,
            "cost": row.cost,
            "subsumed": False,
        }
        for n, row in enumerate(rows.nodes)
    }
    roots = list(dict.fromkeys(rows.classes[c].key for c in rows.roots))
    data = {row.key: _data(rows, row) for row in rows.classes}
    return json.dumps({"nodes": nodes, "root_eclasses": roots, "class_data": data})


def _chosen(rows: Table, row: ClassRow) -> list[int]:
    return [n for n in row.nodes if rows.nodes[n].kernels]


def _stand_in(rows: Table, row: ClassRow) -> int:
    chosen = _chosen(rows, row)
    if chosen:
        return chosen[0]
    return row.best if row.best >= 0 else row.nodes[0]


def _data(rows: Table, row: ClassRow) -> dict[str, Any]:
    found = {
        "type": row.dtype,
        "axes": ", ".join(f"{a.name}: {a.extent}" for a in row.axes),
        "term": row.text,
        "rules": " ".join(row.made),
        "outputs": " ".join(row.outputs),
        "chosen": " ".join(rows.key(n) for n in _chosen(rows, row)),
    }
    return {k: v for k, v in found.items() if v or k in ("type", "axes", "term")}
