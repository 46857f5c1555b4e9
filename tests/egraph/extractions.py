"""Programs drawn from a snapshot at random, and their values: whatever the rules found equal to the
source must have the source's value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nautile.oracle import Fetch, arrays_fetch, evaluate
from nautile.snapshot import Node, Snapshot, term_of
from nautile.terms import Output, Term, buffers

__all__ = ["draw", "random_tensors", "values"]


def draw(snapshot: Snapshot, rng: np.random.Generator) -> tuple[Term, ...]:
    """A random program of the snapshot: the cheapest one under random costs of nodes."""
    weight = {place: rng.exponential() for place in _places(snapshot)}
    cost: dict[int, float] = {}
    choice: dict[int, Node] = {}
    changed = True
    while changed:
        changed = False
        for c, ns in snapshot.classes.items():
            for i, n in enumerate(ns):
                if all(k in cost for k in n.children):
                    price = weight[c, i] + sum(cost[k] for k in n.children)
                    if price < cost.get(c, np.inf) - 1e-12:
                        cost[c], choice[c], changed = price, n, True
    terms: dict[int, Term] = {}
    return tuple(_build(r, choice, terms) for r in snapshot.roots)


def _places(snapshot: Snapshot) -> list[tuple[int, int]]:
    return [(c, i) for c, ns in snapshot.classes.items() for i in range(len(ns))]


def _build(c: int, choice: dict[int, Node], terms: dict[int, Term]) -> Term:
    if c not in terms:
        inner = tuple(_build(k, choice, terms) for k in choice[c].children)
        terms[c] = term_of(choice[c], inner)
    return terms[c]


def random_tensors(outputs: Sequence[Output], rng: np.random.Generator) -> Fetch:
    """Standard normal floats, small integers and truth values for whatever the terms load."""
    arrays = {}
    for buffer in buffers(*(o.term for o in outputs)):
        if buffer.dtype == "bool":
            arrays[buffer.name] = rng.random(buffer.shape) < 0.5
        elif buffer.dtype.startswith("i"):
            arrays[buffer.name] = rng.integers(0, 2, buffer.shape)
        else:
            arrays[buffer.name] = rng.normal(size=buffer.shape)
    return arrays_fetch(arrays)


def values(term: Term, output: Output, fetch: Fetch) -> np.ndarray:
    """The term over all positions of the output, in float64, without roundings."""
    positions = {a: np.arange(a.extent) for a in output.axes}
    return np.asarray(evaluate(term, fetch, positions, casts=False))
