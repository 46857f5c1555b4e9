"""The state of reading one program: tensors in reach, binders, types and what was defined.

While a program is read, every binder has an axis of its own (a family `?n`, number 0); `families`
gives them their canonical names afterwards. A `Frame` is one body being read: the program's own, or
that of a program or named operation that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nautile.dtypes import is_integer
from nautile.errors import LimitError
from nautile.lang.bounds import Interval
from nautile.lang.fold import fold
from nautile.lang.limits import MAX_DEPTH, MAX_TERMS
from nautile.lang.module import Module
from nautile.lang.signature import Signature
from nautile.lang.source import Source
from nautile.terms import (
    Apply,
    Axis,
    Buffer,
    Const,
    Definition,
    Index,
    Load,
    Term,
    children,
    substitute,
)
from nautile.types import type_over

__all__ = ["Binding", "Frame", "Inline", "Session", "Stored", "Tensor"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that is read through Load: an input or a definition of the program."""

    buffer: Buffer

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.shape

    def at(self, coordinates: tuple[Term, ...]) -> Term:
        """The element at integer terms, one a dimension."""
        return Load(self.buffer, coordinates)


@dataclass(frozen=True, slots=True)
class Inline:
    """A tensor given by a term over axes; reading it puts the coordinates in their places."""

    term: Term
    axes: tuple[Axis, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)

    def at(self, coordinates: tuple[Term, ...]) -> Term:
        """The element at integer terms, one a dimension."""
        pairs = zip(self.axes, coordinates, strict=True)
        changes = {a: c for a, c in pairs if c is not Index(a)}
        return substitute(self.term, changes) if changes else self.term


Tensor = Stored | Inline

_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}


@dataclass(frozen=True, slots=True)
class Binding:
    """How the source spells a binder: its index name, the depth of the call that it stands in
    (0 in the program itself), and its place in the order of reading."""

    name: str
    level: int
    order: int


@dataclass(slots=True)
class Session:
    """What the reading of a program has gathered; `run` reads the body of a called program. `names`
    are the stored tensors' so far, `reserved` those that the program itself will define."""

    name: str
    run: Callable[[Frame], list[Tensor]]
    definitions: list[Definition] = field(default_factory=list)
    bindings: dict[str, Binding] = field(default_factory=dict)
    types: dict[Term, str] = field(default_factory=dict)
    depths: dict[Term, int] = field(default_factory=dict)
    intervals: dict[Term, Interval] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    reserved: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    call_count: int = 0

    def axis(self, name: str, extent: int, level: int) -> Axis:
        """A binder of its own."""
        order = len(self.bindings)
        self.bindings[f"?{order}"] = Binding(name, level, order)
        return Axis(f"?{order}", 0, extent)

    def unique(self, name: str) -> str:
        """`name`, or the first free one of name_1, name_2, ...; taken from now on."""
        found, count = name, 0
        while found in self.names or found in self.reserved:
            count += 1
            found = f"{name}_{count}"
        self.names.add(found)
        return found

    def simplified(self, term: Term) -> Term:
        """A constant expression folded, and an integer freed of + 0, - 0, * 1 and // 1."""
        if not isinstance(term, Apply):
            return term
        values = [a.value for a in term.arguments if isinstance(a, Const)]
        if len(values) == len(term.arguments):
            value = fold(term.operation, tuple(values))
            return term if value is None else Const(value)
        if len(term.arguments) == 2 and values:
            return self._neutral(term)
        return term

    def _neutral(self, term: Apply) -> Term:
        left, right = term.arguments
        if isinstance(left, Const) and term.operation in ("add", "mul"):
            left, right = right, left
        neutral = _NEUTRAL.get(term.operation)
        if neutral is not None and right is Const(neutral) and is_integer(self.types[left]):
            return left
        return term

    def note(self, term: Term) -> Term:
        """The term itself, its type and depth known from now on. Raises LimitError."""
        stack = [term]
        while stack:
            part = stack[-1]
            unknown = [c for c in children(part) if c not in self.types]
            if unknown:
                stack += unknown
            elif part not in self.types:
                self._note(stack.pop())
            else:
                stack.pop()
        return term

    def _note(self, term: Term) -> None:
        inner = children(term)
        self.types[term] = type_over(term, tuple(self.types[c] for c in inner))
        self.depths[term] = 1 + max((self.depths[c] for c in inner), default=0)
        if len(self.types) > MAX_TERMS or self.depths[term] > MAX_DEPTH:
            raise LimitError(
                f"{self.name}: unfolds to more than {MAX_TERMS} terms or to expressions nested "
                f"deeper than {MAX_DEPTH}; give parts of it names of their own"
            )


@dataclass(slots=True)
class Frame:
    """One body being read. Where `inline`, definitions become terms in place of stored tensors;
    `renamed` gives the stored names of local ones; `later` holds the lines of names that are not
    defined yet, `reads` what each definition reads, for the messages on cycles."""

    session: Session
    signature: Signature
    sizes: Mapping[str, int]
    tensors: dict[str, Tensor]
    module: Module
    level: int = 0
    inline: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    current: str = ""

    @property
    def source(self) -> Source:
        return self.signature.source

    def lookup(self, name: str) -> Signature | None:
        """The program that a call of this name means, if there is one."""
        found = self.module.find(name)
        return found[1] if found else None

    def error(self, node: ast.AST, message: str, code: str) -> Exception:
        """The error at a place of this body's text."""
        return self.source.error(node, message, code)

    def type(self, term: Term) -> str:
        """The carried type of a term."""
        self.session.note(term)
        return self.session.types[term]
