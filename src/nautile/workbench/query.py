"""Queries of egglog rules, evaluated over the tables of a frozen e-graph.

```
Query  ::= Clause+
Clause ::= kind, atoms          kind: pattern traits premise condition
Atom   ::= (= E E) | (!= E E) | (> E E) | (>= E E) | (< E E) | (<= E E)
E      ::= variable | number | (table E ..) | (primitive E ..)
```

A rule's own egglog text is what is read here, so that what is tried is what the engine tries. A
clause holds the atoms that belong to one condition of the law: those that look up a value and those
that test it. Tables are constructors, analyses and relations of facts.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nautile.egraph.engine import Frozen
from nautile.egraph.schema import CONSTRUCTORS, TABLES

__all__ = [
    "ANALYSES",
    "RELATIONS",
    "Clause",
    "Database",
    "Goal",
    "Tree",
    "clauses",
    "parsed",
    "variables",
    "written",
]

Tree = str | list[Any]
Binding = Mapping[str, Any]
ANALYSES = ("fv", "rd", "ra", "loose", "up", "traits", "ext")
RELATIONS = ("shift", "scale", "power", "bend", "drop")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_COMPUTE: dict[str, Callable[..., Any]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "%": operator.mod, "min": min, "max": max, "abs": abs,
    "neg": operator.neg, "to-f64": float,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goal:
    """One step of a query: a row of `table` whose columns are these expressions (the class last),
    or, without a table, a comparison of two."""

    table: str | None
    columns: tuple[Tree, ...]
    compare: str = "="


@dataclass(frozen=True, slots=True)
class Clause:
    """The goals of one condition, the names and axes that it speaks of, and its text."""

    kind: str
    goals: tuple[Goal, ...]
    text: str

    @property
    def names(self) -> frozenset[str]:
        """Names of terms and axes, as the law spells them."""
        found = frozenset(v for g in self.goals for c in g.columns for v in variables(c))
        return frozenset(v[2:] for v in found if v[:2] in ("v_", "x_"))


def clauses(rule: str) -> tuple[Clause, ...]:
    """The clauses of an egglog rule's query, the pattern first."""
    atoms = parsed(rule)[1]
    groups: list[list[Tree]] = []
    for atom in atoms:
        home = [group for group in groups[1:] if _local(atom) & _local(*group)]
        groups = [group for group in groups if group not in home]
        groups.append([*(a for group in home for a in group), atom])
    return tuple(_clause(group, first=i == 0) for i, group in enumerate(groups))


def _local(*atoms: Tree) -> set[str]:
    """The variables that belong to one condition."""
    return {v for atom in atoms for v in variables(atom) if not _shared(v)}


def _shared(variable: str) -> bool:
    """Whether a variable is the law's, and not one of a condition's own."""
    return variable == "e" or variable[:2] in ("v_", "x_") or bool(re.match(r"n_[a-z]", variable))


def _clause(atoms: list[Tree], first: bool) -> Clause:
    goals: list[Goal] = []
    for atom in atoms:
        goals += _goals(atom, len(goals))
    tables = {g.table for g in goals}
    kind = "condition"
    if first:
        kind = "pattern"
    elif tables & set(RELATIONS):
        kind = "premise"
    elif "traits" in tables:
        kind = "traits"
    return Clause(kind, tuple(goals), " ".join(map(written, atoms)))


def _goals(atom: Tree, number: int) -> list[Goal]:
    """An atom as steps: the outermost lookup first, so that a class is known before its members."""
    assert isinstance(atom, list)
    compare, left, right = atom
    found: list[Goal] = []
    names = iter(f"t{number}_{i}" for i in range(1000))
    if compare == "=" and isinstance(right, list) and is_table(right[0]):
        _lookup(right, _flat(left, found, names), found, names)
        return found
    sides = _flat(left, found, names), _flat(right, found, names)
    return [*found, Goal(None, sides, str(compare))]


