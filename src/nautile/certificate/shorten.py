"""Programs too long to look at, over shorter axes.

One element of a loss over a large vocabulary may need 10**12 products. An identity between two
terms that holds for every extent can be looked at on shorter reductions: both sides keep their
constants and their tensors, and every axis walks its first positions only.
"""

from __future__ import annotations

from dataclasses import replace

from nautile.certificate.subject import Side, Subject, Target
from nautile.terms import Axis, Index, Online, Output, Reduce, Term, children, rebuild, walk

__all__ = ["shortened"]


def shortened(subject: Subject, target: Target, longest: int) -> tuple[Subject, Target]:
    """Both sides of a target with no axis longer than `longest`."""
    output = target.output
    made = Output(output.buffer, _axes(output.axes, longest), _term(output.term, longest))
    short = replace(
        target, axes=_axes(target.axes, longest), term=_term(target.term, longest), output=made
    )
    sides = (_side(s, longest) for s in (subject.source, subject.chosen, subject.meant))
    source, chosen, meant = sides
    return replace(subject, source=source, chosen=chosen, meant=meant), short


def _side(side: Side, longest: int) -> Side:
    terms = {n: (_axes(a, longest), _term(t, longest)) for n, (a, t) in side.definitions.items()}
    return replace(side, definitions=terms)


def _axes(axes: tuple[Axis, ...], longest: int) -> tuple[Axis, ...]:
    return tuple(_axis(a, longest) for a in axes)


def _axis(axis: Axis, longest: int) -> Axis:
    return replace(axis, extent=min(axis.extent, longest))


def _term(root: Term, longest: int) -> Term:
    done: dict[Term, Term] = {}
    for term in walk(root):
        inner = tuple(done[c] for c in children(term))
        match term:
            case Index(axis):
                done[term] = Index(_axis(axis, longest))
            case Reduce(monoid, axis, _):
                done[term] = Reduce(monoid, _axis(axis, longest), *inner)
            case Online(axis):
                done[term] = Online(_axis(axis, longest), *inner)
            case _:
                done[term] = rebuild(term, inner)
    return done[root]
