"""E-classes of a region for people: a term, the name it is stored under, its source line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property

from nautile.egraph import encode
from nautile.extract.candidates import Candidate
from nautile.extract.classes import Classes
from nautile.extract.regions import Region
from nautile.inline import inline
from nautile.snapshot import Node, Snapshot, node_of, smallest_terms
from nautile.terms import (
    Axis,
    Definition,
    Load,
    Output,
    Program,
    Term,
    buffers,
    children,
    transform,
)

from .derivation.shown import brief
from .listing import Names, left_side

__all__ = ["RegionPlaces", "places_of", "source_lines", "source_names"]

_LIMIT = 24  # operations of a class' term that are printed
_MADE = 200  # operations of what a candidate computes that are printed


def places_of(region: Region, snapshot: Snapshot) -> dict[Term, int]:
    """The classes in which the source's terms stand, in the order of the source."""
    home: dict[Node, int] = {n: c for c, ns in snapshot.classes.items() for n in ns}
    found: dict[Term, int] = {}
    for term in encode(region.outputs).terms:
        kids = () if isinstance(term, Load) else children(term)
        c = home.get(node_of(term, tuple(found.get(k, -1) for k in kids)))
        if c is not None:
            found[term] = c
    return found


class RegionPlaces:
    """The classes of one region. `terms` gives the classes of the source's terms (see `places_of`),
    `lines` their source lines (see `source_lines`), `names` what classes are called that candidates
    store (see class_names.py), `source` the names of the source's terms."""

    def __init__(
        self,
        region: Region,
        classes: Classes,
        terms: Mapping[Term, int],
        lines: Mapping[Term, int],
        names: Mapping[int, str],
        source: Names,
    ) -> None:
        self.region, self.snapshot, self.classes = region, classes.snapshot, classes
        self.terms, self.lines, self.names, self.known = terms, lines, names, source

    @cached_property
    def source(self) -> dict[int, Term]:
        """The first term of the source that stands in each class."""
        found: dict[int, Term] = {}
        for term, c in self.terms.items():
            found.setdefault(c, term)
        return found

    @cached_property
    def smallest(self) -> dict[int, Term]:
        """A term of each class, of the fewest operations."""
        return smallest_terms(self.snapshot)

    def term(self, c: int) -> Term:
        """The class' term in the source, else one of the smallest."""
        return self.source.get(c) or self.smallest[c]

    def left(self, c: int) -> str:
        """The class as a tensor: `S[b, t]`."""
        return left_side(self.names[c], self.classes.axes[c])

    def shown(self, c: int) -> str:
        """`name[axes] = term` of a class that is stored between kernels; the tensor alone, where it
        is one that the program names."""
        if c in self.classes.roots:
            return self._lefts(c)[0]
        if self.names[c] in self._own:
            return self.left(c)
        return f"{self.left(c)} = {self._text(self.term(c), _LIMIT)}"

    @cached_property
    def _own(self) -> frozenset[str]:
        """The names that the program gives to definitions."""
        return frozenset(name for name, _ in self.known.values())

    def _text(self, term: Term, limit: int) -> str:
        """The term, what definitions stand for under their names; longer ones elided inside."""
        return brief(term, self.known, limit)

    def made(self, candidate: Candidate) -> list[str]:
        """All that a candidate makes, as definitions. Names of the program's definitions stand for
        what they compute, unless the candidate needs them."""
        return self.definitions(candidate.groups)

    def definitions(self, groups: Iterable[Iterable[tuple[int, Term]]]) -> list[str]:
        """Classes with the terms that compute them, as definitions."""
        return [
            f"{left} = {self._text(self.readable(term), _MADE)}"
            for group in groups
            for c, term in group
            for left in self._lefts(c)
        ]

    def readable(self, term: Term) -> Term:
        """The term, loads of classes that are stored between kernels under readable names."""
        names = {self.classes.buffer(c): name for c, name in self.names.items()}

        def step(part: Term) -> Term:
            if isinstance(part, Load) and part.buffer in names:
                return Load(replace(part.buffer, name=names[part.buffer]), part.coordinates)
            return part

        return transform(term, step)

    def _lefts(self, c: int) -> list[str]:
        pairs = zip(self.classes.outputs, self.snapshot.roots, strict=True)
        own = [left_side(o.buffer.name, o.axes) for o, root in pairs if root == c]
        return own or [self.left(c)]

    def lines_of(self, candidate: Candidate) -> list[int]:
        """The lines of the source whose values the candidate computes or stands in for."""
        inside = {*candidate.choice, *candidate.makes}
        terms = [t for c, t in self.source.items() if c in inside]
        return sorted({self.lines[t] for t in terms if self.lines.get(t)})


def source_lines(program: Program, regions: Sequence[Region]) -> dict[Term, int]:
    """The line of the first definition in which each term stands, as regions have it. Leaves stand
    everywhere and have none."""
    found: dict[Term, int] = {}
    for d, terms in _definitions(program, regions):
        for term in terms:
            if children(term) and not isinstance(term, Load):
                found.setdefault(term, d.line)
    return found


def source_names(program: Program, regions: Sequence[Region]) -> Names:
    """The terms of the program's definitions, as regions have them, with names and axes."""
    found: dict[Term, tuple[str, tuple[Axis, ...]]] = {}
    for d, terms in _definitions(program, regions):
        found.setdefault(terms[-1], (d.name, d.axes))
    return found


def _definitions(
    program: Program, regions: Sequence[Region]
) -> Iterator[tuple[Definition, Sequence[Term]]]:
    """Each definition with its terms as a region has them, the whole last: what the region reads is
    stored, in the type in which it is, all other definitions are written out."""
    stored = {o.buffer.name: o.buffer for region in regions for o in region.outputs}
    every = {d.name: d for d in program.definitions}
    for region in regions:
        kept = stored.keys() & set(region.reads)
        written = {d.name: (d.axes, d.body) for d in program.definitions if d.name not in kept}

        def step(part: Term, kept: Set[str] = kept) -> Term:
            if isinstance(part, Load) and part.buffer.name in kept:
                return Load(stored[part.buffer.name], part.coordinates)
            return part

        for d in _inside(region, every, kept):
            body = transform(inline(d.body, written), step)
            encoded = encode((Output(d.buffer, d.axes, body),))
            root = encoded.roots[0]
            yield d, (*encoded.terms[:root], *encoded.terms[root + 1 :], encoded.terms[root])


def _inside(region: Region, every: Mapping[str, Definition], kept: Set[str]) -> list[Definition]:
    """The definitions that the region's outputs are made of, in the program's order."""
    todo = [o.buffer.name for o in region.outputs]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in every and name not in found and name not in kept:
            found.add(name)
            todo += (b.name for b in buffers(every[name].body))
    return [d for d in every.values() if d.name in found]
