"""Which tile programs the tensor-core path takes, and the roles of their axes.

Every contraction multiplies a left operand (rows x depth) by a right one (depth x columns). One row
axis is common to all of them; a tile computed from an accumulator is a left operand. A value is
- **pure**: reads and maps of reads; it is inlined as a term of Loads wherever it is used;
- a **fragment**: an accumulator, or computed from one; it lies in registers, over the row axis and
  at most one column axis;
- **deep**: over rows and a contracted axis, and no accumulator; it is inlined as a term of Loads
  and of the values that a row has (an input's square, its distance from a mean). It may be a left
  operand, formed from elements that lie in shared memory.

A fold of a pure or a deep value along a contracted axis gives a value for each row: it reads the
left operand's elements where they lie, beside the multiplication (a norm before a contraction).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nautile.codegen.schedule.affine import inside
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
from nautile.codegen.types import dtype_of
from nautile.terms import Axis, Cast, Index, Load, Term, transform, walk

__all__ = ["CapacityError", "Contraction", "Structure", "UnsupportedError", "analyse", "statements"]

OPERANDS = {
    "bf16": "bf16",
    "f16": "f16",
    "tf32": "tf32",
    "f32": "tf32",  # three products of tf32 pieces
    "f8e4m3": "f16",
    "f8e5m2": "f16",
}
FOLDS = ("sum", "max", "min", "prod")


class UnsupportedError(Exception):
    """The program's shape is none that this path covers; the general path takes it."""


