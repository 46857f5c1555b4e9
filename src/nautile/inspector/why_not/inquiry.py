"""What an answer looks at: a finished choice, its rules, its e-graphs, and a worker to ask again.

```
Inquiry ::= result (saturated and chosen), laws, worker
Place   ::= region, term (what the region does not store is written out), found | missing
```
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from nautile import lang
from nautile.egraph import Limits, encode
from nautile.errors import InputError
from nautile.extract.regions import Region
from nautile.inline import inline
from nautile.options import NUMERICS
from nautile.rules.admission import admit
from nautile.rules.law import Rule
from nautile.snapshot import Node, Snapshot
from nautile.terms import (
    Axis,
    Buffer,
    Const,
    Definition,
    Index,
    Load,
    Output,
    Program,
    Term,
    buffers,
    children,
    rebuild,
    transform,
    walk,
)

from .graph import Graph, Lookup
from .naming import Asked

if TYPE_CHECKING:
    from nautile.extract.device import Device
    from nautile.extract.kernel import Plan
    from nautile.extract.pool import Choice
    from nautile.stages import Optimization
    from nautile.worker import Worker

__all__ = ["ASKED", "GROWTH", "Inquiry", "Place"]

ASKED = "~asked"  # the tensor that a question's term is given in an e-graph
_SHOWN = 40  # operations of a term in a sentence
GROWTH = 20  # e-nodes for each term of a region, as programs are optimized


@dataclass(frozen=True, slots=True)
class Place:
    """A term in one region: what of it the region's e-graph holds."""

    number: int
    term: Term
    lookup: Lookup


@dataclass(slots=True)
class _Cache:
    graphs: dict[int, Graph] = field(default_factory=dict)
    smallest: dict[int, dict[int, Term]] = field(default_factory=dict)
    named: dict[int, dict[int, str]] = field(default_factory=dict)


