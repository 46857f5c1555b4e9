"""Rings: which boxes share a slot, how many slots there are, and where all lies in shared memory.

The operands of a batch of contractions that move with a loop share that batch's ring; operands that
no loop moves share one ring, filled once a tile: of two slots where they fit, so that the next
tile's come early. Shared memory is laid out as rings, staging buffers, barriers, four words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nautile.codegen.kernel_text import identifier
from nautile.codegen.schedule.structure import (
    CapacityError,
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.sm90.boxes import FORMERS
from nautile.codegen.sm90.memory import (
    Advance,
    Box,
    Convert,
    Geometry,
    Operation,
    Release,
    Ring,
    WaitFull,
)
from nautile.codegen.sm90.options import ALIGNMENT, STAGING_BYTES, Options
from nautile.codegen.sm90.place import box, elements, sources, stored, takes
from nautile.codegen.sm90.streams import Batch, Nest, nests
from nautile.codegen.tile import Read, Tile, Write
from nautile.terms import Axis, Load, Term

__all__ = ["Placement", "cursor", "place"]

_STAY = 0
_RAW_STAGES = 2
Formed = tuple[tuple[tuple[Load, Box], ...], Term, Axis]  # sources, what is made of them, the depth
_LONGEST_NAME = 24


@dataclass(slots=True)
class Placement:
    """Where every operand lies; keys of rings are the identities of batches, 0 for what stays."""

    rings: tuple[Ring, ...]
    named: dict[int, Ring]
    found: dict[tuple[int, str, str], tuple[int, str]]
    staging: int
    words: int
    shared_bytes: int
    buffers: int = 2
    raws: dict[int, Ring] = field(default_factory=dict)
    values: dict[tuple[int, str], Formed] = field(default_factory=dict)

    @property
    def stay(self) -> Ring | None:
        return self.named.get(_STAY)

    def ring(self, batch: Batch) -> Ring | None:
        """The ring of the operands that move with the batch's loop."""
        return self.named.get(id(batch))

    def raw(self, batch: Batch) -> Ring | None:
        """The ring of what right operands of the batch are formed of."""
        return self.raws.get(id(batch))

    def converts(self, batch: Batch) -> list[Operation]:
        """The boxes of a batch's slot that are formed."""
        ring, raw = self.ring(batch), self.raw(batch)
        if ring is None or raw is None:
            return []
        found: list[Operation] = []
        for made in (b for b in ring.boxes if b.formed):
            raws, value, depth = self.values[id(batch), made.name]
            own = tuple((load, next(x for x in raw.boxes if _same(x, b)), raw) for load, b in raws)
            found.append(Convert(made, ring, own, value, depth))
        return found

    def stays(self, batch: Batch) -> bool:
        """Whether the batch reads what stays."""
        return any(k[0] == id(batch) and at == _STAY for k, (at, _) in self.found.items())

    def box(self, batch: Batch, c: Contraction, tile: Tile) -> tuple[Box, Ring]:
        key, name = self.found[id(batch), tile.name, c.operand]
        ring = self.named[key]
        return next(b for b in ring.boxes if b.name == name), ring

    def elements(self, s: Read) -> tuple[Box, Ring]:
        """Where elements lie that are computed with in registers."""
        return self.lies(s.target.name)

    def lies(self, tile: str) -> tuple[Box, Ring]:
        """Where the elements of such a tile lie."""
        key, name = self.found[0, tile, ""]
        ring = self.named[key]
        return next(b for b in ring.boxes if b.name == name), ring