class CapacityError(UnsupportedError):
    """The path covers the program, but these tiles are too large for a block."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """An Mma with its operands put in order: left has the row axis, right the column axis; `axis`
    is the contracted axis with a tile, other contracted axes are looped one by one."""

    statement: Mma
    left: Tile
    right: Tile
    column: Axis
    axis: Axis
    operand: str


@dataclass(frozen=True, slots=True)
class Structure:
    """What `analyse` finds. `reformed` names values that replace the elements that they are made of
    where these lie: value -> the tile of elements."""

    program: TileProgram
    row: Axis
    contractions: dict[str, Contraction]
    pure: dict[str, Term]
    columns: dict[str, Axis | None]
    deep: dict[str, Term] = field(default_factory=dict)
    reformed: dict[str, str] = field(default_factory=dict)

    def inline(self, term: Term) -> Term:
        """The term with pure tiles replaced by their Loads."""
        return _inline(term, self.pure)

    def folded(self, s: Fold) -> Term | None:
        """What a fold along a contracted axis combines, a term of Loads and of values of the row;
        None for a fold of a fragment's columns."""
        return self.pure.get(s.source.name) or self.deep.get(s.source.name)

    def operand(self, name: str) -> Term | None:
        """A tile that no fragment of columns enters, as a term; None for any other."""
        return self.pure.get(name) or self.deep.get(name)

    def width(self, axis: Axis) -> int:
        """The tile of an axis, padded to whole fragments."""
        return -(-self.program.tiles[axis] // 16) * 16


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements in order, a Loop before its body."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)


def analyse(program: TileProgram, *, rows: int = 16) -> Structure:
    """The roles of axes and tiles, or UnsupportedError with the reason. Of two axes that could be
    the rows, the one whose tile is a multiple of `rows` is."""
    found = list(statements(program.body))
    mmas = [s for s in found if isinstance(s, Mma)]
    if not mmas:
        raise UnsupportedError("no contraction")
    pure = _pure(found)
    row = _row_axis(program, mmas, pure, found, rows)
    contractions = {s.target.name: _orient(program, s, row) for s in mmas}
    across = {c.column for c in contractions.values()}
    deep = _deep(found, pure, row, {c.axis for c in contractions.values()} - across)
    columns = _columns(found, {**pure, **deep}, row, across)
    structure = Structure(program, row, contractions, pure, columns, deep)
    _check(structure, found)
    return structure


def _pure(found: list[Statement]) -> dict[str, Term]:
    """Reads and maps that no fragment enters, as terms of Loads."""
    pure: dict[str, Term] = {}
    for s in found:
        if isinstance(s, Read) and all(_known(c, pure) for c in s.coordinates):
            value: Term = Load(s.buffer, tuple(_inline(c, pure) for c in s.coordinates))
        elif isinstance(s, Map) and _known(s.value, pure):
            value = _inline(s.value, pure)
        else:
            continue
        narrow = s.target.dtype not in ("f32", "f64", "i32", "i64", "bool")
        if narrow and dtype_of(value) != s.target.dtype:
            value = Cast(s.target.dtype, value)
        pure[s.target.name] = value
    return pure


def _deep(
    found: list[Statement], pure: dict[str, Term], row: Axis, depths: set[Axis]
) -> dict[str, Term]:
    """Maps over rows and a contracted axis that are not pure, as terms of Loads and Refs."""
    deep: dict[str, Term] = {}
    for s in found:
        if not isinstance(s, Map) or s.target.name in pure or row not in s.target.axes:
            continue
        if depths & set(s.target.axes):
            value = _inline(s.value, {**pure, **deep})
            narrow = s.target.dtype not in ("f32", "f64", "i32", "i64", "bool")
            if narrow and dtype_of(value) != s.target.dtype:
                value = Cast(s.target.dtype, value)
            deep[s.target.name] = value
    return deep


def _known(term: Term, pure: dict[str, Term]) -> bool:
    return all(t.tile.name in pure for t in walk(term) if isinstance(t, Ref))


def _inline(term: Term, pure: dict[str, Term]) -> Term:
    def step(t: Term) -> Term:
        return pure.get(t.tile.name, t) if isinstance(t, Ref) else t

    return transform(term, step)


def _row_axis(
    program: TileProgram, mmas: list[Mma], pure: dict[str, Term], found: list[Statement], unit: int
) -> Axis:
    """The axis that every contraction has on one side, and that no fold removes: a tile of whole
    units before others, and one along which results do not lie side by side before others."""
    choices = [a for a in _sides(program, mmas[0]) if all(_has_row(program, s, a) for s in mmas)]
    for s in mmas:
        for here, other in ((s.left, s.right), (s.right, s.left)):
            if here.name not in pure:
                choices = [a for a in choices if a in here.axes and a not in other.axes]
    folds = [s for s in found if isinstance(s, Fold)]
    choices = [a for a in choices if all(a != s.axis for s in folds)]
    choices = [a for a in choices if all(a in s.target.axes for s in folds)]
    if not choices:
        raise UnsupportedError("no row axis is common to the contractions")
    contiguous = {
        s.coordinates[-1].axis
        for s in found
        if isinstance(s, Write) and s.coordinates and isinstance(s.coordinates[-1], Index)
    }
    return min(choices, key=lambda a: (program.tiles[a] % unit != 0, a in contiguous))


def _sides(program: TileProgram, s: Mma) -> list[Axis]:
    """The axis with a tile on the left and on the right of a contraction."""
    left = [a for a in s.left.axes if a not in s.right.axes]
    right = [a for a in s.right.axes if a not in s.left.axes]
    return [_main(program, axes) for axes in (left, right) if axes]


def _main(program: TileProgram, axes: list[Axis]) -> Axis:
    large = [a for a in axes if program.tiles[a] > 1]
    if len(large) > 1:
        names = ", ".join(map(str, large))
        raise UnsupportedError(f"tiles of {names} on one side of a contraction")
    return large[0] if large else max(axes, key=lambda a: a.extent)


def _has_row(program: TileProgram, s: Mma, axis: Axis) -> bool:
    return axis in _sides(program, s)


def _orient(program: TileProgram, s: Mma, row: Axis) -> Contraction:
    left, right = (s.left, s.right) if row in s.left.axes else (s.right, s.left)
    sides = [a for a in _sides(program, s) if a != row]
    if not sides:
        raise UnsupportedError(f"{s.target.name} has no column axis")
    shared = [a for a in left.axes if a in right.axes and a not in s.axes]
    if any(program.tiles[a] > 1 for a in shared):
        raise UnsupportedError(f"{s.target.name} has a batch axis with a tile")
    if s.operand not in OPERANDS or (s.operand == "f32" and not s.split):
        raise UnsupportedError(f"{s.operand} is no operand type of the tensor cores")
    inner = _main(program, list(s.axes))
    return Contraction(s, left, right, sides[0], inner, s.operand)


def _columns(
    found: list[Statement], known: dict[str, Term], row: Axis, columns: set[Axis]
) -> dict[str, Axis | None]:
    """The column axis of every fragment (None for one value a row)."""
    result: dict[str, Axis | None] = {}
    for s in found:
        if not isinstance(s, (Map, Fold, Mma)) or s.target.name in known:
            continue
        for tile in (s.target, s.before) if isinstance(s, Fold) else (s.target,):
            if tile is None:
                continue
            own = [a for a in tile.axes if a in columns]
            if row not in tile.axes or len(own) > 1:
                raise UnsupportedError(f"{tile.name} is not over rows and at most one column axis")
            result[tile.name] = own[0] if own else None
    return result


def _check(structure: Structure, found: list[Statement]) -> None:
    tiles, columns = structure.program.tiles, structure.columns
    for c in structure.contractions.values():
        for axis in (structure.row, c.column, c.axis):
            if tiles[axis] % 16 and tiles[axis] < axis.extent:
                raise UnsupportedError(f"the tile of {axis} is no multiple of 16")
        if c.left.name in structure.deep:
            _check_row_values(structure, c.left.name, c.axis, structure.deep[c.left.name])
        elif c.left.name not in structure.pure and columns[c.left.name] != c.axis:
            raise UnsupportedError(f"{c.left.name} is not over the contracted axis")
        if c.right.name not in structure.pure:
            raise UnsupportedError(f"both operands of {c.statement.target.name} are computed")
    for s in found:
        _check_axes(structure, s)
        if isinstance(s, Read) and s.target.name not in structure.pure:
            raise UnsupportedError(f"{s.target.name} is read at computed positions")
        if isinstance(s, Fold):
            _check_fold(structure, s)
        if isinstance(s, Loop):
            _check_bounds(structure, s)


def _check_axes(structure: Structure, s: Statement) -> None:
    """Every value in registers, and every place that is written, is over rows and one column."""
    if isinstance(s, Map) and s.target.name in structure.columns:
        whole = structure.program.masked.get(s.target.name)
        terms = [s.value] if whole is None else [s.value, whole]
        column = structure.columns[s.target.name]
    elif isinstance(s, Write):
        terms, own = list(s.coordinates), structure.columns.get(s.source.name)
        pure = [a for a in s.source.axes if a in structure.columns.values()]
        column = own if s.source.name not in structure.pure else next(iter(pure), None)
        if not inside(Load(s.buffer, tuple(terms))):
            raise UnsupportedError(f"places of {s.buffer.name} that may lie outside it")
    else:
        return
    for term in map(structure.inline, terms):
        for axis in term.free:
            if axis not in (structure.row, column) and structure.program.tiles[axis] > 1:
                raise UnsupportedError(f"a value of rows and columns varies along {axis}")
        for leaf in walk(term):
            if isinstance(leaf, Ref) and structure.columns[leaf.tile.name] not in (None, column):
                raise UnsupportedError(f"{leaf.tile.name} has other columns than its use")


def _check_fold(structure: Structure, s: Fold) -> None:
    if s.monoid not in FOLDS:
        raise UnsupportedError(f"a fold by {s.monoid}")
    value = structure.folded(s)
    if value is not None:
        _check_deep(structure, s, value)
    elif structure.columns.get(s.source.name) != s.axis:
        raise UnsupportedError(f"{s.target.name} folds along an axis that is not its columns")
    for tile in (s.target, s.repair):
        if tile is not None and structure.columns.get(tile.name) is not None:
            raise UnsupportedError(f"{tile.name} is not one value a row")
    if s.repair is not None and s.monoid != "sum":
        raise UnsupportedError("a repaired fold that is not a sum")
    for tile in (s.target, s.source):
        if tile.dtype in ("f64", "i64", "i32", "bool"):
            raise UnsupportedError(f"a fold of {tile.dtype}")


def _check_deep(structure: Structure, s: Fold, value: Term) -> None:
    """A fold beside a multiplication: along its depth, of what rows and depth determine."""
    if all(s.axis != c.axis for c in structure.contractions.values()):
        raise UnsupportedError(f"{s.target.name} folds along an axis that is not contracted")
    _check_row_values(structure, s.target.name, s.axis, value)


def _check_row_values(structure: Structure, name: str, depth: Axis, value: Term) -> None:
    """A term over rows and a depth, of Loads and of values of the row."""
    for axis in value.free:
        if axis not in (structure.row, depth) and structure.program.tiles[axis] > 1:
            raise UnsupportedError(f"{name} is made of what varies along {axis}")
    for leaf in walk(value):
        if isinstance(leaf, Ref) and structure.columns.get(leaf.tile.name, depth) is not None:
            raise UnsupportedError(f"{name} is made of what is no value of the row")


def _check_bounds(structure: Structure, s: Loop) -> None:
    b = s.bounds
    for term in (b.first, b.stop, b.whole_first, b.whole_stop):
        for leaf in walk(term) if term is not None else ():
            one = all(structure.program.tiles[a] == 1 for a in leaf.free)
            if isinstance(leaf, Load) or (
                isinstance(leaf, Ref) and not (one and leaf.tile.name in structure.pure)
            ):
                raise UnsupportedError("loop bounds that no single element gives")
