"""Terms and what egglog calls them: rows of tables from terms, terms from the text of laws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nautile.egraph.encode import Region
from nautile.rules.egglog import STORAGE
from nautile.terms import (
    MONOIDS,
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
)
from nautile.workbench.query import Tree

from .matching import RELATIONS, value_of
from .parts import parts

__all__ = ["Item", "Related", "Spelling", "item_parts"]


@dataclass(frozen=True, slots=True, eq=False)
class Related:
    """The place of a fact: a relation, and its subject, carrier, slope (and centre). One spelling
    makes one object of each (`Spelling.related`)."""

    relation: str
    places: tuple[Term, ...]


Item = Term | Related


def item_parts(item: Item) -> tuple[Term, ...]:
    """What an item is made of, in the order of its row."""
    return item.places if isinstance(item, Related) else parts(item)


class Spelling:
    """The numbers that a region's rows have for axes, loads and odd constants."""

    def __init__(self, region: Region) -> None:
        self.axes = region.axes
        self._axis = {a: i for i, a in enumerate(region.axes)}
        self._leaf: dict[Term, int] = {}
        for i, leaf in enumerate(region.leaves):
            self._leaf.setdefault(leaf, i)
        self._related: dict[tuple[str, tuple[Term, ...]], Related] = {}
        self._odd = {value: i + 2 for i, value in enumerate(region.odd)}

    def head(self, item: Item) -> tuple[str, tuple[Any, ...]]:
        """The table of an item's row, and the columns before its parts."""
        if isinstance(item, Related):
            return item.relation, ()
        match item:
            case Const(value):
                return self._constant(value)
            case Index(axis):
                return "Ix", (self._axis[axis],)
            case Load():
                return "Leaf", (self._leaf[item],)
            case Apply(operation, _):
                return f"op_{operation}", ()
            case Cast(dtype, _):
                return "Round", (STORAGE.index(dtype),)
            case Reduce(monoid, axis, _):
                return f"r_{monoid}", (self._axis[axis],)
            case Online(axis):
                return "Online", (self._axis[axis],)
            case Running(Reduce(monoid, axis, _)) | Before(Reduce(monoid, axis, _)):
                return type(item).__name__, (MONOIDS.index(monoid), self._axis[axis])
            case Running(Online(axis)) | Before(Online(axis)):
                return f"{type(item).__name__}Online", (self._axis[axis],)
        raise TypeError(f"no row holds {item!r}")

    def _constant(self, value: Any) -> tuple[str, tuple[Any, ...]]:
        if isinstance(value, bool):
            return "Truth", (int(value),)
        if isinstance(value, int):
            return ("Int", (value,)) if abs(value) < 2**63 else ("Odd", (self._odd[value],))
        if math.isnan(value):
            return "Odd", (1,)
        if value == 0 and math.copysign(1, value) < 0:
            return "Odd", (0,)
        return "Num", (value,)

    def item(self, tree: Tree, names: Mapping[str, Term], known: Mapping[str, Any]) -> Item:
        """What an expression of a law stands for: `names` gives terms, `known` axes and numbers.

        Raises KeyError where a name stands for nothing.
        """
        if isinstance(tree, str):
            return names[tree]
        if tree[0] in RELATIONS:
            return self.related(tree[0], tuple(self.term(t, names, known) for t in tree[1:]))
        return self.term(tree, names, known)

    def related(self, relation: str, places: tuple[Term, ...]) -> Related:
        """The place of a fact about these terms."""
        return self._related.setdefault((relation, places), Related(relation, places))

    def term(self, tree: Tree, names: Mapping[str, Term], known: Mapping[str, Any]) -> Term:
        """The same for expressions that are terms."""
        if isinstance(tree, str):
            return names[tree]
        head, *rest = tree
        if head in ("Num", "Int", "Truth", "Odd"):
            return self._number(head, value_of(rest[0], known))
        if head.startswith("op_"):
            return Apply(head[3:], tuple(self.term(t, names, known) for t in rest))
        return self._over_axis(head, rest, names, known)

    def _over_axis(
        self, head: str, rest: Sequence[Tree], names: Mapping[str, Term], known: Mapping[str, Any]
    ) -> Term:
        if head in ("Running", "Before"):
            code, place, body = rest
            reduction: Term = Reduce(
                MONOIDS[value_of(code, known)],
                self._at(place, known),
                self.term(body, names, known),
            )
            return Running(reduction) if head == "Running" else Before(reduction)
        first, *inner = rest
        terms = [self.term(t, names, known) for t in inner]
        if head == "Ix":
            return Index(self._at(first, known))
        if head == "Round":
            return Cast(STORAGE[value_of(first, known)], terms[0])
        if head.startswith("r_"):
            return Reduce(head[2:], self._at(first, known), terms[0])
        online = Online(self._at(first, known), *terms)
        moments = {"RunningOnline": Running, "BeforeOnline": Before}
        return moments[head](online) if head in moments else online

    def _at(self, place: Tree, known: Mapping[str, Any]) -> Axis:
        number: int = value_of(place, known)
        return self.axes[number]

    @staticmethod
    def _number(head: str, value: Any) -> Term:
        if head == "Truth":
            return Const(bool(value))
        if head == "Odd":
            return Const((-0.0, math.nan)[value])
        return Const(float(value) if head == "Num" else int(value))
