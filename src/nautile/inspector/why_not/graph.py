"""A frozen e-graph as terms are looked up in it.

```
Lookup ::= class, nodes (class -> node)      the whole term is there
         | term, children's classes          the first part, innermost first, that is not
```
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nautile.extract.body import below
from nautile.snapshot import Node, Snapshot, node_of, smallest_terms
from nautile.terms import Term

__all__ = ["LEAVES", "Graph", "Lookup"]

LEAVES = ("const", "load", "index")
_WAYS = 16  # classes of a part that are followed, where a running value has two


@dataclass(frozen=True, slots=True)
class Lookup:
    """`root` is the term's class and `nodes` the e-node of each of its inner classes. Where a part
    is missing, `root` is None, `missing` is that part, `below` the classes of its own parts, and
    `nodes` covers what is there. `clash` is a class that the term computes in two ways."""

    root: int | None
    nodes: Mapping[int, Node]
    missing: Term | None = None
    below: tuple[int, ...] = ()
    clash: int | None = None

    @property
    def found(self) -> bool:
        return self.root is not None


class Graph:
    """The classes of a snapshot by node. A class of a running value's reduction may stand beside
    the class of its total, so a node may be in two."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.index: dict[Node, list[int]] = {}
        for c, nodes in snapshot.classes.items():
            for node in nodes:
                self.index.setdefault(node, []).append(c)

    def lookup(self, root: Term) -> Lookup:
        """Where the term stands, node by node."""
        classes: dict[Term, tuple[int, ...]] = {}
        nodes: dict[int, Node] = {}
        clash = None
        for term in _inside(root):
            found = self._classes(term, classes)
            if not found:
                inner = tuple(classes[k][0] for k in below(term))
                return Lookup(None, nodes, term, inner, clash)
            classes[term] = tuple(found)
            for c, node in found.items():
                if nodes.setdefault(c, node) != node and node.kind not in LEAVES:
                    clash = c
        return Lookup(classes[root][0], nodes, clash=clash)

    def _classes(self, term: Term, known: Mapping[Term, tuple[int, ...]]) -> dict[int, Node]:
        """The classes that hold the term's outermost node over the classes of its parts."""
        found: dict[int, Node] = {}
        ways = itertools.product(*(known[k] for k in below(term)))
        for inner in itertools.islice(ways, _WAYS):
            node = node_of(term, inner)
            found |= dict.fromkeys(self.index.get(node, ()), node)
        return found

    def smallest(self) -> dict[int, Term]:
        """A term of each class, of the fewest operations."""
        return smallest_terms(self.snapshot)

    def users(self, c: int) -> list[tuple[int, Node]]:
        """The nodes that have the class as a child, each with its class."""
        return [
            (u, n) for u, nodes in self.snapshot.classes.items() for n in nodes if c in n.children
        ]

    def reached(self) -> set[int]:
        """The classes that the roots reach."""
        seen, todo = set(self.snapshot.roots), list(self.snapshot.roots)
        while todo:
            for node in self.snapshot.classes[todo.pop()]:
                fresh = set(node.children) - seen
                seen |= fresh
                todo += fresh
        return seen


def _inside(root: Term) -> Iterable[Term]:
    """Subterms once, children first, coordinates of loads left out."""
    from nautile.extract.body import inner_terms

    return inner_terms([root])
