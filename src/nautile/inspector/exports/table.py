"""All e-classes and e-nodes of a result in one numbering: what every export and the explorer read.

```
Table    ::= classes, nodes, axes (by region)
ClassRow ::= key, region, number, axes, dtype, made, outputs, nodes, best, cost, text
NodeRow  ::= owner, node, children, head, cost, source, kernels
```

A class' key is its number in its region's snapshot ("17"); where a program has several regions, the
region's number stands before it ("2.17"). A node's key is that of its class and its place in the
class ("2.17:0"). Rows are numbered in this order too: `children` are numbers of class rows.

The cost of a node is the number of scalar evaluations of its own head, over all positions of its
class' free axes and of the axis that it reduces; leaves cost nothing. A class' cost is that of its
cheapest tree, which counts a shared part at every use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nautile.errors import InputError
from nautile.snapshot import Node, Snapshot
from nautile.terms import Axis

from .cheapest import cheapest
from .heads import Head, Uses, head_of, uses_of
from .texts import ELISION, LONG, Texts

if TYPE_CHECKING:
    from nautile.stages import Optimization

__all__ = ["ClassRow", "NodeRow", "Source", "Table", "table"]

if TYPE_CHECKING:
    Source = Optimization | Snapshot | Sequence[Snapshot]
else:
    Source = Any


@dataclass(frozen=True, slots=True)
class NodeRow:
    """An e-node: the rows of its class and children, how it is written, its own cost, whether it
    stood in the source, and the names of the kernels that compute it in the chosen program."""

    owner: int
    place: int
    node: Node
    children: tuple[int, ...]
    head: Head
    cost: float
    source: bool
    kernels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operation: that of the language, a monoid, a type, or the kind of a leaf."""
        if self.node.kind == "reduce":
            return str(self.node.payload[0])
        return str(self.node.payload) if self.node.kind in ("apply", "cast") else self.node.kind


@dataclass(frozen=True, slots=True)
class ClassRow:
    """An e-class: free axes, the type that it carries, the rules whose result landed in it, the
    outputs of which it is the root, its nodes' rows, and its cheapest term: the node (-1 where no
    term is finite), the cost, a text of bounded length, and the whole text's length."""

    key: str
    region: int
    number: int
    axes: tuple[Axis, ...]
    dtype: str
    made: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: range
    best: int = -1
    cost: float = math.inf
    text: str = ELISION
    length: int = LONG


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of all regions; `roots` are the classes of the outputs, in order."""

    classes: tuple[ClassRow, ...]
    nodes: tuple[NodeRow, ...]
    roots: tuple[int, ...]
    axes: tuple[tuple[Axis, ...], ...]
    order: tuple[int, ...]

    def key(self, number: int) -> str:
        """The key of a node's row."""
        row = self.nodes[number]
        return f"{self.classes[row.owner].key}:{row.place}"


def table(source: Source) -> Table:
    """The table of a result whose saturation has run, of a snapshot, or of several regions'.

    Raises InputError, code "not-saturated", where there is none.
    """
    snapshots, outputs = _snapshots(source)
    if not snapshots:
        raise InputError("nothing was saturated: there is no e-graph", code="not-saturated")
    first = _offsets(snapshots)
    kernels = _kernels(source)
    classes: list[ClassRow] = []
    nodes: list[NodeRow] = []
    for region, snapshot in enumerate(snapshots):
        rows = {c: first[region] + i for i, c in enumerate(snapshot.classes)}
        for c in snapshot.classes:
            start = len(nodes)
            nodes += _nodes(snapshot, c, rows, kernels.get((region, c), {}))
            key = f"{c}" if len(snapshots) == 1 else f"{region}.{c}"
            names = [o for o, r in zip(outputs[region], snapshot.roots, strict=True) if r == c]
            axes = snapshot.axes_of(snapshot.free.get(c, 0))
            made, kind = snapshot.made.get(c, ()), snapshot.dtype.get(c, "f32")
            classes.append(
                ClassRow(key, region, c, axes, kind, made, tuple(names), range(start, len(nodes)))
            )
    roots = [
        first[r] + i
        for r, s in enumerate(snapshots)
        for root in s.roots
        for i, c in enumerate(s.classes)
        if c == root
    ]
    axes_by_region = tuple(s.axes for s in snapshots)
    return _written(Table(tuple(classes), tuple(nodes), tuple(roots), axes_by_region, ()))


def _snapshots(source: Source) -> tuple[tuple[Snapshot, ...], list[list[str]]]:
    """The snapshots and the names of their roots."""
    if isinstance(source, Snapshot):
        source = (source,)
    if isinstance(source, Sequence):
        return tuple(source), [[f"root{i}" for i in range(len(s.roots))] for s in source]
    names = [[o.buffer.name for o in region.outputs] for region in source.regions]
    return source.snapshots, names


