"""Short ways between equal terms, and the rewrites of whole terms that they come to.

```
Way     ::= Leg*                       from a term to an equal one
Leg     ::= from, to, instance, forward          a law at work on this very term
          | from, to, time                       equal parts: ways between them, older than `time`
Rewrite ::= redex, contractum, instance, forward, when (facts it rests on are older)
```

A way is a shortest path among the edges that are older than the question. A law costs one, read
backwards two (a directed law has its direction for a reason), equal parts what the ways between the
parts cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from nautile.rules.law import Rule
from nautile.terms import Term

from .equalities import Edge, Equalities, Instance
from .parts import build, parts
from .writing import Item, item_parts

__all__ = ["Leg", "NoWay", "Rewrite", "Ways"]

_LAW, _BACK, _FOLD, _FACT, _AVOIDED = 1.0, 2.0, 0.5, 4.0, 20.0
_LONGEST = 2000  # rewrites of one way


class NoWay(Exception):
    """There is no way between two terms, or none of reasonable length."""


@dataclass(frozen=True, slots=True)
class Leg:
    """Part of a way: by a law (`instance`, `forward`), or by equal parts (no instance)."""

    one: Item
    two: Item
    time: int
    instance: Instance | None = None
    forward: bool = True


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One law at one place: the redex becomes the contractum. `instances` is one law, or the facts
    through which two running forms of one subject agree; `forward` says whether the law is read
    from its left side to its right one."""

    redex: Term
    contractum: Term
    instances: tuple[Instance, ...]
    forward: bool
    time: int


@dataclass(slots=True)
class Ways:
    """Ways through the equalities that were found."""

    graph: Equalities
    laws: Sequence[Rule]
    avoided: frozenset[int] = frozenset()  # instances, by identity
    _costs: dict[Edge, float] = field(default_factory=dict)
    _known: dict[tuple[Item, Item, int], tuple[float, tuple[Leg, ...]]] = field(
        default_factory=dict
    )

    def way(self, one: Item, two: Item, before: int) -> tuple[Leg, ...]:
        """A shortest way among what was found before a time."""
        return self._find(one, two, before)[1]

    def rewrites(self, one: Term, two: Term, before: int) -> Iterator[Rewrite]:
        """The laws at work between two terms, outer ones first, each pair of terms once: they are
        meant to be applied wherever their redex stands."""
        yield from self._rewrites(one, two, before, set())

    def _rewrites(
        self, one: Item, two: Item, before: int, seen: set[tuple[Item, Item]]
    ) -> Iterator[Rewrite]:
        if one is two or (one, two) in seen:
            return
        seen.add((one, two))
        for leg in grouped(self.way(one, two, before)):
            if isinstance(leg, Rewrite):
                yield leg
            else:
                for a, b in _pairs(leg):
                    yield from self._rewrites(a, b, leg.time, seen)

    def sequence(self, one: Term, two: Term, before: int) -> list[tuple[Term, Rewrite]]:
        """The terms on the way, one law at one place after the other, each with the law that made
        it.

        Raises NoWay where there would be thousands.
        """
        found: list[tuple[Term, Rewrite]] = []
        for leg in grouped(self.way(one, two, before)) if one is not two else ():
            if isinstance(leg, Rewrite):
                found.append((leg.contractum, leg))
            else:
                found += self._inside(leg)
            if len(found) > _LONGEST:
                raise NoWay("a derivation of thousands of steps")
        return found

    def _inside(self, leg: Leg) -> list[tuple[Term, Rewrite]]:
        """Equal parts, one after the other; parts that are alike go together."""
        assert isinstance(leg.one, Term)
        assert isinstance(leg.two, Term)
        now, goal, found = list(parts(leg.one)), parts(leg.two), []
        for a, b in _pairs(leg):
            alike = [i for i, (x, y) in enumerate(zip(now, goal, strict=True)) if x is a and y is b]
            for term, rewrite in self.sequence(a, b, leg.time):
                for i in alike:
                    now[i] = term
                found.append((build(leg.one, tuple(now)), rewrite))
        return found

    # ---- shortest paths ------------------------------------------------------------------------

    def _find(self, one: Item, two: Item, before: int) -> tuple[float, tuple[Leg, ...]]:
        if one is two:
            return 0.0, ()
        key = (one, two, before)
        if key not in self._known:
            self._known[key] = self._search(one, two, before)
        return self._known[key]

    def _search(self, one: Item, two: Item, before: int) -> tuple[float, tuple[Leg, ...]]:
        """Dijkstra's algorithm; ties go to what was found first."""
        ties, done = count(), set[Item]()
        heap: list[tuple[float, int, Item, tuple[Leg, ...]]] = [(0.0, next(ties), one, ())]
        while heap:
            cost, _, item, legs = heapq.heappop(heap)
            if item is two:
                return cost, legs
            if item in done:
                continue
            done.add(item)
            for edge in self.graph.edges[item]:
                other = edge.two if edge.one is item else edge.one
                if edge.time < before and other not in done:
                    forward = edge.one is item
                    leg = Leg(item, other, edge.time, edge.reason, forward)
                    total = cost + self._cost(edge, forward)
                    heapq.heappush(heap, (total, next(ties), other, (*legs, leg)))
        raise NoWay("two terms were found equal, but no way leads from one to the other")

    def _cost(self, edge: Edge, forward: bool) -> float:
        if edge.reason is not None:
            return self._law_cost(edge.reason, forward)
        if edge not in self._costs:
            leg = Leg(edge.one, edge.two, edge.time)
            self._costs[edge] = sum(self._find(a, b, edge.time)[0] for a, b in _pairs(leg))
        return self._costs[edge]

    def _law_cost(self, instance: Instance, forward: bool) -> float:
        if id(instance) in self.avoided:
            return _AVOIDED
        if instance.law < 0:
            return _FOLD
        law = self.laws[instance.law]
        if law.is_fact:
            return _FACT
        return _LAW if forward or law.two_way else _BACK


def _pairs(leg: Leg) -> list[tuple[Term, Term]]:
    """The different parts of both ends, each pair once."""
    both = zip(item_parts(leg.one), item_parts(leg.two), strict=True)
    return list(dict.fromkeys((a, b) for a, b in both if a is not b))


def grouped(legs: Sequence[Leg]) -> Iterator[Leg | Rewrite]:
    """Legs of a way between terms: equal parts that follow each other as one leg, what leads
    through the place of a fact as one rewrite."""
    equal: Leg | None = None
    for segment in _segments(legs):
        first, last = segment[0], segment[-1]
        if len(segment) == 1 and first.instance is None:
            start, time = (first.one, first.time) if equal is None else (equal.one, equal.time)
            equal = Leg(start, first.two, max(time, first.time))
            continue
        if equal is not None:
            yield equal
        equal = None
        instances = tuple(leg.instance for leg in segment if leg.instance is not None)
        time = max(leg.time for leg in segment)
        assert isinstance(first.one, Term)
        assert isinstance(last.two, Term)
        yield Rewrite(first.one, last.two, instances, first.forward, time)
    if equal is not None:
        yield equal


def _segments(legs: Sequence[Leg]) -> Iterator[list[Leg]]:
    """The legs from one term to the next, through the places of facts."""
    run: list[Leg] = []
    for leg in legs:
        run.append(leg)
        if isinstance(leg.two, Term):
            yield run
            run = []
