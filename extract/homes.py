"""Where the definitions that end regions are stored.

A stored definition lives in one tensor: the result's own, where it is returned in the type that its
readers need, else one of its own, under another name where a result has taken the definition's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nautile.inline import inline
from nautile.terms import (
    Axis,
    Buffer,
    Cast,
    Definition,
    Index,
    Load,
    Output,
    Program,
    Term,
    transform,
)

__all__ = ["homes", "moved", "returned", "targets"]

ROUNDED = frozenset({"bf16", "f16", "tf32", "f8e4m3", "f8e5m2"})


def homes(program: Program, stored: Sequence[Definition]) -> dict[str, Buffer]:
    """The tensor of each definition that is stored, by its name."""
    named = {o.buffer.name: o for o in program.outputs}
    taken = set(named) | {d.name for d in program.definitions} | {b.name for b in program.inputs}
    found: dict[str, Buffer] = {}
    for definition in stored:
        home, result = _held(definition), named.get(definition.name)
        if result is not None and not (result.buffer == home and _is(result, definition)):
            home = replace(home, name=_fresh(definition.name, taken))
        found[definition.name] = home
    return found


def targets(program: Program, stored: Sequence[Definition]) -> list[Output]:
    """What must be stored: the definitions in their order, then the other outputs. An output that
    is such a definition computes it itself: a copy would wait for it."""
    places = homes(program, stored)
    bodies = {d.name: (d.axes, d.body) for d in stored}
    results = {o.buffer: _computed(o, bodies) for o in program.outputs}
    own = {places[d.name]: Output(places[d.name], d.axes, d.body) for d in stored}
    made = {buffer: results.get(buffer, output) for buffer, output in own.items()}
    return list((made | results).values())


def returned(output: Output) -> Load | None:
    """The load that is all of an output's term, if it takes each element of a tensor once."""
    term = output.term
    if not isinstance(term, Load) or len(term.coordinates) != len(output.axes):
        return None
    return term if set(term.coordinates) == {Index(a) for a in output.axes} else None


def moved(outputs: Iterable[Output], new: Mapping[Buffer, Buffer]) -> tuple[Output, ...]:
    """The outputs, what they read where it lives."""

    def step(part: Term) -> Term:
        if isinstance(part, Load) and part.buffer in new:
            return Load(new[part.buffer], part.coordinates)
        return part

    return tuple(replace(o, term=transform(o.term, step)) for o in outputs)


def _held(definition: Definition) -> Buffer:
    """The tensor of a definition; of one that is a rounding, in exactly that type."""
    body = definition.body
    if isinstance(body, Cast) and body.dtype in ROUNDED:
        return replace(definition.buffer, dtype=body.dtype)
    return definition.buffer


def _is(output: Output, definition: Definition) -> bool:
    """Whether the output holds the definition element by element."""
    load = returned(output)
    coordinates = tuple(Index(a) for a in output.axes)
    return load is not None and load == Load(definition.buffer, coordinates)


def _computed(output: Output, bodies: Mapping[str, tuple[tuple[Axis, ...], Term]]) -> Output:
    """The output with the stored definition that it returns written into it."""
    load = returned(output)
    if load is None or load.buffer.name not in bodies:
        return output
    return replace(output, term=inline(load, {load.buffer.name: bodies[load.buffer.name]}))


def _fresh(name: str, taken: set[str]) -> str:
    """A name for what is stored beside a result of that name."""
    n = 1
    while f"{name}_stored{n}" in taken:
        n += 1
    taken.add(f"{name}_stored{n}")
    return f"{name}_stored{n}"
