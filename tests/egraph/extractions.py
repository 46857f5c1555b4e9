"""Programs drawn from a snapshot at random, and their values: whatever the rules found equal to the
source must have the source's value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nautile.oracle import Fetch, arrays_fetch, evaluate
from nautile.snapshot import Snapshot, term_of
from nautile.terms import Output, Term, buffers

__all__ = ["draw", "random_tensors", "values"]


def draw(snapshot: Snapshot, rng: np.random.Generator) -> tuple[Term, ...]:
    """A random program of the snapshot: at every class any node, but for those that would lead back
    to a class that is being built."""
    terms: dict[int, Term] = {}
    for root in snapshot.roots:
        _build(root, snapshot, rng, terms, set())
    return tuple(terms[r] for r in snapshot.roots)


def _build(
    c: int, snapshot: Snapshot, rng: np.random.Generator, terms: dict[int, Term], above: set[int]
) -> bool:
    """Build class `c` outside the classes `above`; whether that was possible."""
    if c in terms:
        return True
    nodes = snapshot.classes[c]
    for i in rng.permutation(len(nodes)):
        inside = above | {c}
        if not inside & {*nodes[i].children} and all(
            _build(k, snapshot, rng, terms, inside) for k in nodes[i].children
        ):
            terms[c] = term_of(nodes[i], tuple(terms[k] for k in nodes[i].children))
            return True
    return False


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
