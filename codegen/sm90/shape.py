"""The shape of a block: how many consumer warpgroups, and whether they share a tile."""

from __future__ import annotations

from nautile.codegen.schedule.structure import (
    CapacityError,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.sm90.boxes import Geometry
from nautile.codegen.sm90.options import CONSUMER_REGISTERS, Options
from nautile.codegen.sm90.place import stored, takes
from nautile.codegen.sm90.streams import Nest, is_lagged, is_promoted, is_skewed
from nautile.codegen.tile import Bounds, Write

__all__ = ["alone", "geometry"]

TURNS = 128 * 192  # elements of a tile that one warpgroup holds
DIRECT = 128 * 128  # of one whose results the copy engine does not store


def geometry(structure: Structure, root: Nest, options: Options) -> Geometry:
    """The block of a row tile: products whose tile one warpgroup can hold are taken in turn, so
    that one stores its results under the other's products; other tiles are divided."""
    row = structure.row
    rows = structure.program.tiles[row]
    if rows % 64:
        raise CapacityError(f"{rows} rows of {row} are no multiple of 64")
    turns = options.alternate
    lagged = alone(structure, root) is not None
    cluster = _cluster(structure, root, options)
    if turns is None:
        columns = sum(structure.width(c.column) for c in structure.contractions.values())
        most = TURNS if all(stored(structure, w) for w in _writes(structure)) else DIRECT
        turns = lagged and rows == 128 and rows * columns <= most
    if turns and (not lagged or rows > 128):
        raise UnsupportedError("warpgroups that take tiles in turn need one lagged loop")
    if turns:
        return Geometry(row, rows, 2, True, options.group, cluster)
    consumers = options.consumers or min(rows // 64, 2 if rows == 256 else 3)
    if rows % (64 * consumers) or consumers not in CONSUMER_REGISTERS:
        raise CapacityError(f"{rows} rows of {row} for {consumers} warpgroups")
    return Geometry(row, rows, consumers, False, options.group, cluster)


def _writes(structure: Structure) -> list[Write]:
    return [s for s in statements(structure.program.body) if isinstance(s, Write)]


def _cluster(structure: Structure, root: Nest, options: Options) -> int:
    """How many blocks bring together what moves with the loop: neighbours along the rows, all of
    which walk the same blocks of one lagged loop."""
    wanted = options.cluster or 1
    row, nests = structure.row, root.nests
    tiles = -(-row.extent // structure.program.tiles[row])
    walks = len(nests) == 1 and _walks(structure, nests[0])
    whole = walks and nests[0].bounds == Bounds() and tiles % wanted == 0
    whole = whole and all(takes(structure, c, c.right) for c in structure.contractions.values())
    return wanted if whole and not options.dynamic else 1


def _walks(structure: Structure, nest: Nest) -> bool:
    return is_lagged(structure, nest) or is_skewed(structure, nest)


def alone(structure: Structure, root: Nest) -> Nest | None:
    """The only loop, where it is a lagged one, no operand stays, and one accumulator does."""
    nests = root.nests
    if len(nests) != 1 or not is_lagged(structure, nests[0]) or root.batches:
        return None
    moves = (
        nests[0].axes[0] in structure.pure[t.name].free
        for c in nests[0].batches[0].contractions
        for t in (c.left, c.right)
    )
    promoted = is_promoted(structure, nests[0])
    return nests[0] if all(moves) and not promoted else None
