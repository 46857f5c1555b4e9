"""A rule's own egglog query, evaluated over tables of rows.

```
Form  ::= name, law, pattern, goals, actions       one printed direction of a law
Goal  ::= a row of a table whose columns are these expressions (the result last)
        | a comparison, or a value that becomes known
```

The text that the engine runs is what is read here. Goals are put in an order in which as much as
possible is known of each when it is looked up.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nautile.egraph.schema import schema
from nautile.rules.egglog import TRAITS, print_rule
from nautile.rules.law import Rule
from nautile.workbench.query import Tree, is_table, parsed, variables

__all__ = ["FOLD", "Form", "Tables", "folds", "forms", "value_of"]

FOLD = "fold"
Row = tuple[Any, ...]
Known = dict[str, Any]
_LEARNT = TRAITS["number"] | TRAITS["idle"] | TRAITS["nonpos"]
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le,
}  # fmt: skip


def _quotient(a: Any, b: Any) -> Any:
    """Integers round towards zero, as the engine's do."""
    return math.trunc(a / b) if isinstance(a, int) and isinstance(b, int) else a / b


def _remainder(a: Any, b: Any) -> Any:
    found = math.fmod(a, b)
    return int(found) if isinstance(a, int) and isinstance(b, int) else found


def _power(a: Any, b: Any) -> Any:
    return a ^ b if isinstance(a, int) and isinstance(b, int) else a**b