def _lookup(call: list[Any], result: Tree, found: list[Goal], names: Iterator[str]) -> None:
    inner: list[Goal] = []
    columns = [_flat(argument, inner, names) for argument in call[1:]]
    found.append(Goal(call[0], (*columns, result)))
    found.extend(inner)


def _flat(tree: Tree, found: list[Goal], names: Iterator[str]) -> Tree:
    """The expression with its lookups taken out."""
    if isinstance(tree, str):
        return tree
    if not is_table(tree[0]):
        return [tree[0], *(_flat(t, found, names) for t in tree[1:])]
    name = next(names)
    _lookup(tree, name, found, names)
    return name


def is_table(name: Any) -> bool:
    """Whether a function of a query is looked up, and not computed."""
    return name in CONSTRUCTORS or name in TABLES


def variables(tree: Tree) -> set[str]:
    """The variables of an expression."""
    if isinstance(tree, list):
        return {v for t in tree[1:] for v in variables(t)}
    return set() if _number(tree) is not None else {tree}


def _number(token: str) -> int | float | None:
    try:
        return int(token)
    except ValueError:
        pass
    try:
        return float(token)
    except ValueError:
        return None


def parsed(text: str) -> list[Any]:
    """The first S-expression of a text, as nested lists of tokens."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r'"[^"]*"|[()]|[^\s()]+', text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    tree: list[Any] = stack[0][0]
    return tree


def written(tree: Tree) -> str:
    """The S-expression as text."""
    return tree if isinstance(tree, str) else f"({' '.join(map(written, tree))})"


class Database:
    """The tables of a frozen e-graph (made with `tables`), indexed by what is known of a row."""

    def __init__(self, frozen: Frozen) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in CONSTRUCTORS}
        for name, arguments, where in frozen.rows:
            self.rows[name].append((*arguments, where))
        self.rows |= {name: [tuple(r) for r in rows] for name, rows in frozen.tables.items()}
        self.indexed: dict[tuple[str, tuple[int, ...]], dict[Any, list[tuple[Any, ...]]]] = {}

    def solve(self, goal: Goal, known: Binding) -> Iterator[dict[str, Any]]:
        """The bindings that extend `known` and meet the goal."""
        if goal.table is None:
            left, right = (_value(c, known) for c in goal.columns)
            if None not in (left, right) and _COMPARE[goal.compare](left, right):
                yield dict(known)
            return
        values = [_value(c, known) for c in goal.columns]
        places = tuple(i for i, v in enumerate(values) if v is not None)
        key = tuple(values[i] for i in places)
        for row in self._index(goal.table, places).get(key, ()):
            found = _extended(goal.columns, row, known)
            if found is not None:
                yield found

    def _index(
        self, table: str, places: tuple[int, ...]
    ) -> Mapping[Any, Sequence[tuple[Any, ...]]]:
        if (table, places) not in self.indexed:
            index: dict[Any, list[tuple[Any, ...]]] = {}
            for row in self.rows[table]:
                index.setdefault(tuple(row[i] for i in places), []).append(row)
            self.indexed[table, places] = index
        return self.indexed[table, places]


def _extended(columns: Sequence[Tree], row: Sequence[Any], known: Binding) -> dict[str, Any] | None:
    """The binding that makes the columns this row, if there is one."""
    found = dict(known)
    for column, value in zip(columns, row, strict=True):
        if isinstance(column, str) and _number(column) is None:
            if found.setdefault(column, value) != value:
                return None
        elif _value(column, found) != value:
            return None
    return found


def _value(tree: Tree, known: Binding) -> Any:
    """The value of an expression, None while a variable is unknown."""
    if isinstance(tree, str):
        number = _number(tree)
        return known.get(tree) if number is None else number
    values = [_value(t, known) for t in tree[1:]]
    if None in values:
        return None
    try:
        return _wrapped(_COMPUTE[tree[0]](*values))
    except ZeroDivisionError:
        return math.nan


def _wrapped(value: Any) -> Any:
    """Integers of 64 bits, as the engine has them."""
    if isinstance(value, int):
        return (value + 2**63) % 2**64 - 2**63
    return value
