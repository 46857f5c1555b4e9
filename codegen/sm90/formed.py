"""Left operands that are computed on their way, and folds beside a product, in registers.

A left operand that is no tile as it lies (a cast, a product with factors of its row or depth, a
gate) and a fold along the depth (a norm's sum of squares) become values over rows and the depth:
their elements come from boxes of shared memory into registers, where an accumulator's columns
would lie, and whatever registers can do is done with them. So a norm before a product is a fold
beside it.

```
loop over c:  m = mma[c](x * g, W); r = sum[c](x * x)
 ->           x' = read x; a = x' * g; m = mma[c](a, W); s = x' * x'; r = sum[c](s)
```

An operand that stays while a loop runs is formed once, before it, and takes the place of its
elements in shared memory, from where products read it.

Elements of tensors that the copy engine does not bring as tiles over both axes are read where they
lie. The rewrite is of the tile program; it means the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nautile.codegen.schedule.structure import (
    Contraction,
    Structure,
    UnsupportedError,
    statements,
)
from nautile.codegen.sm90.place import box, elements, floats, takes
from nautile.codegen.tile import Fold, Loop, Map, Mma, Read, Ref, Statement, Tile
from nautile.terms import Axis, Cast, Load, Term, transform, walk

__all__ = ["formed"]

PACKED = ("bf16", "f16")  # operands that registers hold in pairs
EIGHTS = ("f8e4m3", "f8e5m2")


def formed(structure: Structure) -> Structure:
    """The same program with such operands and folds as values of registers; itself where it has
    none. UnsupportedError where elements cannot come so."""
    structure = replace(structure, contractions=_widened(structure))
    lefts = [
        c
        for c in structure.contractions.values()
        if c.operand in PACKED and not takes(structure, c, c.left)
    ]
    found = statements(structure.program.body)
    folds = [s for s in found if isinstance(s, Fold) and structure.folded(s) is not None]
    if not lefts and not folds:
        return structure
    made = _Forming(structure, {c.statement.target.name for c in lefts})
    body = made.body(structure.program.body)
    return replace(
        structure,
        program=replace(structure.program, body=body),
        contractions={**structure.contractions, **made.contractions},
        pure={**structure.pure, **made.homes},
        columns={**structure.columns, **made.columns},
        deep={},
        reformed=made.reformed,
    )


def _widened(structure: Structure) -> dict[str, Contraction]:
    """Products of 8-bit floats that the tensor cores do not take so (a computed operand, a right
    one whose depth is not contiguous) are products of f16, which holds those."""
    return {
        name: replace(c, operand="f16") if c.operand in EIGHTS and not _eights(structure, c) else c
        for name, c in structure.contractions.items()
    }


def _eights(structure: Structure, c: Contraction) -> bool:
    if structure.operand(c.left.name) is None:
        return False
    try:
        box(structure, c, c.right.name, c.column)
        box(structure, c, c.left.name, structure.row)
    except UnsupportedError:
        return False
    return True


@dataclass(slots=True)
class _Forming:
    """The rewrite of one program; `lefts` names the contractions whose left operand is formed."""

    structure: Structure
    lefts: set[str]
    columns: dict[str, Axis | None] = field(default_factory=dict)
    contractions: dict[str, Contraction] = field(default_factory=dict)
    homes: dict[str, Term] = field(default_factory=dict)
    reformed: dict[str, str] = field(default_factory=dict)

    def body(self, body: Iterable[Statement]) -> tuple[Statement, ...]:
        """The statements of one scope: elements are read once in each."""
        done: list[Statement] = []
        raws: dict[Load, Tile] = {}
        lefts: dict[tuple[Term, str], Tile] = {}
        for s in body:
            match s:
                case Loop(axis, inner, bounds):
                    for mma in self._staying(s):
                        done += self._stay(mma, raws, lefts)
                    done.append(Loop(axis, self.body(inner), bounds))
                case Mma() if s.target.name in self.contractions:
                    done.append(self.contractions[s.target.name].statement)
                case Mma() if s.target.name in self.lefts:
                    done += self._product(s, raws, lefts)
                case Fold() if (value := self.structure.folded(s)) is not None:
                    made = self._formed(f"{s.target.name}_of", value, s.axis, raws, done)
                    if not raws:
                        raise UnsupportedError(f"nothing of {s.target.name} comes as tiles")
                    done.append(replace(s, source=made))
                case Map() if s.target.name in self.structure.deep:
                    pass
                case _:
                    done.append(s)
        return tuple(done)

    def _staying(self, loop: Loop) -> list[Mma]:
        """The products of a loop, and of those in it, whose formed operand none of them moves."""
        found = list(statements((loop,)))
        axes = {s.axis for s in found if isinstance(s, Loop)}
        mmas = [s for s in found if isinstance(s, Mma) and s.target.name in self.lefts]
        return [s for s in mmas if not self._value(s).free & axes]

    def _stay(
        self, s: Mma, raws: dict[Load, Tile], lefts: dict[tuple[Term, str], Tile]
    ) -> list[Statement]:
        """The operand in the place of its elements; the product reads it there."""
        c, value = self.structure.contractions[s.target.name], self._value(s)
        done: list[Statement] = []
        if (value, c.operand) not in lefts:
            name = f"{c.left.name}_in_{s.target.name}"
            tile = self._formed(name, value, c.axis, raws, done)
            home = self._home(value, c, raws)
            self.reformed[name] = raws[home].name
            left = Tile(f"{name}_there", (self.structure.row, c.axis), c.operand)
            self.homes[left.name], lefts[value, c.operand] = home, left
            assert tile.name == name
        self._put(s, lefts[value, c.operand])
        return done

    def _home(self, value: Term, c: Contraction, raws: dict[Load, Tile]) -> Load:
        """Elements whose place the operand takes: of its type and order, and read by nobody else
        afterwards."""
        plain = {
            self.structure.operand(t.name)
            for other in self.structure.contractions.values()
            for t in (other.left, other.right)
        }
        taken = {*self.homes.values(), *plain}
        for load in (t for t in walk(value) if isinstance(t, Load) and t in raws):
            there = elements(self.structure, load, c.axis)
            fits = there is not None and (there.element, there.inner) == (c.operand, c.axis)
            if fits and load not in taken:
                return load
        raise UnsupportedError(f"{c.left.name} stays, and has no place")

    def _value(self, s: Mma) -> Term:
        """What the left operand is, without the rounding of the product."""
        c = self.structure.contractions[s.target.name]
        value = self.structure.operand(c.left.name)
        assert value is not None
        same = isinstance(value, Cast) and value.dtype == c.operand
        return value.argument if same and isinstance(value, Cast) else value

    def _put(self, s: Mma, left: Tile) -> Mma:
        """The product with its left operand, which is noted."""
        c = self.structure.contractions[s.target.name]
        mma = replace(s, left=left) if s.left == c.left else replace(s, right=left)
        self.contractions[s.target.name] = replace(c, statement=mma, left=left)
        return mma

    def _product(
        self, s: Mma, raws: dict[Load, Tile], lefts: dict[tuple[Term, str], Tile]
    ) -> list[Statement]:
        """The product after its left operand, which others of the scope may have, too."""
        c, value = self.structure.contractions[s.target.name], self._value(s)
        done: list[Statement] = []
        if (value, c.operand) not in lefts:
            name = f"{c.left.name}_in_{s.target.name}"
            lefts[value, c.operand] = self._formed(name, value, c.axis, raws, done)
            if not raws:
                raise UnsupportedError(f"no elements of {c.left.name} come as tiles")
        return [*done, self._put(s, lefts[value, c.operand])]

    def _formed(
        self, name: str, value: Term, depth: Axis, raws: dict[Load, Tile], done: list[Statement]
    ) -> Tile:
        """A value over rows and a depth, after the elements that it is made of."""
        value = self._unpacked(value, depth, raws, done)
        tile = Tile(name, (self.structure.row, depth))
        self.columns[name] = depth
        done.append(Map(tile, value))
        return tile

    def _unpacked(
        self, value: Term, depth: Axis, raws: dict[Load, Tile], done: list[Statement]
    ) -> Term:
        """The value with tiles of registers for the loads that boxes bring."""
        row, whole = self.structure.row, floats(value)
        for load in dict.fromkeys(t for t in walk(value) if isinstance(t, Load)):
            if load in raws or load not in whole or not {row, depth} <= load.free:
                continue
            if elements(self.structure, load, depth):
                name = f"{load.buffer.name}_{len(self.columns)}"
                raws[load] = Tile(name, (row, depth), _held(load))
                self.columns[name] = depth
                done.append(Read(raws[load], load.buffer, load.coordinates))

        def step(t: Term) -> Term:
            return Ref(raws[t]) if isinstance(t, Load) and t in raws else t

        return transform(value, step)


def _held(load: Load) -> str:
    """The type of an element in registers: integers of a byte are floats there, exactly."""
    return "f32" if load.buffer.dtype == "i8" else load.buffer.dtype