def place(
    structure: Structure,
    root: Nest,
    geometry: Geometry,
    options: Options,
    dynamic: bool,
    most: int,
) -> Placement:
    """CapacityError where two slots of every ring do not fit."""
    gathered = _Gathered(structure)
    for nest in nests(root):
        for batch in nest.batches:
            gathered.batch(batch, nest)
        for item in nest.items:
            if isinstance(item, Read):
                gathered.elements(item, nest)
    gathered.share()
    if dynamic:
        gathered.boxes.setdefault(_STAY, [])
    slots = {key: sum(b.bytes for b in boxes) for key, boxes in gathered.boxes.items()}
    stages = most
    moving = sum(s for key, s in slots.items() if key != _STAY)
    each = geometry.consumers * geometry.fragments * STAGING_BYTES
    staging = each * options.buffers * any(_staged(structure))
    free = options.shared_limit - ALIGNMENT - staging - 1024
    free -= _RAW_STAGES * sum(b.bytes for boxes in gathered.raws.values() for b in boxes)
    while stages > 1 and stages * moving + slots.get(_STAY, 0) > free:
        stages -= 1
    if stages < 2 and (moving + slots.get(_STAY, 0) > free or moving):
        raise CapacityError("two slots of the tiles exceed shared memory")
    both = free - 2 * slots.get(_STAY, 0)
    if stages * moving > both >= (stages - 1) * moving and stages > 2:
        stages -= 1  # the next tile's rows early are worth more than a third slot
    twice = stages * moving <= both
    made = _laid_out(gathered, geometry, staging, {_STAY: 1 + twice}, stages)
    return replace(made, buffers=options.buffers)


def _staged(structure: Structure) -> Iterator[bool]:
    for s in statements(structure.program.body):
        if isinstance(s, Write):
            yield stored(structure, s) is not None


@dataclass(slots=True)
class _Gathered:
    """The boxes of each ring, in the order in which contractions name them."""

    structure: Structure
    boxes: dict[int, list[Box]] = field(default_factory=dict)
    found: dict[tuple[int, str, str], tuple[int, str]] = field(default_factory=dict)
    homes: dict[int, Nest] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)
    raws: dict[int, list[Box]] = field(default_factory=dict)
    values: dict[tuple[int, str], Formed] = field(default_factory=dict)

    def share(self) -> None:
        """Loops, one after the other, that bring the same boxes use one ring."""
        for key, boxes in list(self.boxes.items()):
            for other, kept in self.boxes.items():
                if other == key:
                    break
                same = len(kept) == len(boxes) and all(map(_same, kept, boxes))
                same = same and not any(b.formed for b in boxes)
                if same and _STAY not in (key, other) and self._apart(key, other):
                    self._join(key, other)
                    break

    def _apart(self, key: int, other: int) -> bool:
        return self.homes[key] is not self.homes[other] and not (
            self.homes[key].outer or self.homes[other].outer
        )

    def _join(self, key: int, other: int) -> None:
        names = {b.name: k.name for b, k in zip(self.boxes[key], self.boxes[other], strict=True)}
        for at, (home, name) in list(self.found.items()):
            if home == key:
                self.found[at] = (other, names[name])
        self.aliases[key] = other
        del self.boxes[key]

    def batch(self, batch: Batch, nest: Nest) -> None:
        lefts = [c for c in batch.contractions if self.structure.operand(c.left.name) is not None]
        for c in lefts:
            self.operand(batch, nest, c, c.left, self.structure.row)
        for c in batch.contractions:
            if takes(self.structure, c, c.right):
                self.operand(batch, nest, c, c.right, c.column)
            else:
                self.formed(batch, nest, c)

    def operand(self, batch: Batch, nest: Nest, c: Contraction, tile: Tile, outside: Axis) -> None:
        made = box(self.structure, c, tile.name, outside)
        value = self.structure.pure[tile.name]
        moves = any(a in value.free for a in (*nest.outer, *nest.axes))
        key = id(batch) if moves else _STAY
        self._put(key, nest, made, (id(batch), tile.name, c.operand))

    def formed(self, batch: Batch, nest: Nest, c: Contraction) -> None:
        """The box of a right operand that is formed of others, and theirs."""
        value = self.structure.operand(c.right.name)
        assert value is not None
        raws = sources(self.structure, c, value)
        first = raws[0][1]
        made = replace(first, name=c.right.name, element=c.operand, come=first.rows, formed=True)
        if not any(a in value.free for a in (*nest.outer, *nest.axes)):
            raise UnsupportedError(f"{c.right.name} is computed on its way, and stays")
        self._put(id(batch), nest, made, (id(batch), c.right.name, c.operand))
        held = self.raws.setdefault(id(batch), [])
        for _, b in raws:
            held += [] if any(_same(b, other) for other in held) else [b]
        self.values[id(batch), made.name] = (raws, value, c.axis)

    def elements(self, s: Read, nest: Nest) -> None:
        """The box of elements that are computed with in registers: it moves with the product of its
        loop."""
        depth = self.structure.columns[s.target.name]
        assert depth is not None
        made = elements(self.structure, Load(s.buffer, s.coordinates), depth)
        moves = any(a in c.free for c in s.coordinates for a in (*nest.outer, *nest.axes))
        if made is None or (moves and len(nest.batches) != 1):
            raise UnsupportedError(f"elements of {s.buffer.name} move with no product")
        self._put(id(nest.batches[0]) if moves else _STAY, nest, made, (0, s.target.name, ""))

    def _put(self, key: int, nest: Nest, made: Box, at: tuple[int, str, str]) -> None:
        """A box into the ring of a key, if none is there that brings the same."""
        self.homes[key] = nest
        boxes = self.boxes.setdefault(key, [])
        same = next((b for b in boxes if _same(b, made)), None)
        if same is None:
            boxes.append(made)
        self.found[at] = (key, (same or made).name)


