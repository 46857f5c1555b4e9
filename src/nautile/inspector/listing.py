"""Chosen programs as text in the expression language, one definition for each stored tensor.

What the language lacks prints as the printer has it: `online[s](repair, body)`, `running[s](r)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nautile import lang
from nautile.errors import LimitError
from nautile.extract.kernel import Kernel
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Definition,
    Index,
    Load,
    Output,
    Program,
    Running,
    Term,
    children,
    rebuild,
    walk,
)

__all__ = ["Names", "definition", "left_side", "program_of", "program_text", "steps"]

_LIMIT = 400  # operations of a definition that are printed where the whole would be too long


def program_of(program: Program, kernels: Sequence[Kernel]) -> Program:
    """The kernels as a program: what lies between them is defined, what is returned is an
    output."""
    wanted = {o.buffer.name for o in program.outputs}
    stored = [o for k in kernels for o in k.outputs]
    between = tuple(
        Definition(o.buffer.name, o.axes, o.term, dtype=o.buffer.dtype)
        for o in stored
        if o.buffer.name not in wanted
    )
    made = {o.buffer.name: o for o in stored}
    outputs = tuple(made.get(o.buffer.name, o) for o in program.outputs)
    return Program(program.name, program.inputs, between, outputs, defaults=program.defaults)


def program_text(program: Program, kernels: Sequence[Kernel]) -> str:
    """The kernels as the text of a program; long terms elided where it would be far too long."""
    try:
        return lang.show(program_of(program, kernels))
    except LimitError:
        return "\n".join(definition(o) for k in kernels for o in k.outputs) + "\n"


def definition(output: Output, limit: int = _LIMIT) -> str:
    """`name[axes] = term`."""
    return f"{left_side(output.buffer.name, output.axes)} = {lang.show_term(output.term, limit)}"


def left_side(name: str, axes: Iterable[Axis]) -> str:
    """A tensor with its axes: `O[b, h, t, e]`; its name alone, where it has none."""
    inner = ", ".join(a.name for a in axes)
    return f"{name}[{inner}]" if inner else name


# ---- in steps ----------------------------------------------------------------------------------

Names = Mapping[Term, tuple[str, tuple[Axis, ...]]]


def steps(output: Output, names: Names) -> tuple[str, ...]:
    """What an output computes, in short lines: parts that the source names under their names, other
    parts that are used several times under names of their own, the output last."""
    return _Steps(output, names).lines()


class _Steps:
    """One output's parts. `shown` is each part with its named parts as tensors."""

    def __init__(self, output: Output, names: Names) -> None:
        self.output, self.names = output, names
        self.uses = Counter(c for t in walk(output.term) for c in children(t))
        self.shown: dict[Term, Term] = {}
        self.taken = {name for name, _ in names.values()} | {output.buffer.name}
        self.found: list[str] = []

    def lines(self) -> tuple[str, ...]:
        for term in walk(self.output.term):
            whole = self._shown(term)
            if term is not self.output.term and self._is_named(term):
                name, axes = self._name(term)
                self.found.append(f"{left_side(name, axes)} = {lang.show_term(whole, _LIMIT)}")
                whole = _tensor(name, axes)
            self.shown[term] = whole
        last = lang.show_term(self.shown[self.output.term], _LIMIT)
        return (*self.found, f"{left_side(self.output.buffer.name, self.output.axes)} = {last}")

    def _shown(self, term: Term) -> Term:
        if isinstance(term, Load):
            return term
        if isinstance(term, (Running, Before)):
            word = "running" if isinstance(term, Running) else "before"
            inner = lang.show_term(self.shown[term.reduction], _LIMIT)
            return _tensor(f"{word}[{term.axis.name}]({inner})", ())
        return rebuild(term, tuple(self.shown[c] for c in children(term)))

    def _is_named(self, term: Term) -> bool:
        if isinstance(term, (Load, Const, Index, Running, Before)):
            return False
        return term in self.names or self.uses[term] > 1

    def _name(self, term: Term) -> tuple[str, tuple[Axis, ...]]:
        if term in self.names:
            return self.names[term]
        n = 1
        while f"t{n}" in self.taken:
            n += 1
        self.taken.add(f"t{n}")
        order = {a: i for i, a in enumerate(self.output.axes)}
        axes = sorted(term.free, key=lambda a: (order.get(a, len(order)), a.name))
        return f"t{n}", tuple(axes)


def _tensor(name: str, axes: Sequence[Axis]) -> Term:
    shape = tuple(a.extent for a in axes)
    return Load(Buffer(name, shape, "f32"), tuple(Index(a) for a in axes))
