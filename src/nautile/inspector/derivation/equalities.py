"""An e-graph that knows why: terms, the equalities between them, and when each was found.

```
Edge   ::= item = item, time, reason          an undirected edge of the graph of equalities
Reason ::= Instance | None                    a law at work; None: equal parts (congruence)
```

All edges are kept, not only those that joined two classes, so that a short way between two terms
can be chosen. An edge of equal parts holds by equalities that are older than itself: a way is
always sought among older edges, so no proof goes in a circle. (Nieuwenhuis and Oliveras,
"Proof-producing congruence closure", 2005; Flatt et al., "Small proofs from congruence closure",
2022.)

What analyses know of a class is taken from the engine's final tables: each class here is part of
one there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nautile.egraph.engine import Frozen
from nautile.egraph.schema import CONSTRUCTORS
from nautile.terms import Axis, Term

from .matching import RELATIONS, Tables
from .parts import subterms
from .writing import Item, Related, Spelling, item_parts

__all__ = ["Edge", "Equalities", "Instance"]

_MASKS = ("fv", "rd", "ra", "loose", "up", "traits")
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One application of a law: its number (-1 for constant folding) and direction, both sides,
    what the names and axes stand for, the facts that it rests on (each relation and its running
    form), and terms that had to be there, though they stand on neither side (`held`: carriers that
    some fact wrote down)."""

    law: int
    direction: int
    left: Item
    right: Term
    names: Mapping[str, Term]
    axes: Mapping[str, Axis]
    premises: tuple[tuple[Related, Term], ...] = ()
    held: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """`one` and `two` are equal since `time`, by a law from `one` to `two` or by equal parts."""

    one: Item
    two: Item
    time: int
    reason: Instance | None = None


