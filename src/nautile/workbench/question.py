"""A law as a question to the e-graph: are its two sides equal by other laws?

```
Question ::= lines that insert both sides and all that the law asks for; what a name stands for
```

The names of the law become elements of tensors that are known to be what its conditions ask and
nothing else: over all axes of the law but those that a condition bars, and one of their own. So
what is derived for them is derived for every term that meets the conditions. Constants become
unlike numbers, carriers the running values that the law says they are; a premise is told as a fact.
What only bears on use (a product under a reduction, say) is made true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nautile.rules.egglog import TRAITS, TYPES, Printed, type_bits
from nautile.rules.law import NotFree, Rule

from .query import RELATIONS, Tree, is_table, parsed, variables

__all__ = ["Question", "question"]

_EXTENTS = (5.0, 7.0, 11.0, 13.0, 17.0, 19.0)
_NUMBERS = (3.7, 5.3, 8.9, 2.3)
_ALL = (1 << 62) - 1
_IMPLIED = {"pos": ("nonneg", "nonzero"), "neg": ("nonpos", "nonzero")}


@dataclass(frozen=True, slots=True)
class Question:
    """The lines of a job whose term 0 is the left side of one direction of a law (of a fact: the
    relation's place), and the line of the right side (the running form), term 1: it is inserted
    when all is done, so that nothing is made of it."""

    lines: tuple[str, ...]
    right: str


def question(rule: Rule, printed: Printed) -> Question:
    """The question that one printed direction of a law poses."""
    *lines, right = _Writer(rule, printed.text).lines()
    return Question(tuple(lines), right)


class _Writer:
    def __init__(self, rule: Rule, text: str) -> None:
        _, self.query, self.actions, *_ = parsed(text)
        self.barred = {(c.axis, c.name) for c in rule.conditions if isinstance(c, NotFree)}
        known = sorted({v for atom in self.query for v in variables(atom)})
        self.axes = {v: i for i, v in enumerate(v for v in known if v.startswith("x_"))}
        self.names = [v for v in known if v.startswith("v_")]
        self.values: dict[str, str] = {v: str(i) for v, i in self.axes.items()}
        self.values |= {f"n_{v[2:]}": str(_EXTENTS[i]) for v, i in self.axes.items()}
        self.defined = self._definitions()

    def lines(self) -> Iterator[str]:
        """Extents, leaves, premises, both sides, and the place where the left side stands."""
        for i in self.axes.values():
            yield f"(set (ext {i}) {_EXTENTS[i]})"
        for name in self.names:
            yield from self._leaf(name)
        for name, term in self._in_order():
            self.values[name] = self._text(term)
            yield self.values[name]
        yield from self._premises()
        left, right = self._sides()
        yield f"(set (N 0) {left})"
        yield f"(set (up {self._text(self.query[0][2])}) {_ALL})"
        yield f"(set (N 1) {right})"

    def _definitions(self) -> dict[str, Tree]:
        """Names that the query says to be terms: carriers and constants. What it computes of
        extents and constants stands for itself."""
        numbers = iter(_NUMBERS)
        found: dict[str, Tree] = {}
        for atom in self.query[1:]:
            compare, name, term = atom
            if compare != "=" or not isinstance(name, str) or not isinstance(term, list):
                continue
            if not variables(name):
                continue
            if name in self.names and term[0] == "Num" and variables(term):
                found.setdefault(name, ["Num", str(next(numbers))])
                self.values[term[1]] = found[name][1]
            elif name in self.names and term[0] not in RELATIONS:
                found[name] = term
            elif name not in self.names and not is_table(term[0]):
                self.values[name] = self._text(term)
        return found

    def _in_order(self) -> Iterator[tuple[str, Tree]]:
        """Definitions, those that others are made of first."""
        todo = dict(self.defined)
        while todo:
            ready = [n for n, t in todo.items() if not variables(t) & (set(todo) - {n})]
            for name in ready or list(todo):
                yield name, todo.pop(name)

    def _leaf(self, name: str) -> Iterator[str]:
        if name in self.defined:
            return
        number = self.names.index(name)
        form = self.values[name] = f"(Leaf {number})"
        own = 1 << (len(self.axes) + number)
        mask = own | sum(1 << i for v, i in self.axes.items()
                         if (v[2:], name[2:]) not in self.barred)  # fmt: skip
        yield f"(set (fv {form}) {mask}) (set (traits {form}) {self._traits(name)})"
        yield f"(set (rd {form}) 0) (set (ra {form}) 0) (set (loose {form}) 0)"

    def _traits(self, name: str) -> int:
        """The bits that the law asks of a name, a float's where it asks for no type."""
        wanted = 0
        for atom in self.query:
            if atom[0] == "=" and variables(atom) == {f"traits_{name[2:]}"}:
                wanted |= int(atom[1])
        for sign, implied in _IMPLIED.items():
            if wanted & TRAITS[sign]:
                wanted |= sum(TRAITS[i] for i in implied)
        for kind, place in (("bool", "bool"), ("i32", "i64")):
            if wanted >> TYPES.index(place) & 1:
                return wanted | type_bits(kind)
        return wanted | type_bits("f32")

    def _premises(self) -> Iterator[str]:
        for atom in self.query[1:]:
            if isinstance(atom[2], list) and atom[2][0] in RELATIONS:
                yield f"(union {self._text(atom[2])} {self._text(atom[1])})"

    def _sides(self) -> tuple[str, str]:
        """Left and right; of a fact the place of the relation and the running form."""
        self.values["e"] = self._text(self.query[0][2])
        made = {a[1]: self._text(a[2]) for a in self.actions if a[0] == "let"}
        self.values |= made
        union = next(a for a in self.actions if a[0] == "union")
        return self._text(union[1]), self._text(union[2])

    def _text(self, tree: Tree) -> str:
        if isinstance(tree, str):
            return self.values.get(tree, tree)
        return f"({' '.join([str(tree[0]), *map(self._text, tree[1:])])})"
