"""What the roles of one kernel are planned from: its loops, where their operands lie, and the
values that consumers hold in registers. Producer, formers and consumers walk the same streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nautile.codegen.schedule.structure import Structure
from nautile.codegen.sm90.memory import Geometry, Operation, Ring, Stream
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.rings import Placement
from nautile.codegen.sm90.streams import Batch, Item, Nest, after_loops, batches
from nautile.codegen.sm90.values import Values
from nautile.codegen.tile import Bounds, Read, Write

__all__ = ["Roles"]


@dataclass(frozen=True, slots=True)
class Roles:
    """A kernel without its operations. `dynamic`: tiles are drawn one by one."""

    structure: Structure
    options: Options
    root: Nest
    geometry: Geometry
    placement: Placement
    values: Values
    dynamic: bool

    def stream(self, nest: Nest, first: Sequence[Operation], body: Sequence[Operation]) -> Stream:
        """The blocks of a nest: `first` for the first of them where given."""
        b = nest.bounds
        inline = self.structure.inline
        terms = (b.first, b.stop, b.whole_first, b.whole_stop)
        bounds = Bounds(*(None if t is None else inline(t) for t in terms))
        tiles = tuple(self.structure.program.tiles[a] for a in nest.axes)
        return Stream(nest.axes, tiles, bounds, tuple(first), tuple(body), self.descending(nest))

    def descending(self, nest: Nest) -> bool:
        """From the last block down, where a mask or the extent cuts the last ones."""
        if self.options.descending is not None:
            return self.options.descending
        if any(isinstance(i, Write) for i in nest.items) or len(nest.axes) > 1:
            return False
        b, axis = nest.bounds, nest.axes[0]
        ragged = axis.extent % self.structure.program.tiles[axis] != 0
        return b.stop is not None or (ragged and b.first is None)

    def rings(self, nest: Nest) -> list[Ring]:
        """Those that the products of a nest read."""
        return [r for b in nest.batches if (r := self.placement.ring(b)) is not None]

    def uses_stay(self, item: Item) -> bool:
        """Whether an item reads what stays for the whole tile."""
        found = batches(item) if isinstance(item, Nest) else [item]
        return any(isinstance(b, Batch) and self.placement.stays(b) for b in found) or (
            isinstance(item, Read) and self.placement.elements(item)[1].stays
        )

    def stays_late(self) -> bool:
        """Whether what stays is read after all loops alone: then the next tile's moving operands
        need not wait until it has been."""
        return not self.dynamic and after_loops(
            self.root, list(filter(self.uses_stay, self.root.items))
        )
