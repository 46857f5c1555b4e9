"""Programs and terms as text in the language: what `show` prints, `parse` reads to equal terms.

A binder's extent is printed (`sum[i: 64](...)`) where no direct use tells it. Running values and
online sums, which the language lacks, print as `running[s](r)`, `before[s](r)` and
`online[s](repair, body)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautile.errors import LimitError
from nautile.operations import OPERATIONS
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Definition,
    Index,
    Load,
    Online,
    Output,
    Program,
    Reduce,
    Running,
    Term,
    children,
    walk,
)

__all__ = ["precedences", "show", "show_term"]

_LARGEST = 100_000
_ATOM = 100
_COMPARISON = 4
_NEGATIVE = 7
_POWER = 8


def show(program: Program) -> str:
    """The program as text that `parse` reads back to equal inputs, definitions and outputs (its
    sizes are printed as numbers). Raises LimitError where the text would be far too long."""
    lines = [_head(program)]
    lines += [f"    {_line(d.name, d.axes, d.body)}" for d in program.definitions]
    defined = {d.name: d for d in program.definitions}
    for output in program.outputs:
        if not _is_returned(output, defined.get(output.buffer.name)):
            lines.append(f"    {_line(output.buffer.name, output.axes, output.term)}")
    lines.append(f"    return {', '.join(o.buffer.name for o in program.outputs)}")
    return "\n".join(lines) + "\n"


def show_term(term: Term, limit: int = _LARGEST) -> str:
    """One term as text; parts of more than `limit` operations (shared ones counted at every use)
    print as `...`."""
    return _Texts(limit, elide=True).of(term)


def _head(program: Program) -> str:
    parameters = [_parameter(b, program.defaults) for b in program.inputs]
    optional = [b.name in program.defaults for b in program.inputs]
    if optional != sorted(optional):  # Python wants such arguments behind a star
        parameters.insert(optional.index(True), "*")
    results = [_type(o.buffer) for o in program.outputs]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"def {program.name}({', '.join(parameters)}) -> {result}:"


def _parameter(buffer: Buffer, defaults: Mapping[str, float]) -> str:
    default = f" = {defaults[buffer.name]!r}" if buffer.name in defaults else ""
    return f"{buffer.name}: {_type(buffer)}{default}"


def _type(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]" if buffer.shape else buffer.dtype


def _line(name: str, axes: tuple[Axis, ...], body: Term) -> str:
    texts = _Texts(_LARGEST, elide=False)
    value = texts.of(body)
    if not axes:
        return f"{name} = {value}"
    known = texts.direct[body]
    left = [a.name if known.get(a) else f"{a.name}: {a.extent}" for a in axes]
    return f"{name}[{', '.join(left)}] = {value}"


def _is_returned(output: Output, definition: Definition | None) -> bool:
    if definition is None or output.axes != definition.axes:
        return False
    return output.term is Load(definition.buffer, tuple(Index(a) for a in output.axes))


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    precedence: int
    size: int

    def within(self, precedence: int) -> str:
        """The text, in parentheses where it binds more weakly."""
        return self.text if self.precedence >= precedence else f"({self.text})"


class _Texts:
    """Texts of a term's parts, bottom-up. `direct` tells of each part's free axes whether every
    direct use agrees with the extent (an axis without direct use is absent)."""

    def __init__(self, limit: int, elide: bool) -> None:
        self.limit, self.elide = limit, elide
        self.direct: dict[Term, dict[Axis, bool]] = {}
        self._texts: dict[Term, _Text] = {}

    def of(self, root: Term) -> str:
        for term in walk(root):
            self.direct[term] = self._direct(term)
            self._texts[term] = self._limited(term)
        return self._texts[root].text

    def _direct(self, term: Term) -> dict[Axis, bool]:
        found: dict[Axis, bool] = {}
        for child in children(term):
            for axis, agrees in self.direct[child].items():
                found[axis] = agrees and found.get(axis, True)
        if isinstance(term, Load):
            for coordinate, extent in zip(term.coordinates, term.buffer.shape, strict=True):
                if isinstance(coordinate, Index):
                    agrees = coordinate.axis.extent == extent
                    found[coordinate.axis] = agrees and found.get(coordinate.axis, True)
        if isinstance(term, (Reduce, Online)):
            found.pop(term.axis, None)
        return found

    def _limited(self, term: Term) -> _Text:
        size = 1 + sum(self._texts[c].size for c in children(term))
        if size <= self.limit:
            text, precedence = self._text(term)
            return _Text(text, precedence, size)
        if self.elide:
            return _Text("...", _ATOM, 1)
        raise LimitError(f"the text would have more than {self.limit} operations")

    def _text(self, term: Term) -> tuple[str, int]:
        parts = [self._texts[c] for c in children(term)]
        match term:
            case Const(value):
                return _constant(value)
            case Index(axis):
                return axis.name, _ATOM
            case Load(buffer, _):
                inner = ", ".join(p.text for p in parts)
                return (f"{buffer.name}[{inner}]" if parts else buffer.name), _ATOM
            case Apply(operation, _):
                return _operation(operation, parts)
            case Cast(dtype, _):
                return f"{dtype}({parts[0].text})", _ATOM
            case Reduce(monoid, axis, body):
                return f"{monoid}[{self._binder(axis, body)}]({parts[0].text})", _ATOM
            case Online(axis):
                return f"online[{axis.name}]({', '.join(p.text for p in parts)})", _ATOM
            case Running():
                return f"running[{term.axis.name}]({parts[0].text})", _ATOM
            case Before():
                return f"before[{term.axis.name}]({parts[0].text})", _ATOM
        return str(term), _ATOM

    def _binder(self, axis: Axis, body: Term) -> str:
        known = self.direct[body].get(axis, False)
        return axis.name if known else f"{axis.name}: {axis.extent}"


def _constant(value: bool | int | float) -> tuple[str, int]:
    text = repr(value)
    return text, _NEGATIVE if text.startswith("-") else _ATOM


def precedences(operation: str) -> tuple[int, int, int]:
    """How strongly the operation binds, and what its first and its last argument must bind with to
    stand without parentheses (arguments of a call by name always do)."""
    known = OPERATIONS[operation]
    own = known.precedence
    if not known.infix:
        return own, 0, 0
    if known.arity == 1:
        return own, own, own
    if own == _COMPARISON:
        return own, own + 1, own + 1
    if own == _POWER:
        return own, own + 1, _NEGATIVE
    return own, own, own + 1


def _operation(name: str, parts: list[_Text]) -> tuple[str, int]:
    operation = OPERATIONS[name]
    if not operation.infix:
        return f"{name}({', '.join(p.text for p in parts)})", _ATOM
    own, left, right = precedences(name)
    if operation.arity == 1:
        space = " " if operation.infix.isalpha() else ""
        return f"{operation.infix}{space}{parts[0].within(left)}", own
    return f"{parts[0].within(left)} {operation.infix} {parts[1].within(right)}", own
