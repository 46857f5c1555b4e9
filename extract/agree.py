"""Bodies of several classes brought to one choice of nodes.

Two bodies merge only where they compute every shared class alike. Each was the best of its class
alone, so they often differ in a detail (a factor moved into a sum in one and out of it in the
other): one of them is made again with the other's choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautile.extract.classes import Classes
from nautile.extract.partial import Partial, combine, leaf, stored
from nautile.snapshot import Node

__all__ = ["agreed", "clash"]


def clash(parts: Sequence[Partial]) -> bool:
    """Whether the bodies compute a class in two ways, or one reads what another computes."""
    choice: dict[int, Node] = {}
    for part in parts:
        if any(choice.setdefault(c, n) is not n for c, n in part.choice.items()):
            return True
    return any(c in choice for part in parts for c in part.needs)


def agreed(
    classes: Classes, parts: Sequence[Partial], leader: int, totals: Mapping[int, float]
) -> list[Partial] | None:
    """The bodies with the choices of number `leader`, in the same order; those of the others where
    it has none. None where that is no body. `totals` are the seconds to have a class stored."""
    order = [leader, *(i for i in range(len(parts)) if i != leader)]
    choice: dict[int, Node] = {}
    needs: set[int] = set()
    for i in order:
        needs |= {c for c in parts[i].needs if c not in choice}
        for c, node in parts[i].choice.items():
            if c not in needs:
                choice.setdefault(c, node)
    made: dict[int, Partial | None] = {}
    found = [_made(classes, part.root, choice, needs, totals, made) for part in parts]
    return None if any(p is None for p in found) else [p for p in found if p is not None]


def _made(
    classes: Classes,
    c: int,
    choice: Mapping[int, Node],
    needs: set[int],
    totals: Mapping[int, float],
    made: dict[int, Partial | None],
) -> Partial | None:
    """The body of a class; None while it is being made, so that a cycle fails."""
    if c in made:
        return made[c]
    made[c] = None
    if c in classes.leaves:
        made[c] = leaf(classes, c)
    elif c in needs:
        made[c] = stored(classes, c, totals[c]) if c in totals else None
    elif c in choice:
        node = choice[c]
        below = {k: _made(classes, k, choice, needs, totals, made) for k in node.children}
        kids = {k: p for k, p in below.items() if p is not None}
        made[c] = combine(classes, c, node, kids) if len(kids) == len(below) else None
    return made[c]