_COMPUTE: Mapping[str, Callable[..., Any]] = {
    "&": operator.and_, "|": operator.or_, "^": _power, "<<": operator.lshift,
    ">>": operator.rshift, "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": _quotient, "%": _remainder, "min": min, "max": max, "abs": abs,
    "neg": operator.neg, "to-f64": float, "to-i64": int,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goal:
    """One step of a query; without a table it compares two expressions."""

    table: str | None
    columns: tuple[Tree, ...]
    compare: str = "="


@dataclass(frozen=True, slots=True)
class Form:
    """One direction of a law, ready to be matched. `law` is its number, -1 for constant folding;
    `direction` counts the law's forms. `definitions` are names that the query says to be terms,
    `premises` the relations that it asks for (result, then the relation)."""

    law: int
    direction: int
    fact: bool
    pattern: Tree
    goals: tuple[Goal, ...]
    definitions: tuple[tuple[str, Tree], ...]
    premises: tuple[tuple[Tree, Tree], ...]
    new: Tree
    union: Tree
    phase: str = "directed"


RELATIONS = ("shift", "scale", "power", "bend", "drop")


def forms(rules: Sequence[Rule], numbers: Iterable[int]) -> tuple[Form, ...]:
    """The forms of the laws of these numbers."""
    return tuple(f for i in sorted(numbers) for f in _forms(rules[i], i))


@lru_cache(maxsize=4096)
def _forms(rule: Rule, number: int) -> tuple[Form, ...]:
    found = []
    for direction, printed in enumerate(print_rule(rule, number)):
        phase = "two_way" if printed.two_way else "directed"
        phase = "facts" if printed.fact else "normal" if printed.normal else phase
        found.append(_form(printed.text, number, direction, printed.fact, phase))
    return tuple(found)


@lru_cache(maxsize=2)
def folds(real: bool) -> tuple[Form, ...]:
    """Arithmetic on constants, as the schema has it."""
    wanted = (":ruleset fold)", ":ruleset fold_real)") if real else (":ruleset fold)",)
    lines = [t for t in schema().splitlines() if t.endswith(wanted) and t.startswith("(rule")]
    return tuple(_form(text, -1, i, False, "normal") for i, text in enumerate(lines))


def _form(text: str, law: int, direction: int, fact: bool, phase: str) -> Form:
    _, asked, actions, *_ = parsed(text)
    query = [_in_hindsight(atom) for atom in asked]
    new = next((a[2] for a in actions if a[0] == "let"), None)
    union = next(a for a in actions if a[0] == "union")
    lookups = [a for a in query[1:] if a[0] == "=" and isinstance(a[2], list)]
    named = [a for a in lookups if isinstance(a[1], str) and a[1].startswith("v_")]
    return Form(
        law, direction, fact, query[0][2], _ordered(_goals(query)),
        tuple((a[1], a[2]) for a in named if is_table(a[2][0]) and a[2][0] not in RELATIONS),
        tuple((a[1], a[2]) for a in lookups if a[2][0] in RELATIONS),
        union[2] if new is None else new, union[1], phase,
    )  # fmt: skip


def _in_hindsight(atom: list[Any]) -> list[Any]:
    """A condition as it can be asked of the final tables: what analyses learn is never taken back,
    so that something was not known when a law fired no longer shows. Whether a step needs it is
    seen when the step is checked alone."""
    compare, left, right = atom
    if compare != "=" or not isinstance(right, list) or right[0] != "&":
        return atom
    bits = right[2] if isinstance(right[2], str) else ""
    if bits.startswith("loose"):
        return ["=", "0", "0"]
    if bits.startswith("traits_"):
        return ["=", left, ["&", str(int(right[1]) & ~(_LEARNT & ~int(left))), bits]]
    return atom


def _goals(query: Sequence[list[Any]]) -> list[Goal]:
    found: list[Goal] = []
    fresh = (f"t{i}" for i in range(10_000))

    def flat(tree: Tree) -> Tree:
        """The expression with a name for each lookup inside."""
        if isinstance(tree, str):
            return tree
        if not is_table(tree[0]):
            return [tree[0], *map(flat, tree[1:])]
        name = next(fresh)
        look(tree, name)
        return name

    def look(call: Tree, result: Tree) -> None:
        found.append(Goal(call[0], (*map(flat, call[1:]), result)))

    for atom in query:
        compare, left, right = atom
        if compare == "=" and isinstance(right, list) and is_table(right[0]):
            look(right, flat(left))
        else:
            found.append(Goal(None, (flat(left), flat(right)), str(compare)))
    return found


def _ordered(goals: list[Goal]) -> tuple[Goal, ...]:
    """Tests as soon as they can be made; of lookups the one of which most is known."""
    left, known, order = list(goals), set[str](), list[Goal]()
    left.sort(key=lambda g: g.columns[-1] != "e")  # the outermost operation of the pattern first
    while left:
        best = max(left, key=lambda g: _readiness(g, known, first=not order))
        left.remove(best)
        order.append(best)
        known |= {v for c in best.columns for v in variables(c)}
    return tuple(order)


def _readiness(goal: Goal, known: set[str], *, first: bool) -> float:
    ready = [variables(c) <= known for c in goal.columns]
    if goal.table is None:
        lone = goal.compare == "=" and any(ready) and _bindable(goal, ready)
        return 100.0 if all(ready) else 90.0 if lone else -100.0
    if first:
        return 50.0 if goal.columns[-1] == "e" else 0.0
    inner = all(isinstance(c, str) or r for c, r in zip(goal.columns, ready, strict=True))
    return (10.0 * ready[-1] + sum(ready)) / len(ready) if inner else -50.0


def _bindable(goal: Goal, ready: Sequence[bool]) -> bool:
    """Whether the side that is not known is a name, which the other side gives a value."""
    unknown = goal.columns[1] if ready[0] else goal.columns[0]
    return isinstance(unknown, str)


class Tables:
    """Rows by table, indexed by what is known of them."""

    def __init__(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self.rows = rows
        self.indexed: dict[tuple[str, tuple[int, ...]], dict[Row, list[Row]]] = {}

    def matches(self, form: Form) -> Iterator[Known]:
        """All ways to meet the goals of a form."""
        yield from self._all(form.goals, 0, {})

    def _all(self, goals: Sequence[Goal], done: int, known: Known) -> Iterator[Known]:
        if done == len(goals):
            yield known
            return
        for found in self._solve(goals[done], known):
            yield from self._all(goals, done + 1, found)

    def _solve(self, goal: Goal, known: Known) -> Iterator[Known]:
        values = [value_of(c, known) for c in goal.columns]
        if goal.table is None:
            yield from _compared(goal, values, known)
            return
        places = tuple(i for i, v in enumerate(values) if v is not None)
        key = tuple(values[i] for i in places)
        for row in self._index(goal.table, places).get(key, ()):
            found = _extended(goal.columns, values, row, known)
            if found is not None:
                yield found

    def _index(self, table: str, places: tuple[int, ...]) -> dict[Row, list[Row]]:
        at = (table, places)
        if at not in self.indexed:
            index: dict[Row, list[Row]] = {}
            for row in self.rows.get(table, ()):
                index.setdefault(tuple(row[i] for i in places), []).append(row)
            self.indexed[at] = index
        return self.indexed[at]


def _compared(goal: Goal, values: list[Any], known: Known) -> Iterator[Known]:
    left, right = values
    if left is not None and right is not None:
        if _COMPARE[goal.compare](left, right):
            yield known
        return
    name, value = (goal.columns[0], right) if left is None else (goal.columns[1], left)
    if goal.compare == "=" and value is not None and isinstance(name, str):
        yield {**known, name: value}


def _extended(
    columns: Sequence[Tree], values: Sequence[Any], row: Row, known: Known
) -> Known | None:
    found = dict(known)
    for column, value, cell in zip(columns, values, row, strict=True):
        if value is None:
            if not isinstance(column, str):
                return None
            if found.setdefault(column, cell) != cell:
                return None
    return found


def value_of(tree: Tree, known: Mapping[str, Any]) -> Any:
    """The value of an expression of numbers; None while something in it is unknown or undefined."""
    if isinstance(tree, str):
        number = _number(tree)
        return known.get(tree) if number is None else number
    values = [value_of(t, known) for t in tree[1:]]
    if None in values:
        return None
    try:
        found = _COMPUTE[tree[0]](*values)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return None
    if isinstance(found, complex):
        return None
    return (found + 2**63) % 2**64 - 2**63 if type(found) is int else found


@lru_cache(maxsize=4096)
def _number(token: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return None
