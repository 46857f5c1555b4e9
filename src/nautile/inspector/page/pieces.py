"""Pieces of a program: its definitions, and the kernels' terms brought back to them.

A kernel's term is **equal** to a subterm of the source where both are one class of the e-graph (or
one term). A term that equals none, such as a running value or the unfinished sum of a stream, is
**of** the last definition that what it reads belongs to: it is there to make that one.

```
Piece ::= definition, its number in the order of the source
Place ::= piece, equal subterms of the source (numbers of `Sources.terms`)
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nautile.inline import Definitions, inline
from nautile.inspector.page.typeset import linked
from nautile.snapshot import Node, Snapshot, node_of
from nautile.terms import (
    Apply,
    Buffer,
    Const,
    Index,
    Load,
    Output,
    Program,
    Term,
    children,
    transform,
    walk,
)

if TYPE_CHECKING:
    from nautile.extract.kernel import Kernel
    from nautile.extract.regions import Region

__all__ = ["Place", "Sources"]

Home = tuple[int, int]
"""A region's number and an e-class in its snapshot."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a term of a kernel comes from: a definition's number, and the subterms of the source
    that it equals (none where it only serves that definition)."""

    piece: int
    equal: tuple[int, ...] = ()


@dataclass(slots=True)
class Sources:
    """The definitions of a program, their linked subterms, and the classes that these stand in;
    `homes` are those of the definitions (None where no e-graph holds one), and `carried` the
    tensors of definitions that are stored between regions."""

    program: Program
    definitions: tuple[Output, ...]
    terms: list[Term]
    ids: dict[Term, int]
    owner: dict[int, int]
    readers: dict[str, int]
    classes: _Classes
    known: dict[int | Term, list[int]] = field(default_factory=dict)
    places: dict[Term, Place | None] = field(default_factory=dict)
    between: Definitions = field(default_factory=dict)
    homes: list[Home | None] = field(default_factory=list)
    carried: dict[str, Buffer] = field(default_factory=dict)

    @classmethod
    def of(
        cls, program: Program, regions: Sequence[Region], snapshots: Sequence[Snapshot],
        kernels: Sequence[Kernel] = (),
    ) -> Sources:  # fmt: skip
        """`kernels` are those of the chosen plan: what they store between them is seen through."""
        found = _definitions(program)
        terms = linked([d.term for d in found])
        ids = {t: n for n, t in enumerate(terms)}
        owner: dict[int, int] = {}
        readers: dict[str, int] = {}
        for number, definition in enumerate(found):
            for term in walk(definition.term):
                if term in ids:
                    owner.setdefault(ids[term], number)
                if isinstance(term, Load):
                    readers.setdefault(term.buffer.name, number)
        stored = {o.buffer.name: o for r in regions for o in r.outputs}
        self = cls(program, found, terms, ids, owner, readers, _Classes(snapshots))
        self.carried = {
            d.buffer.name: o.buffer
            for d in found
            if (o := stored.get(d.buffer.name)) is not None and o.axes == d.axes
        }
        self._index({d.buffer.name: (d.axes, d.term) for d in found if d.buffer.name not in stored})
        names = {d.buffer.name for d in found}
        outputs = (o for k in kernels for o in k.outputs if o.buffer.name not in names)
        self.between = {o.buffer.name: (o.axes, o.term) for o in outputs}
        return self

    def _index(self, inner: Definitions) -> None:
        for number, term in enumerate(self.terms):
            whole = self._whole(term, inner)
            keys: tuple[int | Term, ...] = (whole, *self.classes.of(whole))
            for key in keys:
                self.known.setdefault(key, []).append(number)
        for number, definition in enumerate(self.definitions):
            buffer = self.carried.get(definition.buffer.name, definition.buffer)
            load = Load(buffer, tuple(_indices(definition)))
            self.known.setdefault(load, []).append(self.ids.get(definition.term, number))

        self.homes = [self.classes.home(self._whole(d.term, inner)) for d in self.definitions]

    def _whole(self, term: Term, inner: Definitions) -> Term:
        """The term as its region has it: with definitions that are not stored written into it, and
        stored ones loaded in the type that they are stored in."""

        def step(part: Term) -> Term:
            if not isinstance(part, Load) or part.buffer.name not in self.carried:
                return part
            return Load(self.carried[part.buffer.name], part.coordinates)

        return transform(inline(term, inner), step)

    def place(self, term: Term) -> Place | None:
        """Where a term of a kernel comes from; None for numbers and positions."""
        whole = _seen_through(term, self.between)
        for part in walk(whole):
            if part not in self.places:
                self.places[part] = self._place(part)
        return self.places[whole]

    def _place(self, term: Term) -> Place | None:
        if isinstance(term, Const):
            return None
        inner = [p.piece for c in children(term) if (p := self.places[c]) is not None]
        if isinstance(term, Load):
            return self._loaded(term, inner)
        equal = self._equal(term)
        if equal:
            return Place(min(self.owner[n] for n in equal), equal)
        return Place(max(inner)) if inner else None

    def _loaded(self, term: Load, inner: list[int]) -> Place | None:
        """An element belongs to the first definition that reads it, a stored one to its own."""
        own = [n for n, d in enumerate(self.definitions) if d.buffer.name == term.buffer.name]
        first = own[0] if own else self.readers.get(term.buffer.name)
        if first is None:
            return Place(max(inner)) if inner else None
        return Place(first, self._equal(term))

    def _equal(self, term: Term) -> tuple[int, ...]:
        keys: tuple[int | Term, ...] = (term, *self.classes.of(term))
        return tuple(dict.fromkeys(n for k in keys for n in self.known.get(k, ())))


def _definitions(program: Program) -> tuple[Output, ...]:
    """The program's definitions, and its results where they are more than a definition's name."""
    found = [Output(d.buffer, d.axes, d.body) for d in program.definitions]
    names = {d.buffer.name for d in found}
    return (*found, *(o for o in program.outputs if o.buffer.name not in names))


def _indices(output: Output) -> Iterable[Term]:
    return (Index(a) for a in output.axes)


def _seen_through(term: Term, between: Definitions) -> Term:
    """The term over the source's tensors alone; itself where that cannot be written."""
    try:
        return inline(term, between)
    except ValueError:  # under a running reduction whose axis would have to be renamed
        return term