@dataclass(slots=True)
class Equalities:
    """Items in classes. `axes` and leaves are numbered by `spelling`; `final` is the engine's
    result."""

    spelling: Spelling
    final: Frozen
    edges: dict[Item, list[Edge]] = field(default_factory=dict)
    facts: dict[Related, Term] = field(default_factory=dict)
    time: int = 0
    _parent: dict[Item, Item] = field(default_factory=dict)
    _members: dict[Item, list[Item]] = field(default_factory=dict)
    _users: dict[Item, list[Item]] = field(default_factory=dict)
    _table: dict[Key, Item] = field(default_factory=dict)
    _number: dict[Item, int] = field(default_factory=dict)
    _order: list[Item] = field(default_factory=list)
    _known: dict[Item, int] = field(default_factory=dict)
    _rows: dict[Key, int] = field(default_factory=dict)
    _masks: dict[str, dict[int, int]] = field(default_factory=dict)
    _maker: dict[Item, Instance] = field(default_factory=dict)
    _now: Instance | None = None
    _todo: list[Edge] = field(default_factory=list)
    _drawn: set[tuple[Item, Item, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rows = {(name, *row): where for name, row, where in self.final.rows}
        self._masks = {name: dict(map(tuple, self.final.tables[name])) for name in _MASKS}

    # ---- items and classes ---------------------------------------------------------------------

    def find(self, item: Item) -> Item:
        """The item that stands for a class."""
        root = item
        while self._parent[root] is not root:
            root = self._parent[root]
        while self._parent[item] is not root:
            self._parent[item], item = root, self._parent[item]
        return root

    def equal(self, one: Item, two: Item) -> bool:
        """Whether both are here and known to be equal."""
        inside = one in self._parent and two in self._parent
        return inside and self.find(one) is self.find(two)

    def lookup(self, term: Term) -> Item | None:
        """The item that stands for a term's class, without inserting it; None where it has none."""
        found: dict[Term, Item] = {}
        for part in subterms(term):
            own = self.find(part) if part in self._parent else self._like(part, found)
            if own is None:
                return None
            found[part] = own
        return found[term]

    def _like(self, term: Term, known: Mapping[Term, Item]) -> Item | None:
        head, columns = self.spelling.head(term)
        inner = (self._number[known[p]] for p in item_parts(term))
        other = self._table.get((head, *columns, *inner))
        return None if other is None else self.find(other)

    def like(self, term: Term) -> Term | None:
        """The oldest item that is a term or has its operation over equal parts."""
        inner = [self.lookup(p) for p in item_parts(term)]
        if any(p is None for p in inner):
            return None
        head, columns = self.spelling.head(term)
        found = self._table.get(
            (head, *columns, *(self._number[p] for p in inner if p is not None))
        )
        return found if isinstance(found, Term) else None

    def maker(self, item: Item) -> Instance | None:
        """The application of a law that first wrote an item; None for the source's own."""
        return self._maker.get(item)

    def members(self, item: Item) -> Sequence[Item]:
        """All items of a class, the oldest first."""
        return self._members[self.find(item)]

    def add(self, item: Item, known: int | None = None) -> Item:
        """Insert an item with all that it is made of; `known` is its class in the engine's
        result."""
        if item in self._parent:
            return item
        for part in item_parts(item):
            for term in subterms(part):
                if term not in self._parent:
                    self._insert(term)
        self._insert(item)
        self._settle()
        if known is not None:
            self._learn(item, known)
        return item

    def _insert(self, item: Item) -> None:
        self._number[item] = len(self._order)
        self._order.append(item)
        if self._now is not None:
            self._maker[item] = self._now
        self._parent[item] = item
        self._members[item] = [item]
        self.edges[item] = []
        for part in item_parts(item):
            self._users.setdefault(self.find(part), []).append(item)
        key = self._key(item)
        other = self._table.setdefault(key, item)
        self._learn(item, self._row(key))
        if other is not item:
            self._join(Edge(other, item, self._tick()))

    def known_class(self, item: Item) -> int | None:
        """The class of an item in the engine's result, where that is known."""
        return self._known.get(self.find(item))

    def _learn(self, item: Item, where: int | None) -> None:
        if where is not None:
            self._known.setdefault(self.find(item), where)

    def _key(self, item: Item) -> Key:
        """The row of an item over classes as they are now."""
        head = self.spelling.head(item)
        return (head[0], *head[1], *(self._number[self.find(p)] for p in item_parts(item)))

    def _row(self, key: Key) -> int | None:
        """The engine's class of a row; None where a part has none, or normal laws dropped it."""
        count = len(key) - 1 - _width(key[0])
        at = self._by_number
        inner = [at(n) for n in key[1 + count :]]
        return None if None in inner else self._rows.get((*key[: 1 + count], *inner))

    def _by_number(self, number: int) -> int | None:
        return self._known.get(self._order[number])

    def traits(self, term: Term) -> int | None:
        """What analyses know of a term's class, in the engine's result."""
        found = self.lookup(term)
        where = None if found is None else self._known.get(found)
        return None if where is None else self._masks["traits"].get(where)

    # ---- equalities ----------------------------------------------------------------------------

    def unite(self, one: Item, two: Item, reason: Instance) -> bool:
        """Two items are equal by a law; whether that was not drawn yet."""
        mark = (one, two, reason.law, reason.direction)
        if one is two or mark in self._drawn:
            return False
        self._drawn.add(mark)
        self._now = reason
        for item in (one, two, *(i for premise in reason.premises for i in premise)):
            self.add(item)
        self._now = None
        if isinstance(one, Related) and isinstance(two, Term):
            self.facts.setdefault(one, two)
        self._join(Edge(one, two, self._tick(), reason))
        self._settle()
        return True

    def _tick(self) -> int:
        self.time += 1
        return self.time

    def _join(self, edge: Edge) -> None:
        self.edges[edge.one].append(edge)
        self.edges[edge.two].append(edge)
        self._todo.append(edge)

    def _settle(self) -> None:
        """Merge what edges join, and what has equal parts now."""
        while self._todo:
            edge = self._todo.pop(0)
            one, two = self.find(edge.one), self.find(edge.two)
            if one is not two:
                self._merge(one, two)

    def _merge(self, one: Item, two: Item) -> None:
        keep, gone = (one, two) if self._number[one] < self._number[two] else (two, one)
        self._parent[gone] = keep
        both = self._members[keep] + self._members.pop(gone)
        self._members[keep] = sorted(both, key=self._number.__getitem__)
        known = self._known.pop(gone, None)
        self._learn(keep, known)
        users = self._users.pop(gone, [])
        self._users.setdefault(keep, []).extend(users)
        for user in users:
            other = self._table.setdefault(self._key(user), user)
            if other is not user and self.find(other) is not self.find(user):
                self._join(Edge(other, user, self._tick()))

    # ---- tables --------------------------------------------------------------------------------

    def tables(self) -> Tables:
        """The rows of all items over classes, and what analyses know of these."""
        self._look_again()
        rows: dict[str, dict[tuple[Any, ...], None]] = {}
        for item in self._number:
            name, *columns = self._key(item)
            row = (*columns, self._number[self.find(item)])
            rows.setdefault(name, {}).setdefault(row)
        for name, values in self._masks.items():
            rows[name] = dict.fromkeys(self._looked_up(values))
        rows["ext"] = {(i, float(a.extent)): None for i, a in enumerate(self.spelling.axes)}
        return Tables({name: list(found) for name, found in rows.items()})

    def _look_again(self) -> None:
        """Find classes of items in the engine's result that their parts had hidden."""
        found = True
        while found:
            found = False
            for item in self._order:
                if self.find(item) not in self._known:
                    where = self._row(self._key(item))
                    self._learn(item, where)
                    found |= where is not None

    def _looked_up(self, values: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        for item, where in self._known.items():
            if where in values:
                yield self._number[item], values[where]

    def number(self, item: Item) -> int:
        """The number by which rows name an item's class."""
        return self._number[self.find(item)]

    def lookup_number(self, item: Item) -> int | None:
        """The number of a term's class, without inserting the term; None where it has none."""
        found = self.lookup(item) if isinstance(item, Term) else None
        return None if found is None else self._number[found]

    def item(self, number: int) -> Item:
        """The item that a row's number stands for."""
        return self._order[number]


def _width(name: str) -> int:
    """How many columns of a row are parts."""
    if name in RELATIONS:
        return 4 if name == "bend" else 3
    return sum(sort == "T" for sort in CONSTRUCTORS[name])
