"""Axes that are two, and axes that are one: a program whose merged dimensions are taken apart where
a product needs it, and whose sums over several dimensions are sums over two.

`O[t, c] = sum[s](p[c // D, t, s] * V[s, c])` is no contraction as it stands: the axis that the
second factor has of its own moves the first one, too. Over two axes in place of c, c = D * o + i,
it is one for each o. A tensor that is stored over c is then stored over o and i, which is the same
memory; whoever reads it at x does so at x // D and x mod D, and where x is an axis, that is taken
apart as well: `sum[c](O[t, c] * W[n, c])` becomes a sum over both. So are positions that are places
in two dimensions, `X[P * (n // G) + i, P * (n mod G) + j]` (patches of an image).

A product summed over three dimensions or more is walked along one axis in place of all but the
innermost: a tile program has one loop for a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from nautile.extract.contractions import product_parts
from nautile.terms import (
    Apply,
    Axis,
    Buffer,
    Const,
    Definition,
    Index,
    Load,
    Output,
    Program,
    Reduce,
    Term,
    apply,
    children,
    reduce_,
    substitute,
    transform,
    walk,
)

__all__ = ["apart", "joined"]

TAKEN = ("sum", "prod", "max", "min", "any", "all")
Owner = Definition | Output


def apart(program: Program) -> Program:
    """The program over axes taken apart; itself where no product needs it. Its results may have
    more dimensions, of the same memory (see `joined`)."""
    while (found := next(_wanted(program), None)) is not None:
        program = _split(program, *found)
    return _walked(program)


def joined(
    positions: Sequence[Sequence[int]], extents: Sequence[int], shape: Sequence[int]
) -> list[list[int]]:
    """A grid of positions of a result taken apart (one list for each of its dimensions, which have
    these `extents`) over the dimensions of its own `shape`, in the same order."""
    if tuple(extents) == tuple(shape):
        return [list(p) for p in positions]
    found: list[list[int]] = []
    rest = list(zip(positions, extents, strict=True))
    for extent in shape:
        own, size = rest.pop(0)
        at = list(own)
        while size < extent:
            own, count = rest.pop(0)
            at, size = [p * count + q for p in at for q in own], size * count
        found.append(at)
    return found


# ---- what is wanted ----------------------------------------------------------------------------


def _owners(program: Program) -> Iterator[Owner]:
    yield from program.definitions
    yield from program.outputs


def _term(owner: Owner) -> Term:
    return owner.body if isinstance(owner, Definition) else owner.term


def _wanted(program: Program) -> Iterator[tuple[Owner, Axis, int]]:
    """Axes of definitions and results that a product needs taken apart, and by what."""
    heavy = _heavy(program)
    for owner in _owners(program):
        term = _term(owner)
        for axis in owner.axes:
            size = _divisor(term, axis)
            if size and any(_merged(t, axis, heavy) or _placed(t, axis) for t in walk(term)):
                yield owner, axis, size


def _heavy(program: Program) -> set[str]:
    """Definitions that wait for a reduction."""
    found: set[str] = set()
    for d in program.definitions:
        inside = list(walk(d.body))
        read = any(isinstance(t, Load) and t.buffer.name in found for t in inside)
        if read or any(isinstance(t, Reduce) for t in inside):
            found.add(d.name)
    return found


def _divisor(term: Term, axis: Axis) -> int:
    """The number by which the axis is divided in a term, the least if others are its multiples, if
    it divides the extent; else 0."""
    found = {
        int(t.arguments[1].value)
        for t in walk(term)
        if isinstance(t, Apply) and _is_part(t, axis) and isinstance(t.arguments[1], Const)
    }
    size = min(found, default=0)
    if not 1 < size < axis.extent or axis.extent % size:
        return 0
    return size if all(n % size == 0 for n in found) else 0


def _is_part(term: Term, axis: Axis) -> bool:
    """Whether a term is a quotient or a remainder of the axis itself."""
    match term:
        case Apply("floordiv" | "mod", (Index(other), Const(int()))):
            return other == axis
    return False


def _merged(term: Term, axis: Axis, heavy: set[str]) -> bool:
    """Whether a sum multiplies a computed tensor, which moves with a quotient of the axis, by what
    moves with the axis and has no other axis of its own."""
    if not isinstance(term, Reduce) or term.monoid != "sum":
        return False
    whole: set[Axis] = set()
    parts: set[Axis] = set()
    computed = False
    for _, part in product_parts(term.body):
        if axis in part.free and _bare(part, axis):
            whole |= part.free
        elif axis in part.free:
            parts |= part.free
            loads = (t for t in walk(part) if isinstance(t, Load))
            computed |= any(t.buffer.name in heavy for t in loads)
    return computed and bool(whole) and whole - {axis} <= parts


def _placed(term: Term, axis: Axis) -> bool:
    """Whether a quotient and a remainder of the axis are places in two dimensions of one tensor."""
    if not isinstance(term, Load):
        return False
    found = {t.operation for c in term.coordinates for t in walk(c) if _is_part(t, axis)}  # type: ignore[attr-defined]
    return found == {"floordiv", "mod"}


def _bare(term: Term, axis: Axis) -> bool:
    """Whether a term moves with the axis itself, or with a remainder of it."""
    return term is Index(axis) or any(
        Index(axis) in children(t) and not (_is_part(t, axis) and _is_quotient(t))
        for t in walk(term)
    )


def _is_quotient(term: Term) -> bool:
    return isinstance(term, Apply) and term.operation == "floordiv"


# ---- taking apart ------------------------------------------------------------------------------


def _split(program: Program, owner: Owner, axis: Axis, size: int) -> Program:
    """With one axis of one definition or result taken apart, and what reads it changed."""
    new = _Halves.of(program, axis, size)
    made = _owner_apart(owner, axis, new)
    if isinstance(owner, Output):
        outputs = tuple(made if o is owner else o for o in program.outputs)
        return replace(program, outputs=outputs)  # type: ignore[arg-type]
    assert isinstance(made, Definition)
    place = owner.axes.index(axis)
    definitions = tuple(made if d is owner else d for d in program.definitions)
    program = replace(program, definitions=definitions)
    return _read_apart(program, owner, made.buffer, place, size)


def _owner_apart(owner: Owner, axis: Axis, new: _Halves) -> Owner:
    axes = tuple(a for old in owner.axes for a in (new.axes if old == axis else (old,)))
    if isinstance(owner, Definition):
        return replace(owner, axes=axes, body=new.term(owner.body, axis))
    shape = tuple(a.extent for a in axes)
    buffer = Buffer(owner.buffer.name, shape, owner.buffer.dtype)
    return Output(buffer, axes, new.term(owner.term, axis))


@dataclass(frozen=True, slots=True)
class _Halves:
    """The two axes in place of one."""

    outer: Axis
    inner: Axis

    @staticmethod
    def of(program: Program, axis: Axis, size: int) -> _Halves:
        """Of new families."""
        taken = _families(program)
        outer, inner = (_free_name(f"{axis.family}_{half}", taken) for half in ("outer", "inner"))
        return _Halves(Axis(outer, 0, axis.extent // size), Axis(inner, 0, size))

    @property
    def axes(self) -> tuple[Axis, Axis]:
        return self.outer, self.inner

    def term(self, term: Term, axis: Axis) -> Term:
        """The term over the new axes."""
        size = Const(self.inner.extent)
        whole = apply("add", apply("mul", Index(self.outer), size), Index(self.inner))

        def step(t: Term) -> Term:
            match t:
                case Apply("floordiv" | "mod", (x, Const(int(n)))) if x is whole:
                    return self._part(t.operation, n // self.inner.extent)
            return t

        return transform(substitute(term, {axis: whole}), step)

    def _part(self, operation: str, times: int) -> Term:
        """The quotient or the remainder by so many times the inner extent."""
        outer: Term = Index(self.outer)
        if operation == "floordiv":
            return outer if times == 1 else apply("floordiv", outer, Const(times))
        if times == 1:
            return Index(self.inner)
        rest = apply("mul", apply("mod", outer, Const(times)), Const(self.inner.extent))
        return apply("add", rest, Index(self.inner))


def _walked(program: Program) -> Program:
    """With directly nested sums over one axis and the innermost."""
    if not any(_deep(t) for owner in _owners(program) for t in walk(_term(owner))):
        return program
    taken = _families(program)

    def step(t: Term) -> Term:
        return _walk(t, taken) if _deep(t) else t

    definitions = tuple(replace(d, body=transform(d.body, step)) for d in program.definitions)
    outputs = tuple(Output(o.buffer, o.axes, transform(o.term, step)) for o in program.outputs)
    return replace(program, definitions=definitions, outputs=outputs)


def _deep(term: Term) -> bool:
    """Whether a term is three sums or more, one directly inside another, of a product."""
    axes, body = _nested(term)
    return len(axes) > 2 and len(product_parts(body)) > 1


def _nested(term: Term) -> tuple[list[Axis], Term]:
    axes: list[Axis] = []
    while isinstance(term, Reduce) and term.monoid == "sum":
        axes.append(term.axis)
        term = term.body
    return axes, term


def _walk(term: Term, taken: set[str]) -> Term:
    """Sums over all axes but the innermost as one, outermost slowest."""
    (*outer, inner), body = _nested(term)
    family = _free_name("_".join(a.family for a in outer), taken)
    whole = Axis(family, 0, prod(a.extent for a in outer))
    places: dict[Axis, Term] = {}
    rest: Term = Index(whole)
    for axis in reversed(outer):
        size = Const(axis.extent)
        places[axis] = rest if axis == outer[0] else apply("mod", rest, size)
        rest = apply("floordiv", rest, size)
    return reduce_("sum", whole, substitute(reduce_("sum", inner, body), places))


def _families(program: Program) -> set[str]:
    """Of all axes."""
    taken = {a.family for owner in _owners(program) for a in owner.axes}
    for owner in _owners(program):
        inside = walk(_term(owner))
        taken |= {a.family for t in inside for a in (*t.free, *_bound(t))}
    return taken


def _free_name(stem: str, taken: set[str]) -> str:
    number = next(n for n in range(len(taken) + 1) if _numbered(stem, n) not in taken)
    return _numbered(stem, number)


def _bound(term: Term) -> tuple[Axis, ...]:
    return (term.axis,) if isinstance(term, Reduce) else ()


def _numbered(stem: str, number: int) -> str:
    return stem if number == 0 else f"{stem}{number + 1}"


def _read_apart(
    program: Program, owner: Definition, buffer: Buffer, place: int, size: int
) -> Program:
    """With every load of a definition over the new dimensions; axes that read it taken apart."""
    definitions = tuple(
        replace(d, body=_loads_apart(d.body, owner.name, buffer, place, size))
        for d in program.definitions
    )
    outputs = tuple(
        Output(o.buffer, o.axes, _loads_apart(o.term, owner.name, buffer, place, size))
        for o in program.outputs
    )
    program = replace(program, definitions=definitions, outputs=outputs)
    program = _sums_apart(program, buffer, place, size)
    while (found := _reader(program, buffer, place, size)) is not None:
        program = _split(program, *found, size)
    return program


def _reader(program: Program, buffer: Buffer, place: int, size: int) -> tuple[Owner, Axis] | None:
    """An owner with an axis at whose quotients it reads the tensor."""
    for owner in _owners(program):
        term = _term(owner)
        for axis in owner.axes:
            if _divisor(term, axis) == size and _reads_at(term, axis, buffer, place):
                return owner, axis
    return None


def _loads_apart(term: Term, name: str, buffer: Buffer, place: int, size: int) -> Term:
    def step(t: Term) -> Term:
        if not isinstance(t, Load) or t.buffer.name != name or t.buffer == buffer:
            return t
        x = t.coordinates[place]
        halves = apply("floordiv", x, Const(size)), apply("mod", x, Const(size))
        return Load(buffer, (*t.coordinates[:place], *halves, *t.coordinates[place + 1 :]))

    return transform(term, step)


def _reads_at(term: Term, axis: Axis, buffer: Buffer, place: int) -> bool:
    """Whether the tensor is read at a quotient of the axis itself."""
    loads = (t for t in walk(term) if isinstance(t, Load) and t.buffer == buffer)
    return any(_is_part(t.coordinates[place], axis) for t in loads)


def _sums_apart(program: Program, buffer: Buffer, place: int, size: int) -> Program:
    """With reductions that walk the tensor over two axes."""

    def step(t: Term) -> Term:
        if not isinstance(t, Reduce) or t.monoid not in TAKEN:
            return t
        if not _reads_at(t.body, t.axis, buffer, place) or _divisor(t.body, t.axis) != size:
            return t
        new = _Halves.of(program, t.axis, size)
        inner = reduce_(t.monoid, new.inner, new.term(t.body, t.axis))
        return reduce_(t.monoid, new.outer, inner)

    definitions = tuple(replace(d, body=transform(d.body, step)) for d in program.definitions)
    outputs = tuple(Output(o.buffer, o.axes, transform(o.term, step)) for o in program.outputs)
    return replace(program, definitions=definitions, outputs=outputs)
