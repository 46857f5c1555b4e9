"""Where a derivation ends: the terms that were chosen, as one term for each output of a region.

```
Goal   ::= region, outputs (the source's terms), wholes (the chosen terms, same order), made
Made   ::= class, axes, term        what a chosen kernel stores, over what others store
```

A chosen candidate computes a term of each class that it makes, over tensors that hold other
classes. Written into one another they are the whole term that is chosen for an output. Both hold
the members of classes alone; what finishing kernels adds to them (widened operands, narrow
storage, chunks) are steps of their own (`finishing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautile.errors import InputError
from nautile.extract.classes import Classes
from nautile.extract.pool import Choice
from nautile.snapshot import Node, term_of
from nautile.stages import Optimization
from nautile.terms import Axis, Output, Term

from .parts import written_in

__all__ = ["Goal", "Made", "goals"]


@dataclass(frozen=True, slots=True)
class Made:
    """A class that a chosen kernel stores: its axes, its term over the tensors of other classes,
    and the name of the tensor that stands for it (`Classes.buffer`)."""

    number: int
    name: str
    axes: tuple[Axis, ...]
    term: Term


@dataclass(frozen=True, slots=True)
class Goal:
    """One region: what its outputs are in the source, and what was chosen for them."""

    region: int
    outputs: tuple[Output, ...]
    wholes: tuple[Term, ...]
    made: tuple[Made, ...]


def goals(result: Optimization) -> tuple[Goal, ...]:
    """The goal of each region, in order.

    Raises InputError where nothing has been chosen yet.
    """
    if result.plan is None or result.plan.choice is None:
        raise InputError("nothing is chosen yet: there is no program to derive", code="no-plan")
    choice = result.plan.choice
    return tuple(
        _goal(number, region.outputs, choice) for number, region in enumerate(result.regions)
    )


def _goal(number: int, outputs: tuple[Output, ...], choice: Choice) -> Goal:
    classes = choice.pool.classes[number]
    made: dict[int, Made] = {}
    for c in classes.roots:
        _collect(number, c, choice, made)
    terms = {m.name: m.term for m in made.values()}
    wholes = tuple(written_in(made[root].term, terms) for root in classes.snapshot.roots)
    return Goal(number, outputs, wholes, tuple(made.values()))


def _collect(number: int, root: int, choice: Choice, made: dict[int, Made]) -> None:
    """Add what makes a class, after what that reads."""
    pool, classes = choice.pool, choice.pool.classes[number]
    stack: list[tuple[int, bool]] = [(root, False)]
    while stack:
        c, ready = stack.pop()
        if c in made:
            continue
        column = choice.taken.maker[pool.items[number, c]]
        candidate = pool.candidates[column][1]
        if ready:
            term = chosen_term(c, candidate.choice, candidate.needs, classes)
            made[c] = Made(c, classes.buffer(c).name, classes.axes[c], term)
        else:
            stack.append((c, True))
            stack.extend((k, False) for k in sorted(candidate.needs))


def chosen_term(
    c: int, choice: Mapping[int, Node], needs: frozenset[int], classes: Classes
) -> Term:
    """The term of a class under a choice of nodes, over loads of the classes that it needs."""
    done: dict[int, Term] = {k: classes.load(k) for k in needs}
    stack: list[tuple[int, bool]] = [(c, False)]
    while stack:
        k, ready = stack.pop()
        if k in done:
            continue
        node = choice.get(k) or classes.nodes[k][0]
        if ready:
            done[k] = term_of(node, tuple(done[i] for i in node.children))
        else:
            stack.append((k, True))
            stack.extend((i, False) for i in node.children if i not in done)
    return done[c]
