"""Named operations in laws: `softmax[j](a)`, `gelu(a)`.

The prelude's programs, and those that a pack defines itself, unfold into patterns: one axis at
most, straight-line definitions, each index the axis of the call. They are read, never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nautile import lang

from .law import Number, Pattern, Position

__all__ = ["Operation", "Unfolding", "defined", "prelude"]

CALLS = 12  # how deep named operations may call each other


@dataclass(frozen=True, slots=True)
class Operation:
    """A program as an operation: parameters with whether they walk the axis, and its lines."""

    name: str
    parameters: tuple[tuple[str, bool], ...]
    defaults: Mapping[str, float]
    size: str  # the name of its one extent, or ""
    lines: tuple[ast.stmt, ...]


@dataclass(slots=True)
class Unfolding:
    """What the names of an operation's lines mean while they are read: its values with whether they
    walk the axis, and the index that the line at hand calls the axis."""

    axis: str
    size: str
    values: dict[str, tuple[bool, Pattern]] = field(default_factory=dict)
    index: str | None = None

    def value(self, name: str, *, indexed: bool) -> Pattern | None:
        """The value of a name, `indexed` or not; None where there is none of that kind."""
        found = self.values.get(name)
        return found[1] if found is not None and found[0] == indexed else None

    def position(self, name: str) -> Pattern | None:
        """The position of the line's index."""
        return Position(self.axis) if name == self.index else None


def defined(node: ast.FunctionDef) -> Operation | str:
    """The operation that a `def` spells, or why it is none."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        return "an operation takes plain parameters"
    parameters: list[tuple[str, bool]] = []
    sizes: set[str] = set()
    for parameter in arguments.args:
        walks = isinstance(parameter.annotation, ast.Subscript)
        if isinstance(parameter.annotation, ast.Subscript):
            dims = parameter.annotation.slice
            if not isinstance(dims, ast.Name):
                return "an operation of a law walks one axis"
            sizes.add(dims.id)
        parameters.append((parameter.arg, walks))
    if len(sizes) > 1:
        return "an operation of a law walks one axis"
    defaults = _defaults(arguments)
    if defaults is None:
        return "a default is a number"
    return Operation(node.name, tuple(parameters), defaults, "".join(sizes), tuple(node.body))


def _defaults(arguments: ast.arguments) -> dict[str, float] | None:
    found: dict[str, float] = {}
    named = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    for parameter, value in zip(named, arguments.defaults, strict=True):
        if not isinstance(value, ast.Constant) or type(value.value) not in (int, float):
            return None
        assert isinstance(value.value, (int, float))
        found[parameter.arg] = value.value
    return found


@cache
def prelude() -> Mapping[str, Operation]:
    """The prelude's operations that laws can name."""
    home = Path(str(lang.__file__)).parent / "prelude.nau"
    tree = ast.parse(home.read_text(encoding="utf-8"))
    found = [defined(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {o.name: o for o in found if isinstance(o, Operation)}


def bound_values(
    operation: Operation, arguments: tuple[Pattern, ...]
) -> dict[str, tuple[bool, Pattern]] | str:
    """The parameters with their values, or what is wrong with the call."""
    least = len(operation.parameters) - len(operation.defaults)
    if not least <= len(arguments) <= len(operation.parameters):
        return f"{operation.name} takes {least} operands, {len(arguments)} given"
    values: dict[str, tuple[bool, Pattern]] = {}
    for i, (name, walks) in enumerate(operation.parameters):
        given = arguments[i] if i < len(arguments) else Number(operation.defaults[name])
        values[name] = walks, given
    return values
