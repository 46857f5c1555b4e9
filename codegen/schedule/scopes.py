"""Where operands live: nests of loops, the tiles that each nest's ring holds, the rings' slots.

A loop's operands share one ring; what no loop changes lies in a slot of its own, in the outermost
nest that changes it. A left operand that is formed of copied elements has these in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nautile.codegen.memory import Fragment, Ring, SharedTile
from nautile.codegen.schedule.choices import Choices
from nautile.codegen.schedule.place import place, raw, whole
from nautile.codegen.schedule.structure import (
    CapacityError,
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.tile import Bounds, Fold, Loop, Map, Mma, Read, Statement, Tile
from nautile.terms import Axis, Term

__all__ = ["Placed", "Scope", "all_axes", "outer", "placement", "root"]


@dataclass(slots=True)
class Scope:
    """A nest of loops: its axes, and the tiles that its ring holds."""

    axes: tuple[Axis, ...]
    parent: Scope | None
    body: tuple[Statement, ...]
    bounds: Bounds = field(default_factory=Bounds)
    tiles: dict[tuple[Term, Axis, Axis], SharedTile] = field(default_factory=dict)
    ring: Ring | None = None
    packed: dict[tuple[str, str], Fragment] = field(default_factory=dict)


def placement(structure: Structure, choices: Choices) -> Placed:
    """Where everything lies. UnsupportedError for operands that cannot be copied or formed,
    CapacityError where the tiles exceed shared memory."""
    found = Placed(structure, choices, Scope((), None, structure.program.body))
    found.lay()
    return found


@dataclass(slots=True)
class Placed:
    """`scopes` by the loops' identities; `operands` by name and type: a tile and the nest whose
    ring holds it; `formed`: operands' values by name; `besides`: what else they are formed of;
    `stays`: those whose elements stay from one loop to another."""

    structure: Structure
    choices: Choices
    root: Scope
    rings: tuple[Ring, ...] = ()
    scopes: dict[int, Scope] = field(default_factory=dict)
    operands: dict[tuple[str, str], tuple[SharedTile, Scope]] = field(default_factory=dict)
    formed: dict[str, Term] = field(default_factory=dict)
    besides: dict[str, list[str]] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)

    def lay(self) -> None:
        """Every operand into its ring, and rings one after another."""
        self._place(self.root)
        self.rings = self._rings(self.root)

    def _place(self, scope: Scope) -> None:
        for statement in scope.body:
            if isinstance(statement, Loop):
                inner = self._nest(statement, scope)
                self.scopes[id(statement)] = inner
                self._place(inner)
            elif isinstance(statement, Mma):
                contraction = self.structure.contractions[statement.target.name]
                for tile, outside in (
                    (contraction.left, self.structure.row),
                    (contraction.right, contraction.column),
                ):
                    if self.structure.operand(tile.name) is not None:
                        self._operand(scope, contraction, tile, outside)

    def _nest(self, loop: Loop, parent: Scope) -> Scope:
        """A loop, joined with the one inside it where that is all that it does."""
        axes, body, bounds = [loop.axis], loop.body, loop.bounds
        while bounds == Bounds():
            acting = [s for s in body if not self.is_pure(s)]
            if len(acting) != 1 or not isinstance(acting[0], Loop) or acting[0].bounds != bounds:
                break
            axes.append(acting[0].axis)
            body = acting[0].body
        return Scope(tuple(axes), parent, body, bounds)

    def _operand(self, scope: Scope, c: Contraction, tile: Tile, outside: Axis) -> None:
        placed = place(self.structure, tile.name, outside, c.axis, c.operand)
        if tile is c.left and placed.filled == "compute":
            elements = raw(self.structure, c)
            if tile.name in self.structure.deep:
                if not elements:
                    raise UnsupportedError(f"{tile.name} is formed of elements that are not copied")
                if self._waits(scope, c):
                    step = self.structure.width(c.axis)
                    elements = [whole(e, c.axis, step) for e in elements]
                    self.stays.add(tile.name)
            if elements:
                self.formed[tile.name] = placed.value
                placed = elements[0]
                self.besides[tile.name] = [e.name for e in elements[1:]]
            scope = root(scope) if tile.name in self.stays else scope
            for element in elements[1:]:
                self._keep(scope, element, c.operand)
        self._keep(scope, placed, c.operand)

    def _waits(self, scope: Scope, c: Contraction) -> bool:
        """Whether a loop of its own has folded along the depth before: the operand's elements then
        stay in shared memory from one loop to the other."""
        here = [s for s in statements(scope.body) if isinstance(s, Fold)]
        folds = (s for s in statements(self.structure.program.body) if isinstance(s, Fold))
        return c.axis in scope.axes and any(s.axis == c.axis and s not in here for s in folds)

    def _keep(self, scope: Scope, placed: SharedTile, operand: str) -> None:
        home = scope
        while home.parent is not None and not any(a in placed.value.free for a in home.axes):
            home = home.parent
        key = (placed.value, placed.outer, placed.inner)
        kept = home.tiles.setdefault(key, placed)
        self.operands[placed.name, operand] = (kept, home)

    def _rings(self, root: Scope) -> tuple[Ring, ...]:
        """Slots of all rings, laid out one after another."""
        scopes = [root, *self.scopes.values()]
        stay = sum(t.bytes for t in root.tiles.values()) + self._reserved()
        slots = [sum(t.bytes for t in s.tiles.values()) for s in scopes[1:] if s.tiles]
        stages = self.choices.stages
        comfortable = self.choices.comfortable or self.choices.shared_limit
        while stages > 2 and stay + stages * sum(slots) > comfortable:
            stages -= 1
        if stay + (stages if slots else 1) * sum(slots) > self.choices.shared_limit:
            raise CapacityError("the tiles exceed shared memory")
        rings, offset = [], 0
        for number, scope in enumerate(s for s in scopes if s.tiles):
            nested = any(s.parent is scope for s in self.scopes.values() if s.tiles)
            count = 1 if scope is root else 2 if nested else stages
            scope.ring = _ring(f"r{number}", scope, count, offset)
            for name, (tile, home) in list(self.operands.items()):
                if home is scope:
                    now = next(t for t in scope.ring.tiles if t.name == tile.name)
                    self.operands[name] = (now, home)
            rings.append(scope.ring)
            offset += count * scope.ring.slot_bytes
        return tuple(rings)

    def is_pure(self, statement: Statement) -> bool:
        """Whether a statement is an operand's: what multiplies computes it."""
        if not isinstance(statement, (Map, Read)):
            return False
        return self.structure.operand(statement.target.name) is not None

    def deals(self, scope: Scope, s: Fold) -> bool:
        """Whether warp columns may share the blocks of a loop that folds and does no more."""
        return (
            self.choices.geometry.warp_columns > 1
            and s.repair is None
            and s.before is None
            and scope.parent is not None
            and scope.parent.parent is None
            and all(isinstance(other, Fold) or self.is_pure(other) for other in scope.body)
        )

    def formed_in_place(self, c: Contraction) -> bool:
        """Whether the raw elements that stay are replaced by the operand's before its loop: nothing
        else reads them then or later."""
        if c.left.name not in self.stays:
            return False
        tile, _ = self.operands[c.left.name, c.operand]
        mine = {name for (name, _), (t, _) in self.operands.items() if t == tile}
        loops = [s for s in self.structure.program.body if isinstance(s, Loop)]
        users = [loop for loop in loops if any(self._multiplies(s, c) for s in loop.body)]
        after = loops[loops.index(users[0]) :] if users else []
        folds = [s for s in statements(tuple(after)) if isinstance(s, Fold) and s.axis == c.axis]
        return tile.inner == c.axis and mine == {c.left.name} and len(users) == 1 and not folds

    def _multiplies(self, s: Statement, c: Contraction) -> bool:
        return isinstance(s, Mma) and c.left in (s.left, s.right)

    def _reserved(self) -> int:
        """Bytes that loops need whose folds warp columns share."""
        shared = any(
            isinstance(s, Fold) and self.structure.folded(s) is not None and self.deals(scope, s)
            for scope in self.scopes.values()
            for s in scope.body
        )
        return self.across() if shared else 0

    def across(self) -> int:
        """Bytes of shared memory for a value of every row and warp column."""
        g = self.choices.geometry
        return 4 * g.rows * g.warp_columns


def outer(scope: Scope) -> Iterable[Scope]:
    """The nests around a nest, the innermost first."""
    while scope.parent is not None:
        scope = scope.parent
        yield scope


def root(scope: Scope) -> Scope:
    """The outermost."""
    return scope if scope.parent is None else root(scope.parent)


def all_axes(scope: Scope) -> tuple[Axis, ...]:
    """The axes of all nests around a place."""
    return scope.axes + (all_axes(scope.parent) if scope.parent else ())


def _ring(name: str, scope: Scope, stages: int, offset: int) -> Ring:
    tiles, at = [], 0
    for tile in scope.tiles.values():
        tiles.append(replace(tile, offset=at))
        at += -(-tile.bytes // 128) * 128
    return Ring(name, stages, tuple(tiles), at, offset)
