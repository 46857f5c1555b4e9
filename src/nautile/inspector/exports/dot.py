"""An e-graph as Graphviz' DOT: a cluster a class, a box an e-node, edges to arguments' classes.

Nodes of the chosen program are bold and filled, those of the source have a double border. Texts are
quoted, so that none is read as markup, as an escape or as the end of a string, and cut at CUT
characters; tooltips tell the class' term, cost and rules.
"""

from __future__ import annotations

import re

from .table import ClassRow, NodeRow, Table

__all__ = ["CUT", "dot"]

CUT = 300
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
_HEAD = """digraph egraph {
  graph [compound=true, rankdir=TB, fontname="monospace", fontsize=10];
  node [shape=box, style=solid, fontname="monospace", fontsize=10, margin="0.08,0.04"];
  edge [fontname="monospace", fontsize=8, arrowsize=0.6];
"""


def dot(rows: Table) -> str:
    """The e-graph as DOT text."""
    lines = [_HEAD]
    for row in rows.classes:
        lines.append(f"  subgraph {_cluster(row)} {{\n    graph [{_class(row)}];\n")
        lines += [f"    {quoted(rows.key(n))} [{_node(rows.nodes[n])}];\n" for n in row.nodes]
        lines.append("  }\n")
    for n in range(len(rows.nodes)):
        lines += _edges(rows, n)
    return "".join([*lines, "}\n"])


def _cluster(row: ClassRow) -> str:
    return quoted(f"cluster_{row.key}")


def _class(row: ClassRow) -> str:
    axes = ", ".join(f"{a.name}: {a.extent}" for a in row.axes)
    label = f"{row.key} · {row.dtype}" + (f"[{axes}]" if axes else "")
    label += f"\n{', '.join(row.outputs)}" if row.outputs else ""
    told = f"{row.text}\ncost {row.cost:.6g}\nrules {' '.join(row.made) or 'none'}"
    bold = ", penwidth=2" if row.outputs else ""
    return f'label={quoted(label)}, tooltip={quoted(told)}, style="rounded"{bold}'


def _node(row: NodeRow) -> str:
    told = f"cost {row.cost:.6g}\n{'chosen by ' + ' '.join(row.kernels) if row.kernels else ''}"
    marks = ', style="bold,filled", fillcolor="#cfe2ff"' if row.kernels else ""
    marks += ", peripheries=2" if row.source else ""
    return f"label={quoted(row.head.text)}, tooltip={quoted(told)}{marks}"


def _edges(rows: Table, number: int) -> list[str]:
    """Edges to a node of each argument's class, which end at the border of its cluster."""
    row, found = rows.nodes[number], []
    for i, child in enumerate(row.children):
        target = rows.classes[child]
        marks = [f"lhead={_cluster(target)}"] if child != row.owner else []
        marks += [f'taillabel="{i}"'] if len(row.children) > 1 else []
        marks += ["penwidth=2"] if row.kernels else []
        if target.nodes:
            ends = f"{quoted(rows.key(number))} -> {quoted(rows.key(target.nodes[0]))}"
            found.append(f"  {ends} [{', '.join(marks)}];\n")
    return found


def quoted(text: str) -> str:
    """A DOT string that shows the text as it is, but for control characters."""
    text = text if len(text) <= CUT else text[: CUT - 1] + "…"
    text = _CONTROL.sub("\ufffd", text)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + text.replace("\n", "\\n") + '"'