class Inquiry:
    """One result that is asked about. Its stages up to the choice must have run."""

    def __init__(self, result: Optimization, worker: Worker) -> None:
        if result.plan is None or result.plan.choice is None:
            message = "the program was not chosen yet: run the stages up to `choose` first"
            raise InputError(message, code="not-chosen")
        self.result, self.worker = result, worker
        self.plan: Plan = result.plan
        self.choice: Choice = result.plan.choice
        self._cache = _Cache()

    # ---- what was given ------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The program as the stages work on it."""
        return self.result.work

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.result.regions

    @cached_property
    def device(self) -> Device:
        from nautile import extract

        return extract.device(self.result.options.target)

    @cached_property
    def laws(self) -> tuple[Rule, ...]:
        """The rules that the program was saturated with."""
        o = self.result.options
        return admit(o.packs, o.rules, o.accept, NUMERICS[o.numerics]).rules

    def graph(self, number: int) -> Graph:
        """The e-graph of a region, indexed."""
        known = self._cache.graphs
        if number not in known:
            known[number] = Graph(self.result.snapshots[number])
        return known[number]

    def limits(self, most: float = math.inf) -> Limits:
        """The budgets that the program was saturated within; `most` seconds at most."""
        o = self.result.options
        seconds = min(o.seconds, most)
        return Limits(rows=o.rows, growth=GROWTH, seconds=seconds, memory_bytes=o.memory)

    def saturate(
        self, outputs: tuple[Output, ...], laws: Sequence[Rule], *, most: float = math.inf
    ) -> Snapshot:
        """An e-graph of these outputs under these rules, within the program's own budgets and
        `most` seconds."""
        return self.worker.saturate(outputs, laws, limits=self.limits(most))

    # ---- terms in regions ----------------------------------------------------------------------

    def apart(self, asked: Asked) -> Asked:
        """The term over the axes that the stages work on. Raises InputError (code "axes") where
        axes of the program were taken apart so that the term cannot follow."""
        if self.result.apart is None or self.result.apart == self.result.program:
            return asked
        from nautile.extract.apart import apart

        p = self.result.program
        own = Definition(ASKED, asked.axes, asked.term)
        moved = apart(replace(p, definitions=(*p.definitions, own)))
        *others, mine = moved.definitions
        if tuple(others) != self.program.definitions or mine.name != ASKED:
            message = "the program works on axes taken apart, over which this term has no form"
            raise InputError(message, code="axes")
        return Asked(mine.body, mine.axes)

    def places(self, term: Term) -> list[Place]:
        """The regions that read all that the term reads, those that hold it first."""
        found = []
        for region in self.regions:
            own = self.written(term, region)
            if self._readable(own, region):
                found.append(Place(region.number, own, self.graph(region.number).lookup(own)))
        return sorted(found, key=lambda p: (not p.lookup.found, -len(p.lookup.nodes), p.number))

    def _readable(self, term: Term, region: Region) -> bool:
        inputs = {b.name for b in self.program.inputs}
        own = {b.name for b in buffers(term)}
        return own <= set(region.reads) or (bool(own) and own <= inputs and len(self.regions) == 1)

    def written(self, term: Term, region: Region | None) -> Term:
        """The term with all definitions written out that the region does not read from memory (all,
        without a region), in the form in which e-graphs hold it."""
        kept = self.stored - {o.buffer.name for o in region.outputs} if region else frozenset()
        open_ = {d.name: (d.axes, d.body) for d in self.program.definitions if d.name not in kept}
        own = _retyped(inline(term, open_), self._types(region) if region else {})
        axes = tuple(sorted(own.free, key=lambda a: (a.family, a.number)))
        encoded = encode((asked_output(own, axes),))
        return encoded.terms[encoded.roots[0]]

    @cached_property
    def stored(self) -> frozenset[str]:
        """The definitions that are stored because regions end there."""
        names = {d.name for d in self.program.definitions}
        read = {b.name for r in self.regions for o in r.outputs for b in buffers(o.term)}
        return frozenset(o.buffer.name for r in self.regions for o in r.outputs) & names & read

    def _types(self, region: Region) -> dict[str, Buffer]:
        """The tensors that a region reads, in the types in which it reads them."""
        return {b.name: b for o in region.outputs for b in buffers(o.term)}

    def definition(self, name: str) -> Definition | None:
        return next((d for d in self.program.definitions if d.name == name), None)

    def name_of(self, number: int, c: int) -> str:
        """A class for people: the definition of that value, else a small term of it."""
        named = self._named(number)
        return named[c] if c in named else self.text_of(self.smallest(number)[c], _SHOWN)

    def text_of(self, term: Term, limit: int) -> str:
        """A term for people: parts that are definitions of the program by their names."""
        return lang.show_term(self.folded(term), limit)

    def folded(self, term: Term) -> Term:
        """The term with what definitions stand for read from them (but for the term itself)."""
        known = self.readings
        done: dict[Term, Term] = {}
        for part in walk(term):
            if part is not term and part in known:
                done[part] = known[part]
            else:
                done[part] = rebuild(part, tuple(done[c] for c in children(part)))
        return done[term]

    @cached_property
    def readings(self) -> dict[Term, Term]:
        """Of each definition that holds an operation, what stands for it written out, and its
        reading."""
        found: dict[Term, Term] = {}
        for d in self.program.definitions:
            load = Load(d.buffer, tuple(Index(a) for a in d.axes))
            for region in (*self.regions, None):
                written = self.written(load, region)
                if not isinstance(written, (Load, Const, Index)):
                    found.setdefault(written, load)
        return found

    def node(self, number: int, c: int) -> Node:
        """A node of a class, the simplest one first."""
        nodes = self.result.snapshots[number].classes[c]
        return min(nodes, key=lambda n: len(n.children))

    def smallest(self, number: int) -> dict[int, Term]:
        """A small term of each class of a region."""
        if number not in self._cache.smallest:
            self._cache.smallest[number] = self.graph(number).smallest()
        return self._cache.smallest[number]

    def _named(self, number: int) -> dict[int, str]:
        """The classes that definitions stand for, by the first that does."""
        if number not in self._cache.named:
            found: dict[int, str] = {}
            for d in self.program.definitions:
                at = tuple(Index(a) for a in d.axes)
                for place in self.places(Load(d.buffer, at)):
                    root = place.lookup.root
                    if place.number == number and root is not None:
                        found.setdefault(root, d.name)
            self._cache.named[number] = found
        return self._cache.named[number]

    def kernel_classes(self, number: int) -> Mapping[int, Node]:
        """The nodes that the taken candidates of a region compute their classes by."""
        chosen: dict[int, Node] = {}
        for k in self.choice.taken.columns:
            home, candidate = self.choice.pool.candidates[k]
            if home == number:
                chosen |= candidate.choice
        return chosen

    def taken(self, number: int) -> Iterator[int]:
        """The columns of a region that run."""
        pool = self.choice.pool
        return (k for k in self.choice.taken.columns if pool.candidates[k][0] == number)


def asked_output(term: Term, axes: tuple[Axis, ...]) -> Output:
    """The term as one more result of a region."""
    return Output(Buffer(ASKED, tuple(a.extent for a in axes), "f32"), axes, term)


def _retyped(term: Term, new: Mapping[str, Buffer]) -> Term:
    def step(part: Term) -> Term:
        if isinstance(part, Load) and part.buffer.name in new:
            return Load(new[part.buffer.name], part.coordinates)
        return part

    return transform(term, step)
