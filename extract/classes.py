"""The e-classes of one region as extraction sees them: nodes, axes, storage, ideal costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx

from nautile.dtypes import DTYPES
from nautile.extract.contractions import NARROW
from nautile.extract.device import Device
from nautile.extract.licence import Licence, widened
from nautile.extract.work import SPECIAL, VECTOR
from nautile.snapshot import Node, Snapshot, term_of
from nautile.terms import Axis, Buffer, Index, Load, Output, Term

__all__ = ["Classes"]

LEAVES = ("const", "load", "index")
PIECES = 3  # products of tf32 at least that one of f32 takes the time of


class Classes:
    """A snapshot with the region's outputs. A class that holds a leaf node keeps only that (nothing
    is cheaper); a stored class is a tensor over its free axes in the snapshot's order. `guarded`:
    see licence.py."""

    def __init__(
        self,
        snapshot: Snapshot,
        outputs: tuple[Output, ...],
        device: Device,
        prefix: str,
        numerics: str = "real",
        *,
        guarded: bool = False,
    ) -> None:
        self.snapshot, self.outputs, self.device, self.prefix = snapshot, outputs, device, prefix
        self.numerics = numerics
        self.roots = tuple(dict.fromkeys(snapshot.roots))
        self.nodes = {c: self._useful(nodes) for c, nodes in snapshot.classes.items()}
        self.leaves = frozenset(c for c, ns in self.nodes.items() if ns and ns[0].kind in LEAVES)
        self.axes: dict[int, tuple[Axis, ...]] = {
            c: snapshot.axes_of(snapshot.free[c]) for c in self.nodes
        }
        self.extremes = {c: e for c, nodes in self.nodes.items() if (e := _extreme_of(nodes))}
        self._licence = Licence((o.term for o in outputs), guarded=guarded)
        self._work: dict[tuple[int, int], tuple[float, float, float, float]] = {}
        self._narrows: dict[tuple[int, Axis, int], bool | None] = {}
        narrow = self._rounded() if numerics != "exact" and not guarded else {}
        self._buffers = {c: self._buffer(c, narrow.get(c)) for c in self.nodes}
        self._kept_inside = self._steps() | self.leaves
        self._kept_inside |= {c for c, b in self._buffers.items() if b.dtype == "bool"}
        self._kept_inside |= self._too_large()

    @property
    def guarded(self) -> bool:
        """Whether what may leave the range of a type is not rounded to it."""
        return self._licence.guarded

    @staticmethod
    def _useful(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        for kind in LEAVES:
            for node in nodes:
                if node.kind == kind:
                    return (node,)
        return nodes

    def order(self) -> list[list[int]]:
        """Knots of classes that may use one another, users after what they use."""
        graph: Any = nx.DiGraph()
        graph.add_nodes_from(sorted(self.nodes))
        for c, nodes in sorted(self.nodes.items()):
            graph.add_edges_from((k, c) for n in nodes for k in n.children if k != c)
        knots: Any = nx.condensation(graph)
        key = {q: min(knots.nodes[q]["members"]) for q in knots.nodes}
        line = nx.lexicographical_topological_sort(knots, key=lambda q: key[q])
        return [sorted(knots.nodes[q]["members"]) for q in line]

    def _steps(self) -> frozenset[int]:
        """Classes with one user, a pointwise value of the same axes and type: storing the user
        instead moves the same bytes and leaves less to do. (Unless the user joins reductions, for
        which one kernel may have no place.)"""
        users: dict[int, set[int]] = {}
        for c, nodes in self.nodes.items():
            source = self.snapshot.source.get(c)
            for node in nodes if source is None else (source,):
                for child in node.children:
                    users.setdefault(child, set()).add(c)
        found = set()
        for c, above in users.items():
            (user,) = above if len(above) == 1 else (c,)
            pointwise = all(n.kind in ("apply", "cast") for n in self.nodes[user])
            same = self.axes[user] == self.axes[c]
            if user != c and pointwise and same and c not in self.roots:
                found.add(c)
        return frozenset(c for c in found if not self._joined(c, users[c]))

    def _joined(self, c: int, users: set[int]) -> bool:
        """Whether the class and another one, both with a reduction of their own, meet in a user."""
        (user,) = users
        node = self.snapshot.source.get(user)
        others = [k for k in node.children if k != c] if node is not None else []
        return self._reduces(c) and any(self._reduces(k) for k in others)

    def _reduces(self, c: int) -> bool:
        """Whether the source computes the class from a reduction by pointwise steps alone."""
        stack, seen = [c], {c}
        while stack:
            node = self.snapshot.source.get(stack.pop())
            if node is None or node.kind not in ("apply", "cast"):
                if node is not None and node.kind in ("reduce", "online"):
                    return True
                continue
            fresh = set(node.children) - seen
            seen |= fresh
            stack += fresh
        return False

    def _too_large(self) -> frozenset[int]:
        """Classes with more elements than any value of the source that is not the product inside a
        sum: a rule that moves factors about may make such products, but never one worth storing."""
        source = self.snapshot.source
        summed = {n.children[-1] for n in source.values() if n.kind in ("reduce", "online")}
        bodies = {c: source[c] for c in summed if c in source}
        inside = {c for c, n in bodies.items() if n.kind == "apply" and n.payload == "mul"}
        most = max((self.volume(c) for c in source if c not in inside), default=math.inf)
        return frozenset(c for c in self.nodes if self.volume(c) > most)

    def term_of(self, node: Node, inside: tuple[Term, ...]) -> Term:
        """The term of a node over those of its children, with narrow operands as f32 where what
        stands beside them may not be rounded."""
        term = term_of(node, inside)
        return term if self.numerics == "exact" else widened(term, self._licence)

    # ---- storage -------------------------------------------------------------------------------

    def _rounded(self) -> dict[int, str]:
        """Classes that the source only multiplies by values of one narrow type, which is the type
        that a contraction rounds them to. Candidates are priced with such storage; whether all
        chosen readers are contractions is checked when the kernels are finished."""
        found: dict[int, set[str]] = {}
        for c, nodes in self.nodes.items():
            source = self.snapshot.source.get(c)
            for node in nodes if source is None else (source,):
                pair = node.children if node.kind == "apply" and node.payload == "mul" else ()
                for child in node.children:
                    others = [k for k in pair if k != child]
                    type_ = self._leaf_type(others[0]) if len(others) == 1 else "f32"
                    found.setdefault(child, set()).add(type_)
        return {
            c: next(iter(types))
            for c, types in found.items()
            if len(types) == 1 and types <= NARROW and self.exact_type(c) == "f32"
        }

    def _leaf_type(self, c: int) -> str:
        node = self.nodes[c][0]
        return str(node.payload.buffer.dtype) if node.kind == "load" else self.exact_type(c)

    def exact_type(self, c: int) -> str:
        """The type that holds the class' values as they are: the narrow one that they are rounded
        to, where they are a rounding; else the one that they carry."""
        found = {
            str(node.payload)
            for node in self.nodes[c]
            if node.kind == "cast" and node.payload in NARROW
        }
        carried = self.snapshot.dtype.get(c, "f32")
        return found.pop() if len(found) == 1 and carried == "f32" else carried

    def carried_type(self, c: int) -> str:
        """The type that the class' values carry."""
        return self.snapshot.dtype.get(c, "f32")

    def _buffer(self, c: int, narrow: str | None) -> Buffer:
        shape = tuple(a.extent for a in self.axes[c])
        return Buffer(f"{self.prefix}{c}", shape, narrow or self.exact_type(c))

    def buffer(self, c: int) -> Buffer:
        """The tensor that stores class `c` between kernels, in the type that it is priced with."""
        return self._buffers[c]

    def load(self, c: int) -> Term:
        """Reading class `c` back."""
        return Load(self._buffers[c], tuple(Index(a) for a in self.axes[c]))

    def output(self, c: int, term: Term) -> tuple[Output, ...]:
        """What a kernel that makes class `c` stores: the program's outputs, or the tensor between
        kernels."""
        own = [
            Output(o.buffer, o.axes, term)
            for o, root in zip(self.outputs, self.snapshot.roots, strict=True)
            if root == c
        ]
        return tuple(own) or (Output(self._buffers[c], self.axes[c], term),)

    def storable(self, c: int) -> bool:
        """Whether storing the class can pay: it is no leaf, no truth value, and no step on the way
        to a value of the same axes that could be stored in its place."""
        return c not in self._kept_inside

    # ---- ideal costs ---------------------------------------------------------------------------

    def volume(self, c: int) -> float:
        return float(math.prod(a.extent for a in self.axes[c]))

    def transfer(self, c: int) -> float:
        """Seconds to move the stored class once."""
        width = DTYPES[self._buffers[c].dtype].bytes
        return self.volume(c) * width / self.device.memory_bandwidth

    def work(self, c: int, node: Node) -> tuple[float, float, float, float]:
        """Ideal seconds (memory, tensor, vector, special) of one node over all its axes; the node
        is an object of `nodes`."""
        key = (c, id(node))
        if key not in self._work:
            self._work[key] = self._work_of(c, node)
        return self._work[key]

    def _work_of(self, c: int, node: Node) -> tuple[float, float, float, float]:
        d, v = self.device, self.volume(c)
        if node.kind == "load":
            width = DTYPES[node.payload.buffer.dtype].bytes
            return min(v, node.payload.buffer.size) * width / d.memory_bandwidth, 0.0, 0.0, 0.0
        if node.kind in ("reduce", "online"):
            return self._reduction(c, node)
        if node.kind == "apply":
            vector, special = VECTOR[node.payload], SPECIAL[node.payload]
            return 0.0, 0.0, 2 * vector * v / d.fp32, special * v / d.special
        return 0.0, 0.0, 0.0, 0.0

    def _reduction(self, c: int, node: Node) -> tuple[float, float, float, float]:
        axis = node.payload[1] if node.kind == "reduce" else node.payload
        work, d = 2 * self.volume(c) * axis.extent, self.device
        if not self._contracts(node, axis):
            return 0.0, 0.0, work / d.fp32, 0.0
        wide = self.numerics != "exact" and not self._multiplies_narrow(node, axis)
        rate = d.tensor_rate("tf32") / PIECES if wide else d.tensor_rate("bf16")
        rate = rate or d.fp32
        return 0.0, work / rate, -work / d.fp32, 0.0

    def _contracts(self, node: Node, axis: Axis) -> bool:
        """Whether some form of the body is a product of two factors that walk the axis."""
        if node.kind == "reduce" and node.payload[0] != "sum":
            return False
        for body in self.nodes[node.children[-1]]:
            if body.kind == "apply" and body.payload == "mul":
                a, b = (self.axes[k] for k in body.children)
                if a != b and axis in a and axis in b:
                    return True
        return False

    def _multiplies_narrow(self, node: Node, axis: Axis) -> bool:
        """Whether some form of the body is a product of narrow values, or of one beside which
        others may be rounded."""
        pairs = (n.children for n in self.nodes[node.children[-1]] if n.payload == "mul")
        for pair in pairs:
            licences = [self._narrow(c, axis) for c in pair]
            if any(licences) or None not in licences:
                return True
        return False

    def _narrow(self, c: int, axis: Axis, depth: int = 3) -> bool | None:
        """Whether others beside the class (or a factor of it) may be rounded; None where it is not
        narrow."""
        key = (c, axis, depth)
        if key not in self._narrows:
            self._narrows[key] = self._narrow_of(c, axis, depth)
        return self._narrows[key]

    def _narrow_of(self, c: int, axis: Axis, depth: int) -> bool | None:
        for node in self.nodes[c]:
            inner: Sequence[int] = ()
            if node.kind == "load" and node.payload.buffer.dtype in NARROW:
                return self._licence.covers(node.payload, node.payload.free & {axis})
            if node.kind == "cast" and node.payload in NARROW:
                return True
            if node.kind == "apply" and node.payload in ("mul", "div", "where") and depth:
                inner = node.children[1:2] if node.payload == "where" else node.children
            if any(self._narrow(k, axis, depth - 1) for k in inner):
                return True
        return None

    def made_by(self, choice: Mapping[int, Node]) -> tuple[str, ...]:
        """Rules whose results the choice uses where the input stood otherwise."""
        found: dict[str, None] = {}
        for c, node in sorted(choice.items()):
            if self.snapshot.source.get(c) != node:
                found.update(dict.fromkeys(self.snapshot.made.get(c, ())))
        return tuple(sorted(found))


def _extreme_of(nodes: tuple[Node, ...]) -> frozenset[int]:
    """The classes of which the nodes are the maximum or the minimum."""
    extremes = (n for n in nodes if n.kind == "reduce" and n.payload[0] in ("max", "min"))
    return frozenset(n.children[-1] for n in extremes)
