"""From ways between terms to a sequence of whole programs, one law at one place each.

A law is applied wherever its redex stands: the definition that the source has once is rewritten
once. Where that leaves something else than was chosen (a term that is to stay in one place and go
in another), the rest of the way goes place by place. At last detours are cut: states that come
again, and laws that lead from an earlier state to a later one at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nautile.terms import Term

from .equalities import Equalities
from .parts import build, parts, replaced, subterms
from .ways import Rewrite, Ways

__all__ = ["State", "paths", "replay"]

_PASSES = 6  # of laws applied everywhere: what a law has made may hold redexes of earlier ones


@dataclass(frozen=True, slots=True)
class State:
    """The outputs' terms after a rewrite (none: the source's)."""

    terms: tuple[Term, ...]
    by: Rewrite | None = None


def replay(ways: Ways, sources: Sequence[Term], targets: Sequence[Term]) -> list[State]:
    """States from the source's terms to the chosen ones, which must have been found equal."""
    graph = ways.graph
    for term in targets:
        graph.add(term)
    states = [State(tuple(sources))]
    for place, target in enumerate(targets):
        for _ in range(_PASSES):
            start, count = states[-1].terms[place], len(states)
            graph.add(start)
            _everywhere(ways, states, start, target)
            if states[-1].terms[place] is target or len(states) == count:
                break
    for place, target in enumerate(targets):
        _in_place(ways, states, place, target)
    return _shortened(graph, _without_loops(states))


def _everywhere(ways: Ways, states: list[State], start: Term, target: Term) -> None:
    for rewrite in ways.rewrites(start, target, ways.graph.time + 1):
        now = states[-1].terms
        new = tuple(replaced(t, rewrite.redex, rewrite.contractum) for t in now)
        if new != now:
            states.append(State(new, rewrite))


def _in_place(ways: Ways, states: list[State], place: int, target: Term) -> None:
    now = states[-1].terms
    if now[place] is target:
        return
    ways.graph.add(now[place])
    for term, rewrite in ways.sequence(now[place], target, ways.graph.time + 1):
        states.append(State((*now[:place], term, *now[place + 1 :]), rewrite))


def _without_loops(states: list[State]) -> list[State]:
    """What lies between two equal states goes."""
    found: list[State] = []
    seen: dict[tuple[Term, ...], int] = {}
    for state in states:
        if state.terms in seen:
            for gone in found[seen[state.terms] + 1 :]:
                del seen[gone.terms]
            del found[seen[state.terms] + 1 :]
            continue
        seen[state.terms] = len(found)
        found.append(state)
    return found


def _shortened(graph: Equalities, states: list[State]) -> list[State]:
    """Single laws in place of several, the longest jumps first."""
    found, i = [states[0]], 0
    while i < len(states) - 1:
        j = len(states) - 1
        while j > i + 1 and (by := _jump(graph, states[i].terms, states[j].terms)) is None:
            j -= 1
        found.append(State(states[j].terms, by) if j > i + 1 else states[j])
        i = j
    return found


def _jump(graph: Equalities, before: Sequence[Term], after: Sequence[Term]) -> Rewrite | None:
    """One law that leads from a state to another, if one does."""
    changed = {(a, b) for a, b in zip(before, after, strict=True) if a is not b}
    for one, two in _spine(changed):
        for edge in graph.edges.get(one, ()):
            other = edge.two if edge.one is one else edge.one
            if edge.reason is None or other is not two:
                continue
            if all(replaced(a, one, two) is b for a, b in zip(before, after, strict=True)):
                return Rewrite(one, two, (edge.reason,), edge.one is one, edge.time)
    return None


def _spine(changed: set[tuple[Term, Term]]) -> Iterator[tuple[Term, Term]]:
    """The pairs of subterms to which a difference comes down, from the outside in."""
    while len(changed) == 1:
        ((one, two),) = changed
        yield one, two
        inner = parts(one)
        if not inner or len(inner) != len(parts(two)) or build(two, inner) is not one:
            return
        changed = {(a, b) for a, b in zip(inner, parts(two), strict=True) if a is not b}


def paths(root: Term, redex: Term, most: int = 100) -> list[tuple[int, ...]]:
    """Where a subterm stands: for each occurrence the numbers of parts on the way down."""
    holds: set[Term] = set()
    for term in subterms(root):
        if term is redex or any(p in holds for p in parts(term)):
            holds.add(term)
    found: list[tuple[int, ...]] = []
    stack: list[tuple[Term, tuple[int, ...]]] = [(root, ())] if root in holds else []
    while stack and len(found) < most:
        term, path = stack.pop()
        if term is redex:
            found.append(path)
            continue
        inner = list(enumerate(parts(term)))
        stack.extend((p, (*path, i)) for i, p in reversed(inner) if p in holds)
    return found
