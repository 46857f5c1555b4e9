"""An e-graph as a bipartite graph of classes and nodes, for networkx and what reads GraphML.

```
vertex ::= class: kind "class", region, dtype, axes, text, cost, outputs, rules
         | node:  kind "node", operation, head, cost, source, chosen, kernels, rules
edge   ::= member (class -> node) | argument (node -> class), position
```

`cost` is absent from a class that has no finite term; `rules` of a node are those whose result
landed in its class, none where the node stood in the source. An edge's key is its own in the graph.
GraphML has no lists: there they are texts, their parts separated by a space, and characters that
XML forbids are replaced.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import networkx as nx

from .table import ClassRow, NodeRow, Table

__all__ = ["graphml", "network", "node_link"]

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def network(rows: Table) -> Any:
    """A networkx MultiDiGraph; see the module's docstring. Its attribute `roots` lists the keys of
    the outputs' classes."""
    graph: Any = nx.MultiDiGraph(roots=[rows.classes[c].key for c in rows.roots])
    for row in rows.classes:
        graph.add_node(row.key, **_class(row))
    for n, node in enumerate(rows.nodes):
        key, owner = rows.key(n), rows.classes[node.owner]
        graph.add_node(key, **_node(node, owner))
        graph.add_edge(owner.key, key, f"{key} in", kind="member", position=node.place)
        for i, child in enumerate(node.children):
            graph.add_edge(key, rows.classes[child].key, f"{key} {i}", kind="argument", position=i)
    return graph


def node_link(rows: Table) -> str:
    """The graph as networkx's node-link JSON, its edges under "edges"."""
    graph = network(rows)
    return json.dumps({
        "directed": True,
        "multigraph": True,
        "graph": graph.graph,
        "nodes": [{**values, "id": key} for key, values in graph.nodes(data=True)],
        "edges": [
            {**values, "source": a, "target": b, "key": key}
            for a, b, key, values in graph.edges(keys=True, data=True)
        ],
    })  # fmt: skip


def graphml(rows: Table) -> str:
    """The graph as GraphML."""
    graph = network(rows)
    for _, values in graph.nodes(data=True):
        values.update(_flat(values))
    graph.graph.update(_flat(graph.graph))
    return "\n".join(nx.generate_graphml(graph, named_key_ids=True)) + "\n"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {k: " ".join(v) if isinstance(v, list) else v for k, v in values.items()}
    return {k: _FORBIDDEN.sub("\ufffd", v) if isinstance(v, str) else v for k, v in texts.items()}


def _class(row: ClassRow) -> dict[str, Any]:
    cost = {"cost": row.cost} if math.isfinite(row.cost) else {}
    return {
        "kind": "class",
        "region": row.region,
        "dtype": row.dtype,
        "axes": [f"{a.name}:{a.extent}" for a in row.axes],
        "text": row.text,
        **cost,
        "outputs": list(row.outputs),
        "rules": list(row.made),
    }


def _node(row: NodeRow, owner: ClassRow) -> dict[str, Any]:
    return {
        "kind": "node",
        "operation": row.name,
        "head": row.head.text,
        "cost": row.cost,
        "source": row.source,
        "chosen": bool(row.kernels),
        "kernels": list(row.kernels),
        "rules": [] if row.source else list(owner.made),
    }
