"""The second launch of a split, done by the blocks of the first: the last of a group that ends.

```
Closing ::= over, boxes {axis: (width, steps {axis: step})}
```

Blocks that differ only in the tiles of the axes `over` (the chunks) make the states of the same
results: they are a group. The block of a group that ends last closes it: all states of the group
are stored by then, and it computes the group's results from them. Along a result's axis these are
the `width` positions from the sum of step * tile over the axes of `steps`, tile being the number
of the group's tile along that axis. One launch in place of two, and states are merged in the order
of the chunks whichever block ends last, so that results are the same from run to run. (The last
block: NVIDIA, CUDA C++ Programming Guide, "Memory Fence Functions", sample threadFenceReduction.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nautile.terms import (
    Apply,
    Axis,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Term,
    walk,
)

__all__ = ["Box", "Closing", "closing"]

LONGEST = 1 << 20  # positions of one axis that are looked at
Integers = npt.NDArray[np.int64]
Outputs = tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """`width` positions of an axis from the sum of step * (number of the tile) on."""

    width: int
    steps: Mapping[Axis, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Closing:
    """See the module's docstring; `over` are grid axes of the states, `boxes` has every axis of the
    results."""

    over: tuple[Axis, ...]
    boxes: Mapping[Axis, Box]


def closing(states: Outputs, tiles: Mapping[Axis, int], results: Outputs) -> Closing | None:
    """How blocks that make the states in these tiles can close the results, or None: where results
    need states of several groups, or are not boxes."""
    known = {o.buffer: o.axes for o in states}
    loads = [t for t in walk(*(o.term for o in results)) if isinstance(t, Load)]
    places = _places((t for t in loads if t.buffer in known), known)
    if places is None or not any(t.buffer in known for t in loads):
        return None
    bound = {t.axis for t in walk(*(o.term for o in results)) if isinstance(t, (Reduce, Online))}
    over = tuple(a for a, t in places.items() if isinstance(t, Index) and t.axis in bound)
    grid = dict.fromkeys(a for o in states for a in o.axes)
    if not over or any(places[a].free & bound for a in places if a not in over):
        return None
    if any(a not in places and -(-a.extent // tiles[a]) > 1 for a in grid):
        return None
    boxes = _boxes({a: t for a, t in places.items() if a not in over}, tiles, results)
    return Closing(over, boxes) if boxes is not None else None


def _places(
    loads: Iterable[Load], known: Mapping[Buffer, tuple[Axis, ...]]
) -> dict[Axis, Term] | None:
    """The coordinate along each axis of the states, where it is the same in all loads."""
    places: dict[Axis, Term] = {}
    for load in loads:
        for axis, term in zip(known[load.buffer], load.coordinates, strict=True):
            if places.setdefault(axis, term) != term:
                return None
    return places


def _boxes(
    places: Mapping[Axis, Term], tiles: Mapping[Axis, int], results: Outputs
) -> dict[Axis, Box] | None:
    """The positions of each of the results' axes that a group has."""
    axes = tuple(dict.fromkeys(a for o in results for a in o.axes))
    owners: dict[Axis, list[Axis]] = {a: [] for a in axes}
    for axis, term in places.items():
        if len(term.free) > 1 or not term.free <= set(axes):
            return None
        for own in term.free:
            owners[own].append(axis)
    boxes: dict[Axis, Box] = {}
    for own in axes:
        rows = {a: _tile_numbers(places[a], own, tiles[a]) for a in owners[own]}
        box = _box(own, rows, {a: -(-a.extent // tiles[a]) for a in owners[own]})
        several = any(a.extent > tiles[a] for a in rows)
        if box is None or (several and any(own not in o.axes for o in results)):
            return None
        boxes[own] = box
    return boxes


def _tile_numbers(term: Term, axis: Axis, tile: int) -> Integers | None:
    """The number of the tile in which each position of the axis has its state."""
    if axis.extent > LONGEST:
        return None
    values = _values(term, axis)
    return None if values is None else np.broadcast_to(values // tile, (axis.extent,))


def _values(term: Term, axis: Axis) -> Integers | None:
    """An integer term at every position of its only axis; None for one of another kind."""
    match term:
        case Const(value) if type(value) is int:
            return np.array(value)
        case Index(own) if own == axis:
            return np.arange(axis.extent)
        case Apply("add" | "sub" | "mul" | "floordiv" | "mod" as operation, (a, b)):
            left, right = _values(a, axis), _values(b, axis)
            zero = operation in ("floordiv", "mod") and isinstance(b, Const) and not b.value
            if left is None or right is None or zero:
                return None
            found: Integers = _INTEGERS[operation](left, right)
            return found
    return None


_INTEGERS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
}


def _box(own: Axis, rows: Mapping[Axis, Integers | None], counts: Mapping[Axis, int]) -> Box | None:
    """The box of one axis, where every group has one run of its positions, at even steps."""
    if not rows:
        return Box(own.extent)
    if any(r is None for r in rows.values()):
        return None
    table = np.stack([r for r in rows.values() if r is not None])
    starts = np.flatnonzero(np.r_[True, np.any(table[:, 1:] != table[:, :-1], axis=0)])
    keys = table[:, starts]
    many = int(np.prod([counts[a] for a in rows]))
    if len(starts) != many or len(np.unique(keys, axis=1).T) != many:
        return None
    steps = {}
    for i, axis in enumerate(rows):
        first = np.all(np.delete(keys, i, axis=0) == 0, axis=0) & (keys[i] == 1)
        steps[axis] = int(starts[first][0]) if first.any() else 0
    expected = sum(keys[i] * steps[a] for i, a in enumerate(rows))
    widths = np.diff(np.r_[starts, own.extent])
    if np.any(expected != starts) or np.any(widths[:-1] != widths[0]):
        return None
    return Box(int(widths[0]), steps)
