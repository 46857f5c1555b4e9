"""A chosen kernel's part -> a tile program, from its terms and schedule alone.

Every distinct subterm has one value. A value is computed in the outermost loop nest that has its
streamed axes, so what a loop does not change is hoisted out of it. Reductions over a streamed axis
are grouped into passes: a reduction's pass comes after those of the complete reductions that it
reads, and running values put dependent reductions into their carrier's pass. Sums of products are
contractions where `contraction.py` says so. An output that has a streamed axis is stored inside a
pass over that axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nautile.codegen.contraction import Contraction
from nautile.codegen.masks import with_mask_bounds
from nautile.codegen.normalise import normalise
from nautile.codegen.products import Reduction, moves, products
from nautile.codegen.tile import (
    Fold,
    Loop,
    Map,
    Mma,
    Read,
    Ref,
    Statement,
    Tile,
    TileProgram,
    Write,
)
from nautile.codegen.types import carrier, dtype_of
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel, Part
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    children,
    rebuild,
    walk,
)

__all__ = ["lower", "meanings"]

Axes = frozenset[Axis]


def lower(kernel: Kernel, part: Part, *, rounding: bool = True) -> TileProgram:
    """The tile program of one part. `rounding` allows the tensor cores' rounding of an f32 operand
    to the other operand's narrow type; raises LoweringError where the schedule does not fit."""
    number = kernel.parts.index(part)
    name = kernel.name if len(kernel.parts) == 1 else f"{kernel.name}_{number}"
    return with_mask_bounds(_Lowering.of(name, part, rounding).program())


def meanings(kernel: Kernel, part: Part, *, rounding: bool = True) -> dict[str, Term]:
    """What each tile of `lower`'s program holds, by the tile's name: a subterm of the part's terms
    in the form that lowering reads. A tile that a loop carries is named by its reduction."""
    lowering = _Lowering.of(kernel.name, part, rounding)
    lowering.program()
    return lowering.meanings


@dataclass(slots=True)
class _Scope:
    """The inside of a loop nest: its axes, its statements, and the values known there."""

    axes: tuple[Axis, ...]
    parent: _Scope | None = None
    statements: list[Statement] = field(default_factory=list)
    values: dict[Term, Tile] = field(default_factory=dict)
    folding: set[Reduction] = field(default_factory=set)


