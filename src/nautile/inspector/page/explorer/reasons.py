"""Which rules put a node where it is, as far as an e-graph tells.

An e-graph notes in which class a rule's result landed, not in which node of it. So each rule of the
class is matched again: its result with the node, then its other side, under the same names, with
the class. What a law says of positions of a stream is not matched, but taken for met. Where no rule
matches in both ways (its other side may be gone, or the steps are spent), those stay whose result
has the node's form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nautile.inspector.exports.table import Table
from nautile.rules.law import Call, Fold, Name, Number, Pattern, Position, Round, Rule, Size
from nautile.snapshot import Node
from nautile.terms import Axis

from .forms import fits, results_of

__all__ = ["Reasons"]

STEPS = 300_000
Known = Mapping[str, int | Axis]


class _Spent(Exception):
    """No steps are left."""


@dataclass(slots=True)
class Reasons:
    """The rules of a table's nodes; `laws` are those that are known, by name. No more than `steps`
    nodes are looked at in all."""

    rows: Table
    laws: Mapping[str, Rule]
    steps: int = STEPS

    def of(self, number: int) -> tuple[str, ...]:
        """The rules of one node, in the order of its class'; unknown ones are always among them."""
        row = self.rows.nodes[number]
        made = self.rows.classes[row.owner].made
        formed = [r for r in made if r not in self.laws or self._fits(r, row.node)]
        try:
            sure = [r for r in formed if r in self.laws and self._made(self.laws[r], number)]
        except _Spent:
            sure = []
        return tuple(r for r in formed if not sure or r in sure or r not in self.laws)

    def _fits(self, rule: str, node: Node) -> bool:
        return any(fits(node, result) for result in results_of(self.laws[rule]))

    def _made(self, rule: Rule, number: int) -> bool:
        """Whether the rule's result is the node, and its other side is in the node's class."""
        owner = self.rows.nodes[number].owner
        for result, other in _sides(rule):
            for known in self._node(result, number, {}):
                if other is None or any(True for _ in self._class(other, owner, known)):
                    return True
        return False

    def _class(self, pattern: Pattern, c: int, known: Known) -> Iterator[Known]:
        """The ways to read a class as the pattern."""
        match pattern:
            case Name(name):
                if known.get(name, c) == c:
                    yield {**known, name: c}
            case _:
                for number in self.rows.classes[c].nodes:
                    yield from self._node(pattern, number, known)

    def _node(self, pattern: Pattern, number: int, known: Known) -> Iterator[Known]:
        if self.steps <= 0:
            raise _Spent
        self.steps -= 1
        row = self.rows.nodes[number]
        if not fits(row.node, pattern):
            return
        match pattern:
            case Name(name):
                yield {**known, name: row.owner}
            case Call(_, arguments) if row.node.kind == "apply":
                yield from self._arguments(arguments, row.children, known)
            case Round(dtype, inner) if dtype == row.node.payload:
                yield from self._class(inner, row.children[0], known)
            case Fold(_, name, body):
                axis = row.node.payload[1]
                if known.get(name, axis) == axis:
                    yield from self._class(body, row.children[0], {**known, name: axis})
            case Position(name):
                if known.get(name, row.node.payload) == row.node.payload:
                    yield {**known, name: row.node.payload}
            case Number(value):
                if row.node.payload == value:
                    yield known
            case Size(name):
                axis = known.get(name)
                if not isinstance(axis, Axis) or row.node.payload == axis.extent:
                    yield known
            case Round():
                return
            case _:
                yield known

    def _arguments(
        self, patterns: Sequence[Pattern], children: Sequence[int], known: Known
    ) -> Iterator[Known]:
        if not patterns:
            yield known
            return
        for found in self._class(patterns[0], children[0], known):
            yield from self._arguments(patterns[1:], children[1:], found)


def _sides(rule: Rule) -> Iterator[tuple[Pattern, Pattern | None]]:
    """Results of a rule, each with what it was made from, where that stays."""
    if rule.conclusion is not None:
        yield rule.conclusion.running, None
        return
    assert rule.left is not None
    assert rule.right is not None
    yield rule.right, None if rule.is_normal else rule.left
    if rule.two_way:
        yield rule.left, rule.right
