"""The scalar operations of the term language: arity, spelling and the kind of their result.

Every stage (printer, oracle, rules, cost, emitters) keys its own table by these names, and a test
asserts that no stage lacks an entry.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OPERATIONS", "Operation"]


@dataclass(frozen=True, slots=True)
class Operation:
    """`result` is "bool", "float" (always a float), "same" (that of its widest argument).
    `infix` is the operator's spelling in the language, or "" for a call by name."""

    name: str
    arity: int
    result: str
    infix: str = ""
    precedence: int = 100


def _table() -> dict[str, Operation]:
    infix = [
        ("or", 2, "bool", "or", 1),
        ("and", 2, "bool", "and", 2),
        ("not", 1, "bool", "not", 3),
        ("lt", 2, "bool", "<", 4),
        ("le", 2, "bool", "<=", 4),
        ("gt", 2, "bool", ">", 4),
        ("ge", 2, "bool", ">=", 4),
        ("eq", 2, "bool", "==", 4),
        ("ne", 2, "bool", "!=", 4),
        ("add", 2, "same", "+", 5),
        ("sub", 2, "same", "-", 5),
        ("mul", 2, "same", "*", 6),
        ("div", 2, "float", "/", 6),
        ("floordiv", 2, "same", "//", 6),
        ("mod", 2, "same", "%", 6),
        ("neg", 1, "same", "-", 7),
        ("pow", 2, "float", "**", 8),
    ]
    same = [("abs", 1), ("sign", 1), ("max", 2), ("min", 2)]
    unary_floats = [
        "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos",
        "floor", "round",
    ]  # fmt: skip
    rows = [Operation(*row) for row in infix]
    rows += [Operation(name, arity, "same") for name, arity in same]
    rows += [Operation(name, 1, "float") for name in unary_floats]
    rows.append(Operation("where", 3, "same"))
    return {row.name: row for row in rows}


OPERATIONS: dict[str, Operation] = _table()