def _same(a: Box, b: Box) -> bool:
    return replace(a, name=b.name, offset=0) == b


def _laid_out(
    gathered: _Gathered, geometry: Geometry, staging: int, counts: dict[int, int], stages: int
) -> Placement:
    rings: dict[int, Ring] = {}
    at = 0
    names: set[str] = set()
    for key in sorted(gathered.boxes, key=lambda k: k != _STAY):
        boxes, inner = [], 0
        for b in gathered.boxes[key]:
            whole = key == _STAY or geometry.row in b.inside
            boxes.append(replace(b if whole else b.shared(geometry.cluster), offset=inner))
            inner += b.bytes
        count = counts.get(key, stages)
        name = _ring_name(boxes, names)
        names.add(name)
        blocks = max((b.blocks for b in boxes), default=1)
        rings[key] = Ring(
            name, count, tuple(boxes), inner, at, 0, geometry.arrivals, key == _STAY, blocks
        )
        at += count * inner
    raws: dict[int, Ring] = {}
    for key, found in gathered.raws.items():
        boxes, inner = [], 0
        for b in found:
            boxes.append(replace(b, offset=inner))
            inner += b.bytes
        name = _ring_name(boxes, names)
        names.add(name)
        raws[key] = Ring(name, _RAW_STAGES, tuple(boxes), inner, at, 0, FORMERS, raw=True)
        at += _RAW_STAGES * inner
    begin, at = at, at + staging
    for some in (rings, raws):
        for key, ring in some.items():
            some[key] = replace(ring, barriers=at)
            at += 16 * ring.stages
    every = (*rings.values(), *raws.values())
    rings |= {key: rings[other] for key, other in gathered.aliases.items()}
    size = at + 16 + ALIGNMENT
    return Placement(
        every, rings, gathered.found, begin, at, size, raws=raws, values=gathered.values
    )


def _ring_name(boxes: list[Box], taken: set[str]) -> str:
    """The buffers' names, or the tile's number alone."""
    name = "_".join(dict.fromkeys(identifier(b.map.buffer) for b in boxes)) or "turn"
    name = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME].rstrip("_")
    number = 2
    while name in taken:
        name, number = f"{name}_{number}", number + 1
    return name


def cursor(ring: Ring | None) -> tuple[list[Operation], list[Operation]]:
    """To take the slot at a ring's cursor, and to free it."""
    if ring is None:
        return [], []
    return [WaitFull(ring)], [Release(ring), Advance(ring)]
