"""What a program is, whatever its names are: the key of caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    digest,
    text,
    walk,
)

__all__ = ["anonymous", "key", "spelling"]


def anonymous(program: Program) -> Program:
    """The program with its tensors and axis families renamed in order of first appearance: equal
    for programs that differ in names only. Sizes, source and lines are dropped."""
    buffers = _buffer_names(program)
    families = _family_names(program)
    renaming = _Renaming(buffers, families)
    return Program(
        name="program",
        inputs=tuple(renaming.buffer(b) for b in program.inputs),
        definitions=tuple(
            Definition(buffers[d.name], renaming.axes(d.axes), renaming.term(d.body), 0, d.dtype)
            for d in program.definitions
        ),
        outputs=tuple(
            Output(renaming.buffer(o.buffer), renaming.axes(o.axes), renaming.term(o.term))
            for o in program.outputs
        ),
        defaults={buffers[n]: v for n, v in program.defaults.items()},
    )


def spelling(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The program's tensors and its axis families, each in order of first appearance: programs of
    one `key` have as many, and those in one place stand for one another."""
    return tuple(_buffer_names(program)), tuple(_family_names(program))


def key(program: Program) -> str:
    """BLAKE2b-128 of the anonymous program: sizes, types, terms, results and scalar defaults."""
    plain = anonymous(program)
    parts: list[str] = [_declared(b) for b in plain.inputs]
    for d in plain.definitions:
        parts += [f"{_declared(d.buffer)} {[str(a) for a in d.axes]}", text(d.body)]
    for o in plain.outputs:
        parts += [f"{_declared(o.buffer)} {[str(a) for a in o.axes]}", text(o.term)]
    parts += [f"{name}={value!r}" for name, value in sorted(plain.defaults.items())]
    return digest(*parts)


def _declared(buffer: Buffer) -> str:
    return f"{buffer.name}:{buffer.dtype}{list(buffer.shape)}"


def _buffer_names(program: Program) -> dict[str, str]:
    names: dict[str, str] = {}
    for prefix, found in (
        ("x", [b.name for b in program.inputs]),
        ("d", [d.name for d in program.definitions]),
        ("o", [o.buffer.name for o in program.outputs]),
    ):
        for count, name in enumerate(found):
            names.setdefault(name, f"{prefix}{count}")
    return names


def _family_names(program: Program) -> dict[str, str]:
    names: dict[str, str] = {}
    groups = [(d.axes, d.body) for d in program.definitions]
    groups += [(o.axes, o.term) for o in program.outputs]
    for axes, body in groups:
        found = [*axes, *(a for t in walk(body) if (a := _axis_of(t)) is not None)]
        for axis in found:
            names.setdefault(axis.family, f"i{len(names)}")
    return names


def _axis_of(term: Term) -> Axis | None:
    return term.axis if isinstance(term, (Index, Reduce, Online)) else None


class _Renaming:
    """New names for buffers and families; numbers and extents stay, so terms stay canonical."""

    def __init__(self, buffers: Mapping[str, str], families: Mapping[str, str]) -> None:
        self.buffers, self.families = buffers, families

    def axis(self, axis: Axis) -> Axis:
        return Axis(self.families[axis.family], axis.number, axis.extent)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(self.axis(a) for a in axes)

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, name=self.buffers[buffer.name])

    def term(self, root: Term) -> Term:
        done: dict[Term, Term] = {}
        for term in walk(root):
            done[term] = self._over(term, tuple(done[c] for c in children(term)))
        return done[root]

    def _over(self, term: Term, new: tuple[Term, ...]) -> Term:
        match term:
            case Const():
                return term
            case Index(axis):
                return Index(self.axis(axis))
            case Load(buffer, _):
                return Load(self.buffer(buffer), new)
            case Apply(operation, _):
                return Apply(operation, new)
            case Cast(dtype, _):
                return Cast(dtype, new[0])
            case Reduce(monoid, axis, _):
                return Reduce(monoid, self.axis(axis), new[0])
            case Online(axis):
                return Online(self.axis(axis), *new)
            case Running():
                return Running(new[0])
            case Before():
                return Before(new[0])
        raise TypeError(f"not a term: {term!r}")