class _Classes:
    """The class of a term in the first snapshots that know it."""

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._tables: list[dict[Key, int]] = [_table(s) for s in snapshots]
        self._known: list[Known] = [{} for _ in snapshots]
        starts = [0]
        for snapshot in snapshots:
            starts.append(starts[-1] + max(snapshot.classes, default=0) + 1)
        self._starts = starts

    def of(self, term: Term) -> tuple[int, ...]:
        """Its classes, numbered over all snapshots."""
        found = []
        for number, start in enumerate(self._starts[: len(self._tables)]):
            c = self._in(number, term)
            if c is not None:
                found.append(start + c)
        return tuple(found)

    def home(self, term: Term) -> Home | None:
        """The first snapshot that has the term, and the class there."""
        for number in range(len(self._tables)):
            c = self._in(number, term)
            if c is not None:
                return number, c
        return None

    def _in(self, number: int, term: Term) -> int | None:
        table, known = self._tables[number], self._known[number]
        if term in known:
            return known[term]
        for part in walk(term):
            if part not in known:
                known[part] = _class_of(part, table, known)
        return known[term]


Key = Node | tuple[type, str]
Known = dict[Term, int | None]


def _table(snapshot: Snapshot) -> dict[Key, int]:
    """Every node with its class; equal numbers of different types are different nodes."""
    return {_key(node): c for c, nodes in snapshot.classes.items() for node in nodes}


def _key(node: Node) -> Key:
    return (type(node.payload), repr(node.payload)) if node.kind == "const" else node


def _class_of(term: Term, table: Mapping[Key, int], known: Known) -> int | None:
    if isinstance(term, Load):
        return table.get(Node("load", term))
    plain = [known[c] for c in children(term)]
    found = _look_up(term, plain, table)
    if found is None and isinstance(term, Apply):
        # an integer that meets real numbers is a real number in the e-graph
        real = [_real(a, table) or known[a] for a in term.arguments]
        found = _look_up(term, real, table)
    return found


def _look_up(term: Term, inner: Sequence[int | None], table: Mapping[Key, int]) -> int | None:
    places = tuple(c for c in inner if c is not None)
    if len(places) < len(inner):
        return None
    return table.get(_key(node_of(term, places)))


def _real(term: Term, table: Mapping[Key, int]) -> int | None:
    if not isinstance(term, Const) or type(term.value) is not int or abs(term.value) >= 2**53:
        return None
    return table.get((float, repr(float(term.value))))
