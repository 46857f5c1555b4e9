"""A file of programs, each known by its head, and the prelude behind it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from nautile.lang.limits import parse_tree
from nautile.lang.names import INSTEAD
from nautile.lang.signature import Signature, read_signature
from nautile.lang.source import Source

__all__ = ["Module", "prelude", "read_module"]


@dataclass(frozen=True, slots=True)
class Module:
    """Programs by name, in the order of the file; `parent` holds the named operations."""

    source: Source
    programs: Mapping[str, Signature]
    parent: Module | None = None

    def find(self, name: str) -> tuple[Module, Signature] | None:
        """The program of that name, and the module whose names it sees."""
        if name in self.programs:
            return self, self.programs[name]
        return self.parent.find(name) if self.parent else None

    def names(self) -> tuple[str, ...]:
        """Every name that a call can have."""
        return (*self.programs, *(self.parent.names() if self.parent else ()))


@cache
def prelude() -> Module:
    """The named operations, read from `prelude.nau`."""
    text = resources.files("nautile.lang").joinpath("prelude.nau").read_text("utf-8")
    return read_module(Source(text, "prelude.nau"), None)


def read_module(source: Source, parent: Module | None) -> Module:
    """The programs of a text. Raises SourceError, LimitError."""
    programs: dict[str, Signature] = {}
    for position, node in enumerate(parse_tree(source).body):
        if position == 0 and is_docstring(node):
            continue
        if not isinstance(node, ast.FunctionDef):
            message = INSTEAD.get(type(node), "a file holds programs (`def`) only")
            raise source.error(node, message, "unsupported")
        if node.name in programs:
            first = programs[node.name].node.lineno
            message = f"the program {node.name} is already defined on line {first}"
            raise source.error(node, message, "assigned-twice")
        programs[node.name] = read_signature(source, node)
    return Module(source, programs, parent)


def is_docstring(node: ast.stmt) -> bool:
    """True for a string that stands alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