@dataclass(slots=True)
class _Lowering:
    """The state of lowering one part."""

    name: str
    outputs: tuple[Output, ...]
    tiles: dict[Axis, int]
    streams: tuple[Axis, ...]
    grid: tuple[Axis, ...]
    order: tuple[Axis, ...]
    rounding: bool
    plans: dict[Reduction, Contraction | None] = field(default_factory=dict)
    roots: set[Term] = field(default_factory=set)
    befores: set[Term] = field(default_factory=set)
    levels: dict[tuple[Term, Axes], int] = field(default_factory=dict)
    started: set[tuple[Axes, Axis, int]] = field(default_factory=set)
    axes: dict[Term, Axes] = field(default_factory=dict)
    meanings: dict[str, Term] = field(default_factory=dict)
    count: int = 0

    @classmethod
    def of(cls, name: str, part: Part, rounding: bool) -> _Lowering:
        streams = frozenset(part.streams)
        outputs = tuple(
            Output(o.buffer, o.axes, normalise(o.term, streams, part.tiles)) for o in part.outputs
        )
        terms = [o.term for o in outputs]
        bound = {t.axis for t in walk(*terms) if isinstance(t, (Reduce, Online))}
        stored = tuple(dict.fromkeys(a for o in outputs for a in o.axes))
        grid = tuple(a for a in stored if a not in bound and a not in streams)
        used = dict.fromkeys((*grid, *part.streams, *stored))
        used |= dict.fromkeys(a for t in walk(*terms) for a in sorted(t.free))
        used |= dict.fromkeys(sorted(bound))
        tiles = {a: part.tiles.get(a, a.extent) for a in used}
        self = cls(name, outputs, tiles, part.streams, grid, tuple(used), rounding)
        self._check()
        found = products(terms, streams, tiles, rounding)
        self.plans, self.roots, self.befores = found.plans, found.roots, found.befores
        return self

    def _check(self) -> None:
        """Grid axes may be tiled as one likes; resident ones must be covered."""
        for axis, tile in self.tiles.items():
            if tile < 1:
                raise LoweringError(f"axis {axis} has a tile of {tile}")
            if axis not in self.grid and axis not in self.streams and tile < axis.extent:
                raise LoweringError(
                    f"axis {axis} (extent {axis.extent}) is resident, but its tile is {tile}"
                )

    # -- loop nests -----------------------------------------------------------------------------

    def streamed(self, axes: Iterable[Axis]) -> Axes:
        return frozenset(axes) & frozenset(self.streams)

    def program(self) -> TileProgram:
        root = _Scope(())
        for output in self.outputs:
            nest = self.streamed(output.axes)
            if nest:
                self._start(root, self._first(nest), self._level(output.term, frozenset()))
            else:
                self._write(root, output)
        return TileProgram(self.name, self.tiles, self.grid, tuple(root.statements))

    def _first(self, nest: Axes) -> Axis:
        """The outermost axis of a nest, in the order of the schedule."""
        return next(a for a in self.streams if a in nest)

    def _level(self, term: Term, home: Axes) -> int:
        """The first pass inside the nest `home` in which the term can be computed."""
        for node in walk(term):
            if (node, home) not in self.levels:
                self.levels[node, home] = self._level_of(node, home)
        return self.levels[term, home]

    def _level_of(self, node: Term, home: Axes) -> int:
        below = max((self.levels[c, home] for c in children(node)), default=0)
        if isinstance(node, (Reduce, Online)) and self._loops(node):
            if self.streamed(node.free) == home:
                return below + 1
            return 0 if self.streamed(node.free) < home else below
        if isinstance(node, (Running, Before)):
            if self._inside(node) == home:
                return below - 1
            if node.axis in home:
                # The value so far has what this position adds: passes inside the loop come first.
                return max(self.levels[c, home] for c in children(node.reduction))
        return below

    def _inside(self, node: Running | Before) -> Axes:
        return self.streamed(node.reduction.free)

    def _loops(self, term: Reduction) -> Axis | None:
        """The streamed axis that the reduction's pass walks, or None where all are resident."""
        plan = self.plans[term]
        axes = plan.axes if plan else (term.axis,)
        return next((a for a in axes if a in self.streams), None)

    def _members(self, home: Axes, axis: Axis, level: int) -> list[Reduction]:
        """The reductions of one pass."""
        return [
            t
            for t in self.plans
            if self._loops(t) == axis
            and self.streamed(t.free) == home
            and self._level(t, home) == level + 1
        ]

    def _with_carriers(self, members: list[Reduction]) -> list[Reduction]:
        """The members and the reductions whose running values they read: where a member waits for
        another pass, its carriers are followed again in its own."""
        found = dict.fromkeys(members)
        stack = list(members)
        while stack:
            for term in walk(*children(stack.pop())):
                if isinstance(term, (Running, Before)) and term.reduction not in found:
                    assert isinstance(term.reduction, (Reduce, Online))
                    if any(term.reduction.axis == m.axis for m in members):
                        found[term.reduction] = None
                        stack.append(term.reduction)
        return list(found)

    def _start(self, scope: _Scope, axis: Axis, level: int) -> None:
        """Emit the pass over `axis` at `level` of this nest, unless it has run already."""
        home = frozenset(scope.axes)
        if (home, axis, level) in self.started:
            return
        self.started.add((home, axis, level))
        inner = _Scope((*scope.axes, axis), scope)
        members = self._with_carriers(self._members(home, axis, level))
        inner.folding.update(members)
        for term in members:
            self._folded(inner, term)
        self._stores(inner, home, axis, level)
        scope.statements.append(Loop(axis, tuple(inner.statements)))
        for term in members:
            scope.values[term] = inner.values[Running(term) if term.axis == axis else term]
        self._forget(frozenset(inner.axes))

    def _forget(self, nest: Axes) -> None:
        """A loop body that has ended: another one over the same axes has passes of its own."""
        self.started = {s for s in self.started if not s[0] >= nest}

    def _stores(self, inner: _Scope, home: Axes, axis: Axis, level: int) -> None:
        here = frozenset(inner.axes)
        for output in self.outputs:
            nest = self.streamed(output.axes)
            if not here <= nest or self._first(nest - home) != axis:
                continue
            if self._level(output.term, home) != level:
                continue
            if nest == here:
                self._write(inner, output)
            else:
                deeper = self._level(output.term, here)
                self._start(inner, self._first(nest - here), deeper)

    def _write(self, scope: _Scope, output: Output) -> None:
        source = self.value(scope, output.term)
        coordinates = tuple(Index(a) for a in output.axes)
        scope.statements.append(Write(output.buffer, coordinates, source))

    # -- values ---------------------------------------------------------------------------------

    def value(self, scope: _Scope, term: Term) -> Tile:
        """The term's tile, computed at its home scope where it is not known yet."""
        home = self._home(scope, term)
        if term not in home.values:
            home.values[term] = self._compute(home, term)
        return home.values[term]

    def _home(self, scope: _Scope, term: Term) -> _Scope:
        needed = self.streamed(term.free)
        if not needed <= frozenset(scope.axes):
            missing = ", ".join(map(str, needed - frozenset(scope.axes)))
            raise LoweringError(f"{self.name}: no pass over {missing} computes the value")
        while scope.parent is not None and needed <= frozenset(scope.parent.axes):
            scope = scope.parent
        return scope

    def _compute(self, scope: _Scope, term: Term) -> Tile:
        match term:
            case Load(buffer, coordinates):
                places = tuple(self._pointwise(scope, c, None) for c in coordinates)
                target = self._tile(term, buffer.dtype)
                scope.statements.append(Read(target, buffer, places))
                return target
            case Reduce() | Online():
                return self._reduction(scope, term)
            case Running(reduction):
                return self._running(scope, reduction)
            case Before(reduction):
                self.value(scope, Running(reduction))
                return scope.values[term]
        target = self._tile(term, dtype_of(term))
        value = self._pointwise(scope, term, term)
        scope.statements.append(Map(target, value))
        return target

    def _tile(self, term: Term, dtype: str, prefix: str = "t") -> Tile:
        self.count += 1
        varying = self._varying(term)
        axes = tuple(a for a in self.order if a in varying)
        tile = Tile(f"{prefix}{self.count - 1}", axes, dtype)
        self.meanings[tile.name] = term
        return tile

    def _varying(self, root: Term) -> Axes:
        """The axes of the term's tile: a running value is one for the whole block of its axis."""
        for term in walk(root):
            if term not in self.axes:
                inner = frozenset[Axis]().union(*(self.axes[c] for c in children(term)))
                bound = {term.axis} if isinstance(term, (Reduce, Online)) else set()
                own = {term.axis} if isinstance(term, Index) else set()
                self.axes[term] = (inner | own) - bound
        return self.axes[root]

    def _pointwise(self, scope: _Scope, root: Term, whole: Term | None) -> Term:
        """The term with every tile of its own replaced by a Ref."""
        done: dict[Term, Term] = {}
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if term in done:
                continue
            if term is not whole and self._is_tile(term, root):
                done[term] = Ref(self.value(scope, term))
            elif ready:
                done[term] = rebuild(term, tuple(done[c] for c in children(term)))
            else:
                stack.append((term, True))
                stack.extend((c, False) for c in reversed(children(term)))
        return done[root]

    def _is_tile(self, term: Term, root: Term) -> bool:
        if isinstance(term, (Load, Reduce, Online, Running, Before)):
            return True
        if not isinstance(term, (Apply, Cast)) or dtype_of(root) == "i32":
            return False
        hoisted = self.streamed(term.free) < self.streamed(root.free) and _costs(term)
        return term in self.roots or hoisted

    # -- reductions -----------------------------------------------------------------------------

    def _reduction(self, scope: _Scope, term: Reduction) -> Tile:
        axis = self._loops(term)
        if axis is None:
            return self._statement(scope, term)
        self._start(scope, axis, self._level(term, frozenset(scope.axes)) - 1)
        if term not in scope.values:
            raise LoweringError(f"{self.name}: a reduction over {axis} is read inside its own pass")
        return scope.values[term]

    def _running(self, scope: _Scope, term: Term) -> Tile:
        assert isinstance(term, (Reduce, Online))
        if term not in scope.folding:
            raise LoweringError(f"{self.name}: a running value is read outside its pass")
        return self._statement(scope, term)

    def _folded(self, scope: _Scope, term: Reduction) -> Tile:
        """The carried statement of a reduction inside its pass."""
        key: Term = Running(term) if term.axis == scope.axes[-1] else term
        if key not in scope.values:
            scope.values[key] = self._statement(scope, term)
        return scope.values[key]

    def _splits(self, plan: Contraction) -> bool:
        return self.rounding and plan.operand == "f32"

    def _statement(self, scope: _Scope, term: Reduction) -> Tile:
        """Emit the Fold or Mma of a reduction here."""
        plan = self.plans[term]
        repair, offset = (None if t is None else self.value(scope, t) for t in moves(term))
        target = self._tile(term, carrier(dtype_of(term)), "m" if plan else "r")
        if plan:
            left, right = self.value(scope, plan.left), self.value(scope, plan.right)
            kind = _accumulator(plan.operand)
            target = Tile(target.name, target.axes, kind)
            scope.statements.append(
                Mma(
                    target, left, right, plan.axes, plan.operand, repair, offset, self._splits(plan)
                )
            )
            return target
        source = self.value(scope, term.body)
        monoid = term.monoid if isinstance(term, Reduce) else "sum"
        before = None
        if term in self.befores:
            before = Tile(f"{target.name}_before", target.axes, target.dtype)
            self.meanings[before.name] = Before(term)
            scope.values[Before(term)] = before
        scope.statements.append(Fold(target, monoid, term.axis, source, repair, before, offset))
        return target


def _accumulator(operand: str) -> str:
    return operand if operand in ("f64", "i32", "i64") else "f32"


def _costs(term: Term) -> bool:
    """Whether computing the term once instead of in every iteration saves anything."""
    return any(isinstance(t, (Load, Reduce, Online)) for t in walk(term)) or not all(
        isinstance(t, (Index, Const)) or _integer(t) for t in walk(term)
    )


def _integer(term: Term) -> bool:
    return dtype_of(term) in ("i32", "i64", "bool")
