"""A frozen e-graph as a snapshot: what the roots reach, numbered and sorted.

A running value is known by its reduction's body, not by the class of its total: two reductions may
agree in total and differ on the way. Where a reduction (or online sum) is the only member of its
class, that class is the child of the running value; else it gets a class of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nautile.rules.egglog import STORAGE, TYPES
from nautile.rules.law import Rule
from nautile.snapshot import Iteration, Node, Report, Snapshot, node_of
from nautile.terms import MONOIDS, Axis, Term, children

from .encode import Region
from .engine import Frozen
from .schema import CONSTRUCTORS, LEAVES

__all__ = ["decode"]

_ROUNDS = 4
_MOMENTS = ("Running", "Before", "RunningOnline", "BeforeOnline")
_ROW = tuple[str, list[Any], int]


def decode(region: Region, frozen: Frozen, rules: Sequence[Rule]) -> Snapshot:
    """The snapshot of a region's frozen e-graph; `rules` are those of the job, in its order."""
    graph = _Graph(region, frozen)
    names: dict[int, set[str]] = {}
    for where, law in frozen.made:
        if where in graph.label:
            names.setdefault(graph.label[where], set()).add(rules[law].name)
    report = Report(
        frozen.stop,
        len(frozen.rows),
        len(frozen.growth),
        frozen.seconds,
        {rules[law].name: n for law, n in frozen.matches.items()},
        tuple(frozen.growth),
        frozen.processor,
        _course(frozen, rules),
    )
    return Snapshot(
        classes={c: graph.classes[c] for c in sorted(graph.classes)},
        axes=region.axes,
        free=dict(sorted(graph.free.items())),
        dtype=dict(sorted(graph.dtype.items())),
        roots=tuple(graph.label[frozen.inputs[r]] for r in region.roots),
        made={c: tuple(sorted(names[c])) for c in sorted(names)},
        source=graph.source(),
        report=report,
    )


def _course(frozen: Frozen, rules: Sequence[Rule]) -> tuple[Iteration, ...]:
    """The iterations, with rules by name."""
    return tuple(
        Iteration(
            r.rows,
            r.seconds,
            {rules[law].name: n for law, n in r.matches.items()},
            tuple(rules[law].name if law >= 0 else "facts" for law in r.rests),
        )
        for r in frozen.course
    )


