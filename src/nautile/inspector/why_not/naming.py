"""Axes of a question under the names that the program has for what they walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nautile.lang.session import Session
from nautile.terms import (
    Axis,
    Before,
    Index,
    Load,
    Online,
    Program,
    Reduce,
    Running,
    Term,
    children,
    rebuild,
    walk,
)

__all__ = ["Asked", "Naming"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A term over the program's axes, and its free axes in the order in which they were named."""

    term: Term
    axes: tuple[Axis, ...]


@dataclass(slots=True)
class Naming:
    """Gives the axes of a question the names that the program has for what they walk."""

    program: Program
    session: Session
    memo: dict[tuple[Term, frozenset[tuple[Axis, Axis]]], Term] = field(default_factory=dict)
    family: Mapping[str, str] = field(default_factory=dict)

    def asked(self, raw: Term, left: Mapping[str, Axis], known: Mapping[str, Axis]) -> Asked:
        self.family = self._families(raw, left, known)
        axes: dict[Axis, Axis] = {}
        for name, own in left.items():
            axes[own] = self._named(name, own, known, set(axes.values()))
        term = self.visit(raw, axes)
        return Asked(term, tuple(axes[a] for a in left.values() if axes[a] in term.free))

    def _families(
        self, raw: Term, left: Mapping[str, Axis], known: Mapping[str, Axis]
    ) -> dict[str, str]:
        """The family of each axis of the question: that of the dimension which it walks, of the
        program's axis of the same name and extent, of any axis of this extent, or its own."""
        walked = _dimensions(self.program)
        found: dict[str, str] = {}
        for load in (t for t in walk(raw) if isinstance(t, Load)):
            for place, part in enumerate(load.coordinates):
                if isinstance(part, Index) and (load.buffer.name, place) in walked:
                    found.setdefault(part.axis.family, walked[load.buffer.name, place])
        for axis in (*left.values(), *_binders(raw)):
            if axis.family not in found:
                found[axis.family] = self._spelled(axis, known)
        return found

    def _spelled(self, axis: Axis, known: Mapping[str, Axis]) -> str:
        name = self.session.bindings[axis.family].name
        if name in known and known[name].extent == axis.extent:
            return known[name].family
        return name if name not in {a.family for a in known.values()} else f"{name}_"

    def _named(self, name: str, own: Axis, known: Mapping[str, Axis], taken: set[Axis]) -> Axis:
        """The program's axis of that name where it walks the same, else the first free one."""
        family = self.family[own.family]
        mine = known.get(name)
        same = mine is not None and mine.family == family and mine.extent == own.extent
        if mine is not None and same and mine not in taken:
            return mine
        numbers = {a.number for a in taken if a.family == family}
        number = next(n for n in range(len(numbers) + 1) if n not in numbers)
        return Axis(family, number, own.extent)

    def visit(self, term: Term, axes: Mapping[Axis, Axis]) -> Term:
        """The term over the program's axes; a binder takes the smallest number that is not free in
        its body, a running value's reduction the axis that it runs along."""
        if isinstance(term, Index):
            return Index(axes[term.axis])
        key = (term, frozenset((a, axes[a]) for a in term.free))
        if key not in self.memo:
            self.memo[key] = self._build(term, axes)
        return self.memo[key]

    def _build(self, term: Term, axes: Mapping[Axis, Axis]) -> Term:
        if isinstance(term, (Reduce, Online)):
            family = self.family[term.axis.family]
            taken = {axes[a].number for a in term.free if axes[a].family == family}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            return self._bound(term, Axis(family, number, term.axis.extent), axes)
        if isinstance(term, (Running, Before)):
            reduction = term.reduction
            assert isinstance(reduction, (Reduce, Online))
            return type(term)(self._bound(reduction, axes[term.axis], axes))
        return rebuild(term, tuple(self.visit(c, axes) for c in children(term)))

    def _bound(self, term: Reduce | Online, axis: Axis, axes: Mapping[Axis, Axis]) -> Term:
        inner = {**axes, term.axis: axis}
        parts = tuple(self.visit(c, inner) for c in children(term))
        if isinstance(term, Reduce):
            return Reduce(term.monoid, axis, parts[0])
        return Online(axis, *parts)


def _binders(root: Term) -> Iterator[Axis]:
    for term in walk(root):
        if isinstance(term, (Reduce, Online)):
            yield term.axis


def _dimensions(program: Program) -> dict[tuple[str, int], str]:
    """The family that walks each dimension of each tensor, where some index does directly."""
    found: dict[tuple[str, int], str] = {}
    for d in program.definitions:
        found |= {(d.name, place): axis.family for place, axis in enumerate(d.axes)}
    terms = [d.body for d in program.definitions] + [o.term for o in program.outputs]
    for load in (t for t in walk(*terms) if isinstance(t, Load)):
        for place, (part, extent) in enumerate(
            zip(load.coordinates, load.buffer.shape, strict=True)
        ):
            if isinstance(part, Index) and part.axis.extent == extent:
                found.setdefault((load.buffer.name, place), part.axis.family)
    return found
