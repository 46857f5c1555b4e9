"""Large snapshots cut down to what candidates can be generated from in seconds.

A rule pack that keeps inventing equal terms (under `fast`, say, where x = x * g / g) fills an
e-graph up to its row limit. Of each class the nodes with the least tree cost stay, and whatever
stood in the source; then only what the roots still reach. Trees count a shared value once for each
use, so the ranking is a guide and no bound: `Plan.pruned` tells how many classes were left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from nautile.snapshot import Node, Snapshot

__all__ = ["CLASSES", "trim"]

CLASSES = 400
WIDTHS = (8, 5, 3, 2, 1)
ONLINE = ("online", "running", "before")


def trim(snapshot: Snapshot, limit: int = CLASSES) -> Snapshot:
    """The snapshot itself where it has at most `limit` classes, else its cheapest part: the widest
    choice of nodes a class that keeps within the limit, or one node a class and the source's."""
    if len(snapshot.classes) <= limit:
        return snapshot
    cost = _tree_costs(snapshot)
    kept: dict[int, tuple[Node, ...]] = {}
    for width in WIDTHS:
        kept = _reached(snapshot, _narrowed(snapshot, cost, width))
        if len(kept) <= limit:
            break
    return _only(snapshot, kept)


def _only(snapshot: Snapshot, kept: Mapping[int, tuple[Node, ...]]) -> Snapshot:
    """The snapshot of the kept classes alone. Source nodes may be left out too: where terms of the
    source turned out equal, only the first one's children are sure to be reached."""
    return replace(
        snapshot,
        classes=kept,
        free={c: v for c, v in snapshot.free.items() if c in kept},
        dtype={c: v for c, v in snapshot.dtype.items() if c in kept},
        made={c: v for c, v in snapshot.made.items() if c in kept},
        source={
            c: n
            for c, n in snapshot.source.items()
            if c in kept and all(k in kept for k in n.children)
        },
    )


def _own(snapshot: Snapshot, c: int, node: Node) -> float:
    """Evaluations of one node over all its axes; a leaf costs nothing."""
    if not node.children:
        return 0.0
    axes = set(snapshot.axes_of(snapshot.free[c]))
    if node.kind in ("reduce", "online"):
        axes.add(node.payload if node.kind == "online" else node.payload[1])
    return float(math.prod(a.extent for a in axes))


def _tree_costs(snapshot: Snapshot) -> dict[int, float]:
    """Least tree cost by class, by relaxation in class order until nothing changes."""
    own = {(c, n): _own(snapshot, c, n) for c, ns in snapshot.classes.items() for n in ns}
    cost = dict.fromkeys(snapshot.classes, math.inf)
    changed = True
    while changed:
        changed = False
        for c, nodes in snapshot.classes.items():
            best = min(own[c, n] + sum(cost[k] for k in n.children) for n in nodes)
            if best < cost[c] * (1 - 1e-12):
                cost[c], changed = best, True
    return cost


def _narrowed(
    snapshot: Snapshot, cost: Mapping[int, float], width: int
) -> dict[int, tuple[Node, ...]]:
    """The `width` cheapest nodes of each class, its source node and its running forms, in order."""
    narrow = {}
    for c, nodes in snapshot.classes.items():
        key = {n: _own(snapshot, c, n) + sum(cost[k] for k in n.children) for n in nodes}
        best = set(sorted(nodes, key=key.__getitem__)[:width])
        best |= {n for n in nodes if n.kind in ONLINE or n == snapshot.source.get(c)}
        narrow[c] = tuple(n for n in nodes if n in best)
    return narrow


def _reached(
    snapshot: Snapshot, nodes: Mapping[int, tuple[Node, ...]]
) -> dict[int, tuple[Node, ...]]:
    seen, todo = set(snapshot.roots), list(snapshot.roots)
    while todo:
        for node in nodes[todo.pop()]:
            fresh = [k for k in dict.fromkeys(node.children) if k not in seen]
            seen.update(fresh)
            todo += fresh
    return {c: nodes[c] for c in snapshot.classes if c in seen}
