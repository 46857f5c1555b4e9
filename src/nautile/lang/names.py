"""The words of the language: operators, reducers, functions and what a name may look like."""

from __future__ import annotations

import ast

from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS

__all__ = [
    "BUILTIN",
    "COMPARISONS",
    "FUNCTIONS",
    "INFIX",
    "INSTEAD",
    "REDUCERS",
    "RESERVED",
    "is_size",
]

REDUCERS = frozenset((*MONOIDS, "mean"))
FUNCTIONS = frozenset(name for name, o in OPERATIONS.items() if not o.infix)
BUILTIN = REDUCERS | FUNCTIONS
RESERVED = frozenset(("inf", "nan"))

INFIX: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}

COMPARISONS: dict[type[ast.AST], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}

INSTEAD: dict[type[ast.AST], str] = {
    ast.MatMult: "there is no @: write the contraction out, as in `sum[k](a[i,k] * b[k,j])`",
    ast.BitAnd: "there is no &: write `and` between truth values",
    ast.BitOr: "there is no |: write `or` between truth values",
    ast.BitXor: "there is no ^: write `**` for a power, `!=` between truth values",
    ast.LShift: "there is no <<: multiply by a power of two",
    ast.RShift: "there is no >>: write `//` by a power of two",
    ast.Invert: "there is no ~: write `not`",
    ast.In: "there is no `in`: write comparisons",
    ast.NotIn: "there is no `not in`: write comparisons",
    ast.Is: "there is no `is`: write `==`",
    ast.IsNot: "there is no `is not`: write `!=`",
    ast.Lambda: "there is no lambda: write a second program and call it",
    ast.ListComp: "there is no comprehension: write indices, as in `y[i] = ...`",
    ast.GeneratorExp: "there is no comprehension: write `sum[i](...)`",
    ast.Attribute: "there are no modules or attributes: write `exp(x)`, not `np.exp(x)`",
    ast.JoinedStr: "there are no strings",
    ast.List: "there are no lists",
    ast.Dict: "there are no dictionaries",
    ast.Tuple: "several values stand only in `return a, b`",
    ast.Starred: "there is no unpacking",
    ast.NamedExpr: "there is no :=; give the value a line of its own",
    ast.For: "there are no loops: write indices, as in `y[i] = ...` and `sum[j](...)`",
    ast.While: "there are no loops: write indices, as in `y[i] = ...` and `sum[j](...)`",
    ast.If: "there are no statements with branches: write `where(condition, a, b)`",
    ast.AugAssign: "a name is assigned once: give the new value a name of its own",
    ast.AnnAssign: "a definition has no type: write `x[i] = bf16(...)` to round it",
    ast.Import: "a file holds programs (`def`) only; nothing can be imported",
    ast.ImportFrom: "a file holds programs (`def`) only; nothing can be imported",
    ast.ClassDef: "a file holds programs (`def`) only",
    ast.AsyncFunctionDef: "write `def`, without async",
    ast.FunctionDef: "programs do not nest: put this `def` beside the other",
}


def is_size(name: str) -> bool:
    """True for a name whose first letter is a capital."""
    return name.lstrip("_")[:1].isupper()
