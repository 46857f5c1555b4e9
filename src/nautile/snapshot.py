"""The frozen e-graph: plain data that extraction reads without egglog.

A snapshot is deterministic: class ids are dense integers in order of first insertion, and the
nodes of a class are sorted, so that equal inputs give equal snapshots byte for byte.

```
Node ::= ("const", value)                    ("index", axis)          ("load", Load term)
       | ("apply", operation) children       ("cast", dtype) child
       | ("reduce", (monoid, axis)) child
       | ("running", axis) child             ("before", axis) child   the child is the reduction
       | ("online", axis) (repair, body) or (repair, body, offset)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nautile.terms import (
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
)

__all__ = ["Iteration", "Node", "Report", "Snapshot", "node_of", "smallest_terms", "term_of"]


@dataclass(frozen=True, slots=True)
class Node:
    """One e-node: its kind, what it carries, and the classes of its children."""

    kind: str
    payload: Any
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of saturation: e-nodes and seconds since the start when it ended, matches by
    rule in it, and the rules that back-off sent to rest ("facts" for all facts together)."""

    rows: int
    seconds: float
    matches: Mapping[str, int]
    rests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """How saturation went. `stop` is saturated, rows, time, iterations or memory; `matches` counts
    applications by rule name; `growth` is the number of rows after each iteration; `processor` the
    seconds of processor time, which are those of an idle machine (egglog runs on one thread);
    `course` tells of each iteration, the last included where a budget cut it."""

    stop: str
    rows: int
    iterations: int
    seconds: float
    matches: Mapping[str, int] = field(default_factory=dict)
    growth: tuple[int, ...] = ()
    processor: float = 0.0
    course: tuple[Iteration, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Classes and their nodes. `free` is a bitmask over `axes` (bit i is axes[i]); `roots` are the
    classes of the region's outputs in order; `made` names, for a class, the rules whose right-hand
    side landed in it; `source` is the node of each class that stood in the input, where one did."""

    classes: Mapping[int, tuple[Node, ...]]
    axes: tuple[Axis, ...]
    free: Mapping[int, int]
    dtype: Mapping[int, str]
    roots: tuple[int, ...]
    made: Mapping[int, tuple[str, ...]]
    source: Mapping[int, Node]
    report: Report

    def axes_of(self, mask: int) -> tuple[Axis, ...]:
        """The axes of a bitmask, in bit order."""
        return tuple(a for i, a in enumerate(self.axes) if mask >> i & 1)


def node_of(term: Term, children: tuple[int, ...]) -> Node:
    """The e-node that stands for `term` over the given child classes (a Load is a leaf)."""
    match term:
        case Const(value):
            return Node("const", value)
        case Index(axis):
            return Node("index", axis)
        case Load():
            return Node("load", term)
        case Apply(operation, _):
            return Node("apply", operation, children)
        case Cast(dtype, _):
            return Node("cast", dtype, children)
        case Reduce(monoid, axis, _):
            return Node("reduce", (monoid, axis), children)
        case Running():
            return Node("running", term.axis, children)
        case Before():
            return Node("before", term.axis, children)
        case Online(axis):
            return Node("online", axis, children)
    raise TypeError(f"not a term: {term!r}")


def term_of(node: Node, children: tuple[Term, ...]) -> Term:
    """The term that a node denotes over the given terms of its children; inverse of `node_of`."""
    match node.kind:
        case "const":
            return Const(node.payload)
        case "index":
            return Index(node.payload)
        case "load":
            term = node.payload
            assert isinstance(term, Load)
            return term
        case "apply":
            return Apply(node.payload, children)
        case "cast":
            return Cast(node.payload, children[0])
        case "reduce":
            monoid, axis = node.payload
            return Reduce(monoid, axis, children[0])
        case "running":
            return Running(children[0])
        case "before":
            return Before(children[0])
        case "online":
            return Online(node.payload, *children)
    raise ValueError(f"unknown node kind {node.kind}")


def smallest_terms(snapshot: Snapshot) -> dict[int, Term]:
    """A term of each class, of the fewest operations that a fixpoint finds."""
    size: dict[int, int] = {}
    best: dict[int, Term] = {}
    changed = True
    while changed:
        changed = False
        for c, nodes in snapshot.classes.items():
            for node in nodes:
                if any(k not in best for k in node.children):
                    continue
                total = 1 + sum(size[k] for k in node.children)
                if total < size.get(c, total + 1):
                    size[c], changed = total, True
                    best[c] = term_of(node, tuple(best[k] for k in node.children))
    return best
