"""An e-graph as columns: what the explorer in the page reads.

```
{"strings": [text],                        every other text is a number into this
 "heads":   {"text", "name", "form", "own", "left", "right"},    see exports/heads.py
 "axes":    {"name", "extent"},
 "groups":  [[number]],                    distinct lists: of axes, and of strings
 "costs":   [number or null],              distinct costs, null where it is infinite
 "classes": {"region", "number", "size", "best", "axes", "dtype", "made", "cost",
             "length"},
 "nodes":   {"head", "arity", "children", "cost", "rules"},
 "source":  [node], "chosen": [[node, group of kernels]], "roots": [[class, name]],
 "links":   [[node, class]],               loads of what a region stores, and its class
 "laws":    [[rule, text]],
 "forms":   ["atom", "call", "prefix", "infix"], "lengths": [..], "regions": number}
```

Classes and nodes are the rows of `exports.table`: `size` and `arity` say how many nodes and
arguments come next, so that an index is a sum. `best` is a place within the class, -1 for none;
`length` is that of the cheapest term's whole text.
`rules` of a node is the group of the rules that put it there (see reasons.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from nautile.inspector.exports.heads import Head
from nautile.inspector.exports.table import Source, Table, table
from nautile.inspector.exports.texts import LENGTHS
from nautile.inspector.page.explorer.forms import laws_of
from nautile.inspector.page.explorer.reasons import Reasons
from nautile.rules.law import Rule

__all__ = ["explorer_data"]

FORMS = ("atom", "call", "prefix", "infix")
T = TypeVar("T", bound=Hashable)


class _Numbers(Generic[T]):
    """Distinct values, numbered as they come."""

    def __init__(self) -> None:
        self.known: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        return self.known.setdefault(value, len(self.known))


def explorer_data(source: Source) -> dict[str, Any]:
    """The columns of a saturated result, a snapshot or several; plain JSON. Raises InputError, code
    "not-saturated", where there is no e-graph."""
    return _Writer(table(source), _laws(source)).data()


class _Writer:
    """The columns of one table."""

    def __init__(self, rows: Table, laws: Mapping[str, Rule]) -> None:
        self.rows, self.laws = rows, laws
        self.strings: _Numbers[str] = _Numbers()
        self.groups: _Numbers[tuple[int, ...]] = _Numbers()
        self.heads: _Numbers[tuple[Head, str]] = _Numbers()
        self.axes: _Numbers[tuple[str, int]] = _Numbers()
        self.costs: _Numbers[float | None] = _Numbers()

    def data(self) -> dict[str, Any]:
        rows = self.rows
        found = {
            "classes": self._classes(),
            "nodes": self._nodes(),
            "source": [n for n, row in enumerate(rows.nodes) if row.source],
            "chosen": [[n, self._texts(r.kernels)] for n, r in enumerate(rows.nodes) if r.kernels],
            "roots": [[c, self.strings(" ".join(rows.classes[c].outputs))] for c in rows.roots],
            "links": self._links(),
            "laws": self._told(),
            "forms": FORMS,
            "lengths": LENGTHS,
            "regions": len(rows.axes),
        }
        return {**found, **self._tables()}

    def _tables(self) -> dict[str, Any]:
        """What the columns' numbers mean."""
        heads = list(self.heads.known)
        columns = {
            "text": [self.strings(h.text) for h, _ in heads],
            "name": [self.strings(name) for _, name in heads],
            "form": [FORMS.index(h.form) for h, _ in heads],
            "own": [h.own for h, _ in heads],
            "left": [h.left for h, _ in heads],
            "right": [h.right for h, _ in heads],
        }
        axes = {
            "name": [self.strings(name) for name, _ in self.axes.known],
            "extent": [extent for _, extent in self.axes.known],
        }
        groups, costs = list(self.groups.known), list(self.costs.known)
        strings = list(self.strings.known)
        return {
            "heads": columns,
            "axes": axes,
            "groups": groups,
            "costs": costs,
            "strings": strings,
        }

    def _texts(self, texts: Iterable[str]) -> int:
        return self.groups(tuple(self.strings(t) for t in texts))

    def _cost(self, cost: float) -> int:
        return self.costs(cost if math.isfinite(cost) else None)

    def _classes(self) -> dict[str, Sequence[int]]:
        rows = self.rows.classes
        return {
            "region": [c.region for c in rows],
            "number": [c.number for c in rows],
            "size": [len(c.nodes) for c in rows],
            "best": [c.best - c.nodes.start if c.best >= 0 else -1 for c in rows],
            "axes": [self.groups(tuple(self.axes((a.name, a.extent)) for a in c.axes))
                     for c in rows],
            "dtype": [self.strings(c.dtype) for c in rows],
            "made": [self._texts(c.made) for c in rows],
            "cost": [self._cost(c.cost) for c in rows],
            "length": [c.length for c in rows],
        }  # fmt: skip

    def _nodes(self) -> dict[str, Sequence[int]]:
        rows, reasons = self.rows.nodes, Reasons(self.rows, self.laws)
        return {
            "head": [self.heads((n.head, n.name)) for n in rows],
            "arity": [len(n.children) for n in rows],
            "children": [c for n in rows for c in n.children],
            "cost": [self._cost(n.cost) for n in rows],
            "rules": [self._texts(reasons.of(n)) for n in range(len(rows))],
        }

    def _told(self) -> list[list[int]]:
        """The laws of the rules that made something."""
        made = sorted({r for row in self.rows.classes for r in row.made if r in self.laws})
        return [[self.strings(r), self.strings(self.laws[r].text)] for r in made]

    def _links(self) -> list[list[int]]:
        """Loads of what another region stores."""
        home = {o: c for c in self.rows.roots for o in self.rows.classes[c].outputs}
        loads = ((n, row) for n, row in enumerate(self.rows.nodes) if row.node.kind == "load")
        found = ((n, home.get(row.node.payload.buffer.name)) for n, row in loads)
        return [[n, c] for n, c in found if c is not None]


def _laws(source: Source) -> Mapping[str, Rule]:
    """The rules of a result, by name; none of a snapshot alone."""
    options = getattr(source, "options", None)
    return {} if options is None else laws_of(options)
