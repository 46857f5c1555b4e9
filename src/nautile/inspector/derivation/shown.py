"""Intermediate programs as text in the expression language.

A region's outputs are terms in which parts are shared. As text they are definitions: what the
source has a name for keeps that name as long as it stands there, and any other part that is used
twice gets one of its own. Running values and online sums print as in `lang.printer`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nautile import lang
from nautile.terms import (
    Axis,
    Buffer,
    Definition,
    Index,
    Load,
    Output,
    Program,
    Term,
    buffers,
)
from nautile.types import type_of

from .parts import build, parts, subterms

__all__ = ["Names", "brief", "text_of"]

Names = Mapping[Term, tuple[str, tuple[Axis, ...]]]
_SMALL = 3  # operations of a part that is rather written again


def text_of(name: str, outputs: Sequence[Output], names: Names) -> str:
    """The outputs as one program; `names` are those that the source gives to terms."""
    writer = _Writer(outputs, names)
    made = tuple(Output(o.buffer, o.axes, writer.body(o.term)) for o in outputs)
    stored = {o.buffer.name for o in outputs}
    read = (b for b in buffers(*(o.term for o in outputs)) if b.name not in stored)
    inputs = tuple({b.name: b for b in read}.values())
    return lang.show(Program(name, inputs, tuple(writer.definitions), made))


@dataclass(slots=True)
class _Writer:
    outputs: Sequence[Output]
    names: Names
    definitions: list[Definition] = field(default_factory=list)
    cuts: dict[Term, Term] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        roots = [o.term for o in self.outputs]
        self.taken = {o.buffer.name for o in self.outputs}
        self.taken |= {b.name for b in buffers(*roots)} | {n for n, _ in self.names.values()}
        uses = Counter(p for t in subterms(*roots) for p in set(parts(t)))
        uses.update(roots)
        sizes: dict[Term, int] = {}
        written = {o.buffer.name for o in self.outputs}
        for term in subterms(*roots):
            sizes[term] = 1 + sum(sizes[p] for p in parts(term))
            name, axes = self.names.get(term, ("", tuple(sorted(term.free))))
            own = bool(name) and name not in written and bool(parts(term))
            alone = term in roots and uses[term] == 1
            if not alone and (own or (uses[term] > 1 and sizes[term] > _SMALL)):
                self._cut(term, name if own else self._fresh(), axes)

    def _cut(self, term: Term, name: str, axes: tuple[Axis, ...]) -> None:
        buffer = Buffer(name, tuple(a.extent for a in axes), type_of(term))
        self.definitions.append(Definition(name, axes, self.body(term), 0, buffer.dtype))
        self.cuts[term] = Load(buffer, tuple(Index(a) for a in axes))

    def _fresh(self) -> str:
        n = 1
        while f"t{n}" in self.taken:
            n += 1
        self.taken.add(f"t{n}")
        return f"t{n}"

    def body(self, root: Term) -> Term:
        """A term over the definitions inside it."""
        if root in self.cuts:
            return self.cuts[root]
        done: dict[Term, Term] = dict(self.cuts)
        for term in subterms(root):
            if term not in done:
                done[term] = build(term, tuple(done[p] for p in parts(term)))
        return done[root]


def brief(term: Term, names: Names, limit: int = 60) -> str:
    """One term as text, over the names that the source gives to its parts."""
    done: dict[Term, Term] = {}
    for part in subterms(term):
        if part in names and part is not term and isinstance(part, Term) and parts(part):
            name, axes = names[part]
            buffer = Buffer(name, tuple(a.extent for a in axes), type_of(part))
            done[part] = Load(buffer, tuple(Index(a) for a in axes))
        else:
            done[part] = build(part, tuple(done[p] for p in parts(part)))
    return lang.show_term(done[term], limit)
