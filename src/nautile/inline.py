"""Definitions written into the terms that read them.

A stored tensor and its defining term denote the same numbers up to the rounding of the store, so a
`Load` of a defined buffer may be replaced by the defining term with its axes renamed to the load's
coordinates. Binders move out of the way (terms.substitute), equal subterms stay one object, and the
work is proportional to the number of distinct subterms.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautile.terms import Axis, Load, Output, Term, buffers, substitute, transform

__all__ = ["Definitions", "inline", "inline_outputs"]

Definitions = Mapping[str, tuple[tuple[Axis, ...], Term]]


def inline(term: Term, definitions: Definitions) -> Term:
    """`term` with every Load of a buffer named in `definitions` replaced by its defining term, and
    so on within those terms. Raises ValueError where definitions read each other in a cycle, or
    where an axis under a running reduction would have to be renamed."""
    return _replace(term, _expand(term, definitions))


def inline_outputs(outputs: tuple[Output, ...], definitions: Definitions) -> tuple[Output, ...]:
    """The same outputs with `inline` applied to each term."""
    return tuple(Output(o.buffer, o.axes, inline(o.term, definitions)) for o in outputs)


def _expand(root: Term, definitions: Definitions) -> Definitions:
    """The definitions that `root` needs, each with all others written into it already."""
    done: dict[str, tuple[tuple[Axis, ...], Term]] = {}
    open_names: list[str] = []
    stack = _read(root, definitions)
    while stack:
        name = stack[-1]
        axes, body = definitions[name]
        missing = [n for n in _read(body, definitions) if n not in done]
        if name in done or not missing:
            stack.pop()
            open_names = [n for n in open_names if n != name]
            if name not in done:
                done[name] = (axes, _replace(body, done))
            continue
        if name in open_names:
            raise ValueError(f"definitions read each other in a cycle: {' -> '.join(open_names)}")
        open_names.append(name)
        stack.extend(missing)
    return done


def _read(term: Term, definitions: Definitions) -> list[str]:
    return [b.name for b in buffers(term) if b.name in definitions]


def _replace(term: Term, expanded: Definitions) -> Term:
    def step(part: Term) -> Term:
        if not isinstance(part, Load) or part.buffer.name not in expanded:
            return part
        axes, body = expanded[part.buffer.name]
        return substitute(body, dict(zip(axes, part.coordinates, strict=True)))

    return transform(term, step)
