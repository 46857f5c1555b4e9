"""The snapshot of terms as they stand, without an e-graph: for programs that no rule changes."""

from __future__ import annotations

from nautile.extract.body import inner_terms
from nautile.snapshot import Node, Report, Snapshot, node_of
from nautile.terms import Axis, Cast, Load, Online, Output, Reduce, Term, children

__all__ = ["dtype_of", "snapshot_of"]


def snapshot_of(outputs: tuple[Output, ...]) -> Snapshot:
    """The snapshot in which every class holds the one node that stands in the terms."""
    ids: dict[Term, int] = {}
    classes: dict[int, tuple[Node, ...]] = {}
    order = inner_terms(o.term for o in outputs)
    axes = tuple(dict.fromkeys(a for t in order for a in sorted(t.free | _bound(t))))
    bit = {a: 1 << i for i, a in enumerate(axes)}
    for term in order:
        below = () if isinstance(term, Load) else tuple(ids[c] for c in children(term))
        ids[term] = len(ids)
        classes[ids[term]] = (node_of(term, below),)
    return Snapshot(
        classes=classes,
        axes=axes,
        free={ids[t]: sum(bit[a] for a in t.free) for t in order},
        dtype={ids[t]: dtype_of(t) for t in order},
        roots=tuple(ids[o.term] for o in outputs),
        made={},
        source={c: nodes[0] for c, nodes in classes.items()},
        report=Report("saturated", len(classes), 0, 0.0),
    )


def _bound(term: Term) -> set[Axis]:
    return {term.axis} if isinstance(term, (Reduce, Online)) else set()


def dtype_of(term: Term) -> str:
    """The type that a term's value carries: a cast's own, f32 for arithmetic."""
    if isinstance(term, Cast):
        return term.dtype
    return term.buffer.dtype if isinstance(term, Load) else "f32"
