"""Canonical axes: what each index of a program walks, independent of how a line spells it.

A family is a set of tensor dimensions (and of the binders that walk them) joined by the indices
that stand in them directly, over all lines of a program: union-find. Binders that index no tensor
share a family where their extents agree. A family is named after the first index of the source
that walks it. The left-hand axes of a definition take the numbers of their families in order;
every reduction takes the smallest number that is not free in its body.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nautile.lang.session import Binding
from nautile.terms import Axis, Definition, Index, Load, Reduce, Term, children, rebuild, walk

__all__ = ["canonical"]


@dataclass(slots=True)
class _Sets:
    """Disjoint sets with path halving."""

    parent: dict[Hashable, Hashable] = field(default_factory=dict)

    def find(self, item: Hashable) -> Hashable:
        parent = self.parent
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, a: Hashable, b: Hashable) -> None:
        self.parent[self.find(b)] = self.find(a)


def canonical(
    definitions: Sequence[Definition], bindings: Mapping[str, Binding], taken: Iterable[str]
) -> list[Definition]:
    """The definitions over canonical axes. `bindings` spells the binders (whose families are their
    keys); family names keep clear of the names in `taken`."""
    binders = _binders(definitions)
    sets = _join(definitions)
    _join_loose(sets, binders)
    names = _names(sets, binders, bindings, set(taken))
    family = {axis.family: names[sets.find(axis.family)] for axis in binders}
    return [_rename(d, family) for d in definitions]


def _binders(definitions: Sequence[Definition]) -> dict[Axis, None]:
    found: dict[Axis, None] = {}
    for definition in definitions:
        found.update(dict.fromkeys(definition.axes))
        for term in walk(definition.body):
            if isinstance(term, Reduce):
                found[term.axis] = None
    return found


def _join(definitions: Sequence[Definition]) -> _Sets:
    sets = _Sets()
    for definition in definitions:
        for place, axis in enumerate(definition.axes):
            sets.join((definition.name, place), axis.family)
        for term in walk(definition.body):
            if isinstance(term, Load):
                _join_load(sets, term)
    return sets


def _join_load(sets: _Sets, load: Load) -> None:
    for place, (term, extent) in enumerate(zip(load.coordinates, load.buffer.shape, strict=True)):
        if isinstance(term, Index) and term.axis.extent == extent:
            sets.join((load.buffer.name, place), term.axis.family)


def _join_loose(sets: _Sets, binders: Iterable[Axis]) -> None:
    """Join the binders that no tensor's dimension holds, by extent."""
    held = {sets.find(item) for item in list(sets.parent) if isinstance(item, tuple)}
    for axis in binders:
        if sets.find(axis.family) not in held:
            sets.join(("extent", axis.extent, None), axis.family)


def _names(
    sets: _Sets, binders: Iterable[Axis], bindings: Mapping[str, Binding], taken: set[str]
) -> dict[Hashable, str]:
    """A name for each set: the spelling of its first binder, those of the program itself before
    those of the operations that it calls."""
    first: dict[Hashable, Binding] = {}
    for axis in binders:
        root, binding = sets.find(axis.family), bindings[axis.family]
        if root not in first or _rank(binding) < _rank(first[root]):
            first[root] = binding
    names: dict[Hashable, str] = {}
    for root, binding in sorted(first.items(), key=lambda item: _rank(item[1])):
        names[root] = _unique(binding.name, taken)
    return names


def _rank(binding: Binding) -> tuple[int, int]:
    return binding.level, binding.order


def _unique(spelled: str, taken: set[str]) -> str:
    """A free name near `spelled`, without the `__` that stands before an axis' number."""
    base = re.sub("__+", "_", re.sub(r"__\d+$", "", spelled))
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base.rstrip('_')}_{count}"
    taken.add(name)
    return name


def _rename(definition: Definition, family: Mapping[str, str]) -> Definition:
    axes: list[Axis] = []
    for axis in definition.axes:
        name = family[axis.family]
        axes.append(Axis(name, sum(a.family == name for a in axes), axis.extent))
    renaming = _Renaming(family)
    body = renaming.visit(definition.body, dict(zip(definition.axes, axes, strict=True)))
    return Definition(definition.name, tuple(axes), body, definition.line, definition.dtype)


@dataclass(slots=True)
class _Renaming:
    """Binders numbered from the outside in; the depth of terms is limited before."""

    family: Mapping[str, str]
    memo: dict[tuple[Term, frozenset[tuple[Axis, Axis]]], Term] = field(default_factory=dict)

    def visit(self, term: Term, axes: Mapping[Axis, Axis]) -> Term:
        if isinstance(term, Index):
            return Index(axes[term.axis])
        key = (term, frozenset((a, axes[a]) for a in term.free))
        if key not in self.memo:
            self.memo[key] = self._build(term, axes)
        return self.memo[key]

    def _build(self, term: Term, axes: Mapping[Axis, Axis]) -> Term:
        if isinstance(term, Reduce):
            name = self.family[term.axis.family]
            taken = {axes[a].number for a in term.free if axes[a].family == name}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            axis = Axis(name, number, term.axis.extent)
            return Reduce(term.monoid, axis, self.visit(term.body, {**axes, term.axis: axis}))
        return rebuild(term, tuple([self.visit(c, axes) for c in children(term)]))
