"""The source beside its regions: what both store, and what the source calls its terms."""

from __future__ import annotations

from collections.abc import Sequence

from nautile.egraph import encode
from nautile.inline import inline, inline_outputs
from nautile.terms import Axis, Output, Program, Term

from .goal import Goal
from .parts import subterms

__all__ = ["named_terms", "source_names", "stored_of", "terms_of", "written_out"]


def stored_of(program: Program) -> tuple[Output, ...]:
    own = tuple(Output(d.buffer, d.axes, d.body) for d in program.definitions)
    return (*own, *program.outputs)


def terms_of(program: Program) -> set[tuple[str, Term]]:
    return {(o.buffer.name, o.term) for o in stored_of(program)}


def named_terms(outputs: Sequence[Output]) -> set[tuple[str, Term]]:
    return {(o.buffer.name, o.term) for o in outputs}


def written_out(program: Program, regions: Sequence[Output]) -> bool:
    """Whether the program and its regions are the same terms, all definitions written out."""
    source = {d.name: (d.axes, d.body) for d in program.definitions}
    stored = {o.buffer.name: (o.axes, o.term) for o in regions}
    ends = {o.buffer.name for o in program.outputs}
    inner = {n: t for n, t in stored.items() if n not in ends or n in source}
    made = {o.buffer.name: o for o in regions}
    for output in program.outputs:
        own = made[output.buffer.name]
        without = {n: t for n, t in inner.items() if n != output.buffer.name}
        left, right = inline(output.term, source), inline(own.term, without)
        if left is not right or own.axes != output.axes:
            return False
    return True


def source_names(
    program: Program, found: Sequence[Goal]
) -> tuple[dict[Term, tuple[str, tuple[Axis, ...]]], dict[Term, tuple[str, int]]]:
    """What the source calls the terms of its definitions, as regions have them, and the definition
    and line in which each subterm first stands."""
    stored = {o.buffer.name for g in found for o in g.outputs}
    written = {d.name: (d.axes, d.body) for d in program.definitions if d.name not in stored}
    names: dict[Term, tuple[str, tuple[Axis, ...]]] = {}
    lines: dict[Term, tuple[str, int]] = {}
    for d in program.definitions:
        (output,) = inline_outputs((Output(d.buffer, d.axes, d.body),), written)
        encoded = encode((output,))
        for root in (output.term, encoded.terms[encoded.roots[0]]):
            if root.free == set(d.axes):
                names.setdefault(root, (d.name, d.axes))
            for term in subterms(root):
                lines.setdefault(term, (d.name, d.line))
    return names, lines
