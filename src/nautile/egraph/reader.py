"""A frozen egglog e-graph as plain numbers: classes in order of appearance, rows, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .schema import CONSTRUCTORS, LEAVES, TABLES

__all__ = ["Reader"]


class Reader:
    """A frozen egglog e-graph as numbers."""

    def __init__(self, egraph: Any) -> None:
        self.egraph, self.functions = egraph, egraph.freeze().functions
        self.ids: dict[Any, int] = {}

    def id(self, value: Any) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def inputs(self) -> list[int]:
        """The classes of `(N 0)`, `(N 1)`, .., which get the first numbers."""
        number = self.egraph.value_to_i64
        rows = sorted((number(r.inputs[0]), i) for i, r in enumerate(self.functions["N"].rows))
        return [self.id(self.functions["N"].rows[i].output) for _, i in rows]

    def rows(self, known: Mapping[int, int]) -> list[tuple[str, list[Any], int]]:
        """All e-nodes of `known` classes over known ones. A class is unknown to the analyses where
        all its members contain it: normal laws have dropped what it was made of."""
        decode = self._decoders()
        found = []
        for name in CONSTRUCTORS:
            sorts = (LEAVES[name],) if name in LEAVES else CONSTRUCTORS[name]
            readers = [decode[sort] for sort in sorts]
            for row in self.functions[name].rows:
                arguments = [f(v) for f, v in zip(readers, row.inputs, strict=True)]
                inner = [a for a, sort in zip(arguments, sorts, strict=True) if sort == "T"]
                where = self.id(row.output)
                if where in known and all(c in known for c in inner):
                    found.append((name, arguments, where))
        return found

    def table(self, name: str) -> dict[int, int]:
        number = self.egraph.value_to_i64
        return {self.id(r.inputs[0]): number(r.output) for r in self.functions[name].rows}

    def types(self) -> dict[int, int]:
        """Codes of the carried types: the narrowest that each class is known to have."""
        found = self.table("traits").items()
        return {c: (bits & -bits).bit_length() - 1 for c, bits in found}

    def made(self) -> list[tuple[int, int]]:
        number = self.egraph.value_to_i64
        rows = self.functions["made"].rows
        return [(self.id(r.inputs[0]), number(r.inputs[1])) for r in rows]

    def tables(self) -> dict[str, list[list[Any]]]:
        """What analyses and facts know (`schema.TABLES`): arguments, then the result."""
        decode = self._decoders()
        found: dict[str, list[list[Any]]] = {}
        for name, sorts in TABLES.items():
            readers = [decode[sort] for sort in sorts]
            rows = self.functions[name].rows
            found[name] = [
                [f(v) for f, v in zip(readers, [*row.inputs, row.output], strict=True)]
                for row in rows
            ]
        return found

    def _decoders(self) -> dict[str, Callable[[Any], Any]]:
        return {"f64": self.egraph.value_to_f64, "i64": self.egraph.value_to_i64, "T": self.id}