class _Graph:
    """Classes under their final numbers."""

    def __init__(self, region: Region, frozen: Frozen) -> None:
        self.region, self.frozen = region, frozen
        self.by_class: dict[int, list[_ROW]] = {}
        for row in frozen.rows:
            self.by_class.setdefault(row[2], []).append(row)
        self.reductions = {(r[0], *r[1]): r[2] for r in frozen.rows if _reduces(r[0])}
        self.place = {t: frozen.inputs[i] for i, t in enumerate(region.terms)}
        order = self._reachable()
        self.label = self._labels(order)
        self.free = {self.label[c]: frozen.free[c] for c in order}
        self.dtype = {self.label[c]: TYPES[frozen.types[c]] for c in order}
        self.classes: dict[int, tuple[Node, ...]] = {}
        self.private: dict[tuple[Any, ...], int] = {}
        for c in sorted(order, key=self.label.__getitem__):
            nodes = {self._node(row) for row in self.by_class[c]}
            self.classes[self.label[c]] = tuple(sorted(nodes, key=_node_key))

    def _reachable(self) -> list[int]:
        """Classes that the roots reach, the input's first, in its order."""
        inputs = self.frozen.inputs
        seen: dict[int, None] = {}
        stack = [inputs[r] for r in self.region.roots]
        while stack:
            c = stack.pop()
            if c not in seen:
                seen[c] = None
                stack.extend(k for row in self.by_class[c] for k in self._needs(row))
        first = dict.fromkeys(c for c in inputs if c in seen)
        return list(first | dict.fromkeys(sorted(seen)))

    def _needs(self, row: _ROW) -> list[int]:
        """The classes that a row mentions; a running value needs its reduction, where the e-graph
        holds it, and what it is made of."""
        if row[0] in _MOMENTS:
            home = self.reductions.get(_reduction(row))
            return _children(row) if home is None else [home, *_children(row)]
        return _children(row)

    def _labels(self, order: list[int]) -> dict[int, int]:
        """Final numbers: the input's classes in order of insertion, then those that rules made, by
        what they are made of, so that the engine's own numbering does not show."""
        known = dict.fromkeys(c for c in self.frozen.inputs)
        first = [c for c in order if c in known]
        rest = [c for c in order if c not in known]
        mark = {c: i for i, c in enumerate(first)} | {c: -1 - self.frozen.free[c] for c in rest}
        for _ in range(_ROUNDS):
            new = {c: self._mark(c, mark) for c in rest}
            mark |= new
        rest.sort(key=lambda c: (mark[c], c))
        return {c: i for i, c in enumerate([*first, *rest])}

    def _mark(self, c: int, mark: dict[int, int]) -> int:
        """A number for what a class holds; of integers and floats only, whose hash is fixed."""
        return hash(tuple(sorted(
            hash((_OPERATIONS[row[0]], *_payload(row), *(mark.get(k, 0) for k in _children(row))))
            for row in self.by_class[c]
        )))  # fmt: skip

    def _node(self, row: _ROW) -> Node:
        name, arguments, _ = row
        axes, label = self.region.axes, self.label
        if name in LEAVES:
            return self._leaf(name, arguments[0])
        if name in _MOMENTS:
            axis = axes[arguments[0 if name.endswith("Online") else 1]]
            kind = name.removesuffix("Online").lower()
            return Node(kind, axis, (self._reduction_class(row, axis),))
        inner = tuple(label[c] for c in _children(row))
        if name == "Round":
            return Node("cast", STORAGE[arguments[0]], inner)
        if name == "Online":
            moves = not self._zero(arguments[3])
            return Node("online", axes[arguments[0]], inner if moves else inner[:2])
        if name.startswith("r_"):
            return Node("reduce", (name[2:], axes[arguments[0]]), inner)
        return Node("apply", name[3:], inner)

    def _zero(self, c: int) -> bool:
        """Whether a class is the number 0: an online sum without an offset has it as its third."""
        return any(name == "Num" and values[0] == 0 for name, values, _ in self.by_class[c])

    def _leaf(self, name: str, value: Any) -> Node:
        if name == "Ix":
            return Node("index", self.region.axes[value])
        if name == "Leaf":
            return node_of(self.region.leaves[value], ())
        if name == "Odd":
            value = (-0.0, float("nan"), *self.region.odd)[value]
        return Node("const", bool(value) if name == "Truth" else value)

    def _reduction_class(self, row: _ROW, axis: Axis) -> int:
        """The class whose only member is the reduction or online sum that runs."""
        key = _reduction(row)
        home = self.reductions.get(key)
        if home is not None and len(self.by_class[home]) == 1:
            return self.label[home]
        if key not in self.private:
            new = self.private[key] = len(self.label) + len(self.private)
            self.classes[new] = (self._node((key[0], list(key[1:]), row[2])),)
            bit = 1 << self.region.axes.index(axis)
            self.free[new] = self.frozen.free[row[2]] & ~bit
            self.dtype[new] = TYPES[self.frozen.types[row[2]]]
        return self.private[key]

    def source(self) -> dict[int, Node]:
        """The first input term of each class that the roots reach."""
        found: dict[int, Node] = {}
        for term, c in self.place.items():
            if c in self.label and self.label[c] not in found:
                found[self.label[c]] = _source_node(term, self.place, self.label)
        return dict(sorted(found.items()))


def _source_node(term: Term, place: dict[Term, int], label: dict[int, int]) -> Node:
    inner = tuple(label[place[c]] for c in children(term) if c in place and place[c] in label)
    return node_of(term, inner)


def _reduces(name: str) -> bool:
    return name.startswith("r_") or name == "Online"


def _reduction(row: _ROW) -> tuple[Any, ...]:
    """The key of the reduction or online sum that a running value follows."""
    name, arguments, _ = row
    if name.endswith("Online"):
        return ("Online", *arguments)
    monoid, axis, body = arguments
    return (f"r_{MONOIDS[monoid]}", axis, body)


def _children(row: _ROW) -> list[int]:
    sorts = CONSTRUCTORS[row[0]]
    return [v for v, sort in zip(row[1], sorts, strict=True) if sort == "T"]


def _payload(row: _ROW) -> list[Any]:
    sorts = CONSTRUCTORS[row[0]]
    return [v for v, sort in zip(row[1], sorts, strict=True) if sort != "T"]


_OPERATIONS = {name: i for i, name in enumerate(CONSTRUCTORS)}


def _node_key(node: Node) -> tuple[str, str, tuple[int, ...]]:
    payload = node.payload
    return (node.kind, str(payload) if isinstance(payload, Term) else repr(payload), node.children)
