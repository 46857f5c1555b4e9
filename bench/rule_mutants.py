"""Mutants of laws: each built-in law with one thing changed.

```
Mutant ::= law, kind, site, text
kind   ::= condition   a side condition (or premise) is left out
         | sign        a sign is flipped: of a number, a negation, a condition a > 0
         | operator    an operator, function, reducer, relation or type becomes another
```

Mutation is of the law's text, by its syntax tree, so that it knows nothing of what rules are made
of. What is no longer a law (a name that nothing binds) is told apart by the parser.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nautile.rules.law import Rule

__all__ = ["Mutant", "mutants"]

_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}
_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_CALLED = {
    "exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log", "sqrt": "rsqrt", "rsqrt": "sqrt",
    "max": "min", "min": "max", "sum": "max", "prod": "sum", "mean": "sum", "any": "all",
    "all": "any", "argmax": "argmin", "argmin": "argmax", "abs": "sqrt", "sigmoid": "tanh",
    "tanh": "sigmoid", "erf": "tanh", "sin": "cos", "cos": "sin", "floor": "round",
    "round": "floor", "sign": "abs", "running": "before", "before": "running", "shift": "scale",
    "scale": "shift", "power": "scale", "drop": "shift", "bf16": "f16", "f16": "bf16",
    "f32": "bf16", "f64": "f32", "tf32": "bf16", "i32": "i8", "i64": "i32",
}  # fmt: skip
_Change = tuple[str, str, Callable[[ast.AST], None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A law with one change; `site` tells what was changed into what."""

    law: str
    pack: str
    numerics: str
    kind: str
    site: str
    text: str

    @property
    def key(self) -> str:
        """What a stored result is known by."""
        return f"{self.law}|{self.numerics}|{self.text}"


def mutants(rule: Rule) -> Iterator[Mutant]:
    """All mutants of a law, each text once, the law itself never."""
    tree = ast.parse(rule.text, mode="eval").body
    seen = {ast.unparse(tree)}
    for kind, site, text in (*_without(tree), *_changed(tree)):
        if text not in seen:
            seen.add(text)
            yield Mutant(rule.name, rule.pack, rule.numerics, kind, site, text)


def _without(tree: ast.expr) -> Iterator[tuple[str, str, str]]:
    """The law with one of its conditions left out."""
    if not isinstance(tree, ast.Tuple):
        return
    for i, gone in enumerate(tree.elts[1:], 1):
        rest = [*tree.elts[:i], *tree.elts[i + 1 :]]
        left: ast.expr = ast.Tuple(rest, ast.Load()) if len(rest) > 1 else rest[0]
        yield "condition", f"without {ast.unparse(gone)}", _text(left)


def _changed(tree: ast.expr) -> Iterator[tuple[str, str, str]]:
    """The law with one node of its tree changed."""
    head = tree.elts[0] if isinstance(tree, ast.Tuple) else tree
    nodes = list(ast.walk(tree))
    for number, node in enumerate(nodes):
        if node is head and isinstance(node, (ast.Compare, ast.BinOp)):
            continue  # the arrow
        for kind, site, change in _changes(node):
            whole = copy.deepcopy(tree)
            change(list(ast.walk(whole))[number])
            yield kind, site, _text(whole)


def _changes(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.BinOp(op=op) if type(op) in _BINARY:
            new = _BINARY[type(op)]
            yield "operator", f"{_name(type(op))} to {_name(new)}", _setter("op", new())
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "operator", f"{_name(type(op))} to {_name(type(other))}", _setter("op", other)
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARE:
            turned = _COMPARE[type(op)]
            kind = "sign" if _is_number(right) else "operator"
            yield kind, f"{_name(type(op))} to {_name(turned)}", _setter("ops", [turned()])
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            kind = "sign" if isinstance(node.op, ast.USub) else "operator"
            yield kind, f"without the sign of {ast.unparse(operand)}", _unsigned
        case ast.Constant(value=bool(value)):
            yield "operator", f"{value} to {not value}", _setter("value", not value)
        case ast.Constant(value=int() | float() as value) if value:
            yield "sign", f"{value} to {-value}", _setter("value", -value)
        case (
            ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Subscript(value=ast.Name(id=name)))
        ):
            if name in _CALLED:
                yield "operator", f"{name} to {_CALLED[name]}", _renamer(_CALLED[name])


def _name(kind: type[ast.AST]) -> str:
    return kind.__name__.lower()


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _setter(attribute: str, value: object) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node, attribute, value)


def _renamer(name: str) -> Callable[[ast.AST], None]:
    def rename(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        func = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        assert isinstance(func, ast.Name)
        func.id = name

    return rename


def _unsigned(node: ast.AST) -> None:
    """Drop a sign: what is left is written as a sum with nothing, which `_text` takes out."""
    assert isinstance(node, ast.UnaryOp)
    node.op = ast.UAdd()


class _Plain(ast.NodeTransformer):
    """Takes out the signs that mutation left without meaning."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.UAdd) else node


def _text(tree: ast.expr) -> str:
    return " ".join(ast.unparse(_Plain().visit(copy.deepcopy(tree))).split()).removesuffix(",")