def _offsets(snapshots: Sequence[Snapshot]) -> list[int]:
    found = [0]
    for snapshot in snapshots:
        found.append(found[-1] + len(snapshot.classes))
    return found


def _nodes(
    snapshot: Snapshot, c: int, rows: Mapping[int, int], kernels: Mapping[Node, tuple[str, ...]]
) -> list[NodeRow]:
    source = snapshot.source.get(c)
    volume = math.prod(a.extent for a in snapshot.axes_of(snapshot.free.get(c, 0)))
    return [
        NodeRow(
            rows[c],
            place,
            node,
            tuple(rows[k] for k in node.children),
            head_of(node),
            _own_cost(node, volume),
            node == source,
            kernels.get(node, ()),
        )
        for place, node in enumerate(snapshot.classes[c])
    ]


def _own_cost(node: Node, volume: int) -> float:
    if not node.children:
        return 0.0
    if node.kind == "reduce":
        volume *= node.payload[1].extent
    if node.kind == "online":
        volume *= node.payload.extent
    return float(min(volume, 10**300))


def _kernels(source: Source) -> dict[tuple[int, int], dict[Node, tuple[str, ...]]]:
    """By region and class, the nodes that the chosen program's kernels compute or read."""
    plan = getattr(source, "plan", None)
    if plan is None or plan.choice is None:
        return {}
    pool = plan.choice.pool
    found: dict[tuple[int, int], dict[Node, dict[str, None]]] = {}
    for column in plan.choice.taken.columns:
        region, candidate = pool.candidates[column]
        names = [k.name for k in plan.kernels if column in k.columns] or [f"candidate {column}"]
        for c, node in _computed(candidate, pool.classes[region]):
            found.setdefault((region, c), {}).setdefault(node, {}).update(dict.fromkeys(names))
    return {
        place: {n: tuple(names) for n, names in nodes.items()} for place, nodes in found.items()
    }


def _computed(candidate: Any, classes: Any) -> list[tuple[int, Node]]:
    """The nodes that a candidate computes, and the leaves that these read."""
    own = list(candidate.choice.items())
    below = {k for _, node in own for k in node.children} | set(candidate.makes)
    leaves = (below & classes.leaves) - set(candidate.choice) - candidate.needs
    return own + [(c, classes.nodes[c][0]) for c in sorted(leaves)]


# ---- texts -------------------------------------------------------------------------------------


def _written(rows: Table) -> Table:
    """The table with the cheapest term of each class and with binders that print their extents."""
    owner = [n.owner for n in rows.nodes]
    children = [n.children for n in rows.nodes]
    best, least, order = cheapest(owner, children, [n.cost for n in rows.nodes], len(rows.classes))
    uses = [Uses()] * len(rows.classes)
    heads: list[Head | None] = [None] * len(rows.classes)
    for c in order:
        uses[c] = _uses(rows, best[c], uses)
        heads[c] = _head(rows, best[c], uses)
    below = [children[n] if n >= 0 else () for n in best]
    texts = Texts(heads, below, order)
    nodes = tuple(replace(n, head=_head(rows, i, uses)) for i, n in enumerate(rows.nodes))
    classes = tuple(
        replace(row, best=best[c], cost=least[c], text=texts.of(c), length=texts.lengths[c])
        for c, row in enumerate(rows.classes)
    )
    return Table(classes, nodes, rows.roots, rows.axes, tuple(order))


def _axes(rows: Table, number: int) -> tuple[Axis, ...]:
    return rows.axes[rows.classes[rows.nodes[number].owner].region]


def _uses(rows: Table, number: int, uses: Sequence[Uses]) -> Uses:
    """The direct uses of axes in a node's term, given those of its children's."""
    row = rows.nodes[number]
    if row.node.kind == "load":
        return uses_of(row.node.payload, _axes(rows, number))
    inside = Uses.of_all(uses[k] for k in row.children)
    axis = _binder(row.node)
    return inside if axis is None else inside.without(1 << _axes(rows, number).index(axis))


def _binder(node: Node) -> Axis | None:
    if node.kind == "reduce":
        axis: Axis = node.payload[1]
        return axis
    return node.payload if node.kind == "online" else None


def _head(rows: Table, number: int, uses: Sequence[Uses]) -> Head:
    row = rows.nodes[number]
    if row.node.kind != "reduce":
        return row.head
    body, bit = uses[row.children[0]], 1 << _axes(rows, number).index(row.node.payload[1])
    return head_of(row.node, told=bool(body.direct & bit) and not body.odd & bit)
