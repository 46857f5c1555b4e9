"""E-graphs in the forms that other tools read, the chosen program marked.

| form | is read by |
|---|---|
| `node-link` | `networkx.node_link_graph(json.load(file), edges="edges")` |
| `graphml` | `networkx.read_graphml`, Gephi, yEd |
| `dot` | Graphviz |
| `serialized` | the e-graph visualizers and extractors that share egraph-serialize's JSON |

In the first two a vertex is an e-class or an e-node, and an edge leads from a class to each of its
nodes and from a node to the class of each argument; in DOT a class is a cluster around its nodes;
the serialized form lists nodes, whose arguments are given by one node of the argument's class.
Classes and nodes have the keys of `table`, whose costs these are. Whatever a text holds is quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautile.errors import InputError

from .table import Source, Table, table

__all__ = ["FORMS", "export"]


def export(source: Source, form: str) -> str:
    """The e-graph of a saturated result, of a snapshot or of several, as text in one of FORMS.

    Raises InputError, code "unknown-form", and "not-saturated" where there is no e-graph.
    """
    if form not in FORMS:
        known = ", ".join(FORMS)
        raise InputError(f"unknown form {form!r} of a graph; known: {known}", code="unknown-form")
    return FORMS[form](table(source))


def _node_link(rows: Table) -> str:
    from .networks import node_link

    return node_link(rows)


def _graphml(rows: Table) -> str:
    from .networks import graphml

    return graphml(rows)


def _dot(rows: Table) -> str:
    from .dot import dot

    return dot(rows)


def _serialized(rows: Table) -> str:
    from .serialized import serialized

    return serialized(rows)


FORMS: Mapping[str, Callable[[Table], str]] = {
    "node-link": _node_link,
    "graphml": _graphml,
    "dot": _dot,
    "serialized": _serialized,
}
