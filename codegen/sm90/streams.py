"""The loops of a tile program as nests of blocks, and what stands in them: batches of contractions
that are issued together, and other statements in order. Values of memory alone are no items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from nautile.codegen.schedule.registers import reads
from nautile.codegen.schedule.structure import (
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Bounds, Fold, Loop, Map, Mma, Read, Statement, Write
from nautile.terms import Apply, Axis, Const, Index, Term

__all__ = [
    "Batch",
    "Item",
    "Nest",
    "after_loops",
    "batches",
    "contractions",
    "depends",
    "heavy_first",
    "is_formed",
    "is_lagged",
    "is_promoted",
    "is_skewed",
    "items",
    "nests",
    "only_first_partial",
    "walk_items",
]

LONGEST_SUM = 512  # products of 8-bit operands that the tensor cores sum
_ORIGINS = 4096  # combinations of origins that are tried, at most


@dataclass(slots=True, eq=False)
class Batch:
    """Contractions with no work of other kinds between them."""

    contractions: list[Contraction] = field(default_factory=list)

    def computed(self, structure: Structure) -> bool:
        """Whether a left operand is computed from other contractions."""
        return any(structure.operand(c.left.name) is None for c in self.contractions)


@dataclass(slots=True, eq=False)
class Nest:
    """Loops that do nothing but the innermost one's work, inside the loops over `outer`; the root
    has no axes. A nest inside another sums products and does no more."""

    axes: tuple[Axis, ...]
    bounds: Bounds
    items: list[Item]
    outer: tuple[Axis, ...] = ()

    def carries(self, c: Contraction) -> bool:
        return any(a in c.statement.axes for a in self.axes)

    @property
    def batches(self) -> list[Batch]:
        return [i for i in self.items if isinstance(i, Batch)]

    @property
    def nests(self) -> list[Nest]:
        return [i for i in self.items if isinstance(i, Nest)]


Item = Batch | Nest | Read | Map | Fold | Write


def items(
    structure: Structure, body: tuple[Statement, ...], around: tuple[Axis, ...] = ()
) -> list[Item]:
    """What a body does, in order."""
    found: list[Item] = []
    for s in body:
        if isinstance(s, Mma):
            if not found or not isinstance(found[-1], Batch):
                found.append(Batch())
            last = found[-1]
            assert isinstance(last, Batch)
            last.contractions.append(structure.contractions[s.target.name])
        elif isinstance(s, Loop):
            found.append(_nest(structure, s, around))
        elif not is_pure(structure, s):
            assert isinstance(s, (Read, Map, Fold, Write))
            found.append(s)
    return found


def is_pure(structure: Structure, s: Statement) -> bool:
    return isinstance(s, (Map, Read)) and structure.operand(s.target.name) is not None


def _nest(structure: Structure, loop: Loop, around: tuple[Axis, ...]) -> Nest:
    axes, body, bounds = [loop.axis], loop.body, loop.bounds
    while bounds == Bounds():
        acting = [s for s in body if not is_pure(structure, s)]
        if len(acting) != 1 or not isinstance(acting[0], Loop) or acting[0].bounds != bounds:
            break
        axes.append(acting[0].axis)
        body = acting[0].body
    nest = Nest(tuple(axes), bounds, items(structure, body, (*around, *axes)), around)
    for inner in nest.nests:
        if not is_lagged(structure, inner) or any(nest.carries(c) for c in contractions(inner)):
            raise UnsupportedError("a loop inside a loop that does more than sum products")
    return nest


def contractions(nest: Nest) -> list[Contraction]:
    """All, those of inner nests too."""
    return [c for b in batches(nest) for c in b.contractions]


def batches(nest: Nest) -> list[Batch]:
    """All, those of inner nests too."""
    return nest.batches + [b for n in nest.nests for b in batches(n)]


def nests(root: Nest) -> list[Nest]:
    """The nest itself and all inside it."""
    return [root] + [n for inner in root.nests for n in nests(inner)]


def is_lagged(structure: Structure, nest: Nest) -> bool:
    """Whether a loop does nothing but sums of products of operands from memory."""
    if len(nest.items) != 1 or not isinstance(nest.items[0], Batch):
        return False
    batch = nest.items[0]
    return not batch.computed(structure) and all(
        nest.carries(c) and c.statement.repair is None for c in batch.contractions
    )


def is_formed(structure: Structure, nest: Nest) -> bool:
    """Whether a loop sums products whose left operands are formed of elements that it reads, and
    folds such elements beside them; nothing in it waits for the products."""
    if nest.nests or len(nest.batches) != 1 or nest.items[-1] is not nest.batches[0]:
        return False
    batch = nest.batches[0]
    return any(isinstance(i, Read) for i in nest.items) and all(
        nest.carries(c) and c.statement.repair is None for c in batch.contractions
    )


def is_promoted(structure: Structure, nest: Nest) -> bool:
    """Whether a lagged loop sums so many products of 8-bit operands that the tensor cores' sum
    would lose digits that the operands have."""
    depth = prod(a.extent for a in nest.axes)
    eights = all(c.operand.startswith("f8") for b in nest.batches for c in b.contractions)
    return is_lagged(structure, nest) and eights and depth > LONGEST_SUM


def is_skewed(structure: Structure, nest: Nest) -> bool:
    """Whether a loop's second batch multiplies what is computed from its first, and nothing in the
    loop reads what the second sums."""
    if len(nest.batches) != 2 or nest.items[0] is not nest.batches[0] or nest.nests:
        return False
    scores, mixed = nest.batches
    made = {c.statement.target.name for c in mixed.contractions}
    return (
        not scores.computed(structure)
        and not any(nest.carries(c) for c in scores.contractions)
        and all(nest.carries(c) for c in mixed.contractions)
        and all(structure.operand(c.left.name) is None for c in mixed.contractions)
        and not any(depends(i, made) for i in nest.items)
        and not any(isinstance(i, Write) for i in nest.items)
    )


def after_loops(root: Nest, chosen: list[Item]) -> bool:
    """Whether some items are chosen, and all stand after every loop of the root."""
    last = max((n for n, i in enumerate(root.items) if isinstance(i, Nest)), default=-1)
    return bool(chosen) and all(item in root.items[last + 1 :] for item in chosen)


def depends(item: Item, names: set[str]) -> bool:
    """Whether an item reads one of the values."""
    match item:
        case Batch():
            return any(reads(c.statement) & names for c in item.contractions)
        case Nest():
            return any(depends(i, names) for i in item.items)
    return bool(reads(item) & names)


def only_first_partial(nest: Nest, tiles: Mapping[Axis, int], descending: bool) -> bool:
    """Whether every block but the first to run is whole, wherever the tile lies."""
    b, axis = nest.bounds, nest.axes[0]
    count = -(-axis.extent // tiles[axis])
    terms = [t for t in (b.first, b.stop, b.whole_first, b.whole_stop) if t is not None]
    free = sorted(frozenset().union(*(t.free for t in terms)))
    origins = [range(0, a.extent, tiles[a]) for a in free]
    size = 1
    for o in origins:
        size *= len(o)
    if size > _ORIGINS:
        return False
    for at in product(*origins):
        where = dict(zip(free, at, strict=True))
        values = [_value(t, where) for t in (b.first, b.stop, b.whole_first, b.whole_stop)]
        if any(v is None and t is not None for v, t in zip(values, _all(b), strict=True)):
            return False
        if not _whole_after_first(values, count, descending):
            return False
    return True


def _all(b: Bounds) -> tuple[Term | None, ...]:
    return (b.first, b.stop, b.whole_first, b.whole_stop)


def _whole_after_first(values: list[int | None], count: int, descending: bool) -> bool:
    first = min(max(values[0] or 0, 0), count - 1)
    stop = count if values[1] is None else min(max(values[1], first + 1), count)
    low = 0 if values[2] is None else values[2]
    high = count if values[3] is None else values[3]
    rest = range(first, stop - 1) if descending else range(first + 1, stop)
    return not rest or (rest[0] >= low and rest[-1] < high)


def _value(term: Term | None, where: Mapping[Axis, int]) -> int | None:
    """An integer term of indices; None where it is of another kind."""
    match term:
        case Const(value):
            return int(value)
        case Index(axis):
            return where.get(axis)
        case Apply(operation, arguments):
            inner = [_value(a, where) for a in arguments]
            known = [v for v in inner if v is not None]
            if operation in _INTEGERS and len(known) == len(inner):
                return _INTEGERS[operation](known)
    return None


_INTEGERS: Mapping[str, Callable[[list[int]], int]] = {
    "add": lambda a: a[0] + a[1],
    "sub": lambda a: a[0] - a[1],
    "mul": lambda a: a[0] * a[1],
    "neg": lambda a: -a[0],
    "min": min,
    "max": max,
    "floordiv": lambda a: a[0] // a[1],
    "mod": lambda a: a[0] % a[1],
}


def heavy_first(structure: Structure) -> bool:
    """Whether later row tiles have more blocks to stream."""
    loops = [s for s in statements(structure.program.body) if isinstance(s, Loop)]
    return any(s.bounds.stop is not None and structure.row in s.bounds.stop.free for s in loops)


def walk_items(found: list[Item]) -> Iterator[Item]:
    for item in found:
        yield item
        if isinstance(item, Nest):
            yield from walk_items(item.items)
