"""Terms: tensor mathematics in index notation, the one data structure that all stages share.

A term denotes a scalar under an assignment of its free axes.

```
Term ::= Const(value)                     a number, or a truth value
       | Index(axis)                      the position along an axis, an integer
       | Load(buffer, coordinates)        an element of a stored tensor
       | Apply(operation, arguments)      a scalar operation (see operations.py)
       | Cast(dtype, argument)            a rounding to an element type that no rule may drop
       | Reduce(monoid, axis, body)       sum prod max min any all argmax argmin over an axis
       | Running(reduction)               the reduction's value over positions 0..j of its axis j
       | Before(reduction)                the same over 0..j-1 (the monoid's identity at j = 0)
       | Online(axis, repair, body[, offset])
                                          a sum over the axis whose terms follow running values:
                                          s <- (0 if repair = 0 else s * repair) + offset + body,
                                          in order; no offset is an offset of 0
```

`Running(r)` and `Before(r)` have r's axis free. In an `Online`, `repair` and `offset` hold Before
and Running values of the carriers (reductions over the same axis) and bring what has been summed so
far from the old running values to the new ones: multiplied by `repair` (0 discards it, NaN
included), then moved by `offset`. Both say the same for a block of positions at once as for its
positions one by one, and for a partial sum that was made elsewhere: so a stream may go block by
block, and may be split into parts whose states are merged by the same repair and offset. Before
anything was summed, an offset is 0.

Axes are canonical. An axis belongs to a family (the positions that one dimension of a tensor has)
and carries a number; a binder takes the smallest number of its family that is not free in its body
(its own axis excepted), so that equal reductions are equal terms. Terms are interned: two terms are
equal exactly when they are the same object. Build them with the functions below the classes, which
keep binders canonical; a raw `Reduce(...)` is for printers and parsers of canonical text.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakValueDictionary

__all__ = [
    "MONOIDS",
    "Apply",
    "Axis",
    "Before",
    "Buffer",
    "Cast",
    "Const",
    "Definition",
    "Index",
    "Load",
    "Online",
    "Output",
    "Program",
    "Reduce",
    "Running",
    "Term",
    "apply",
    "buffers",
    "children",
    "digest",
    "rebuild",
    "reduce_",
    "substitute",
    "text",
    "transform",
    "walk",
]

MONOIDS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
Value = bool | int | float


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A named range 0 <= axis < extent. `family` is the dimension it walks; `number` tells apart
    several indices over one family; `name` spells it in the language."""

    family: str
    number: int
    extent: int

    @property
    def name(self) -> str:
        return self.family if self.number == 0 else f"{self.family}__{self.number}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Buffer:
    """A stored tensor: name, extents (row-major, last contiguous) and element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Interned(type):
    """Classes whose equal instances are one object (hash-consing)."""

    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()

    def __call__(cls, *args: Any) -> Any:
        args = cls._canonical(args)  # type: ignore[attr-defined]
        key = (cls, *cls._identity(args))  # type: ignore[attr-defined]
        term = _Interned._table.get(key)
        if term is None:
            term = super().__call__(*args)
            _Interned._table[key] = term
        return term


class Term(metaclass=_Interned):
    """The common part of all terms: `free` axes, and identity as equality."""

    __slots__ = ("__weakref__", "free")
    free: frozenset[Axis]

    @classmethod
    def _canonical(cls, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args

    @classmethod
    def _identity(cls, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args

    def _set_free(self, axes: Iterable[Axis]) -> None:
        object.__setattr__(self, "free", frozenset(axes))

    def __str__(self) -> str:
        return text(self)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in type(self).__match_args__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, eq=False)
class Const(Term):
    """A number (int or float) or a truth value (bool); -0.0 and 0.0 differ, as do 1 and 1.0."""

    value: Value

    @classmethod
    def _identity(cls, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (type(args[0]), repr(args[0]))

    def __post_init__(self) -> None:
        self._set_free(())


@dataclass(frozen=True, slots=True, eq=False)
class Index(Term):
    """The position along `axis`."""

    axis: Axis

    def __post_init__(self) -> None:
        self._set_free((self.axis,))


@dataclass(frozen=True, slots=True, eq=False)
class Load(Term):
    """`buffer[coordinates]`; coordinates are integer terms, one for each dimension."""

    buffer: Buffer
    coordinates: tuple[Term, ...]

    def __post_init__(self) -> None:
        self._set_free(a for c in self.coordinates for a in c.free)


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Term):
    """A scalar operation on scalar terms."""

    operation: str
    arguments: tuple[Term, ...]

    def __post_init__(self) -> None:
        self._set_free(a for c in self.arguments for a in c.free)


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Term):
    """The argument rounded to `dtype`."""

    dtype: str
    argument: Term

    def __post_init__(self) -> None:
        self._set_free(self.argument.free)


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Term):
    """`monoid` over all positions of `axis`."""

    monoid: str
    axis: Axis
    body: Term

    def __post_init__(self) -> None:
        self._set_free(self.body.free - {self.axis})


@dataclass(frozen=True, slots=True, eq=False)
class Running(Term):
    """The value of `reduction` over the positions up to and with the current one of its axis."""

    reduction: Term

    def __post_init__(self) -> None:
        self._set_free(self.reduction.free | {self.axis})

    @property
    def axis(self) -> Axis:
        assert isinstance(self.reduction, (Reduce, Online))
        return self.reduction.axis


@dataclass(frozen=True, slots=True, eq=False)
class Before(Term):
    """The value of `reduction` over the positions before the current one of its axis."""

    reduction: Term

    def __post_init__(self) -> None:
        self._set_free(self.reduction.free | {self.axis})

    @property
    def axis(self) -> Axis:
        assert isinstance(self.reduction, (Reduce, Online))
        return self.reduction.axis


@dataclass(frozen=True, slots=True, eq=False)
class Online(Term):
    """A sum over `axis` of terms that follow running values; see the module's docstring. An offset
    of 0 is no offset (None)."""

    axis: Axis
    repair: Term
    body: Term
    offset: Term | None = None

    @classmethod
    def _canonical(cls, args: tuple[Any, ...]) -> tuple[Any, ...]:
        axis, repair, body, *offset = args
        moves = bool(offset) and offset[0] is not None and not _zero(offset[0])
        return (axis, repair, body, offset[0]) if moves else (axis, repair, body, None)

    def __post_init__(self) -> None:
        self._set_free(frozenset[Axis]().union(*(c.free for c in children(self))) - {self.axis})


def _zero(term: Term) -> bool:
    return isinstance(term, Const) and term.value == 0 and not isinstance(term.value, bool)


@dataclass(frozen=True, slots=True)
class Definition:
    """`name[axes] = body` of one source line; other definitions are read through Load.
    `dtype` is the type that the body carries: f32, or f64, i32, i64, bool."""

    name: str
    axes: tuple[Axis, ...]
    body: Term
    line: int = 0
    dtype: str = "f32"

    @property
    def buffer(self) -> Buffer:
        return Buffer(self.name, tuple(a.extent for a in self.axes), self.dtype)


@dataclass(frozen=True, slots=True)
class Output:
    """`buffer[axes] = term`: what a program or a kernel stores, rounded to the buffer's type."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    term: Term


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program. `definitions` are in source order, single assignment, and read inputs and
    earlier definitions through Load of the buffer of that name; `outputs` read them the same way.
    `defaults` holds the values of scalar parameters that have one; `sizes` the size names."""

    name: str
    inputs: tuple[Buffer, ...]
    definitions: tuple[Definition, ...]
    outputs: tuple[Output, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    filename: str = "<text>"


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms, coordinates of a Load included."""
    match term:
        case Load(_, coordinates):
            return coordinates
        case Apply(_, arguments):
            return arguments
        case Cast(_, argument):
            return (argument,)
        case Reduce(_, _, body):
            return (body,)
        case Running(reduction) | Before(reduction):
            return (reduction,)
        case Online(_, repair, body, offset):
            return (repair, body) if offset is None else (repair, body, offset)
    return ()


def rebuild(term: Term, new: tuple[Term, ...]) -> Term:
    """The same term over other children, binders made canonical again."""
    if new == children(term):
        return term
    match term:
        case Load(buffer, _):
            return Load(buffer, new)
        case Apply(operation, _):
            return Apply(operation, new)
        case Cast(dtype, _):
            return Cast(dtype, new[0])
        case Reduce(monoid, axis, _):
            return reduce_(monoid, axis, new[0])
        case Running(_):
            return Running(new[0])
        case Before(_):
            return Before(new[0])
        case Online(axis):
            return Online(axis, *new)
    return term


def walk(*roots: Term) -> Iterator[Term]:
    """Every distinct subterm once, children before parents; iterative, so depth is no limit."""
    seen: set[Term] = set()
    for root in roots:
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if ready:
                yield term
            elif term not in seen:
                seen.add(term)
                stack.append((term, True))
                stack.extend((c, False) for c in reversed(children(term)) if c not in seen)


def transform(root: Term, step: Callable[[Term], Term]) -> Term:
    """Rebuild bottom-up, `step` applied to every rebuilt subterm once."""
    done: dict[Term, Term] = {}
    for term in walk(root):
        done[term] = step(rebuild(term, tuple(done[c] for c in children(term))))
    return done[root]


def apply(operation: str, *arguments: Term) -> Apply:
    """Shorthand for `Apply(operation, arguments)`."""
    return Apply(operation, arguments)


def reduce_(monoid: str, axis: Axis, body: Term) -> Reduce:
    """`Reduce`, its binder renamed to the smallest number of its family not free in the body."""
    taken = {a.number for a in body.free if a.family == axis.family and a != axis}
    number = next(n for n in range(len(taken) + 1) if n not in taken)
    target = Axis(axis.family, number, axis.extent)
    if target != axis:
        body = substitute(body, {axis: Index(target)})
    return Reduce(monoid, target, body)


def substitute(root: Term, mapping: Mapping[Axis, Term]) -> Term:
    """Replace free axes by terms, without capture (binders move out of the way); iterative, so
    depth is no limit."""
    memo: dict[tuple[Term, frozenset[tuple[Axis, Term]]], Term] = {}
    open_: list[_Replacing] = [_replacing(root, mapping, memo)]
    value: Term | None = None
    while open_:
        try:
            below = open_[-1].send(value)
        except StopIteration as end:
            open_.pop()
            value = end.value
        else:
            open_.append(_replacing(*below, memo))
            value = None
    assert value is not None
    return value


_Live = Mapping[Axis, "Term"]
_Replacing = Generator[tuple["Term", _Live], "Term | None", "Term"]


def _replacing(
    term: Term, wanted: _Live, memo: dict[tuple[Term, frozenset[tuple[Axis, Term]]], Term]
) -> _Replacing:
    """The term with axes replaced; asks for the same of its parts."""
    live = {a: t for a, t in wanted.items() if a in term.free and t is not Index(a)}
    if not live:
        return term
    if isinstance(term, Index):
        return live[term.axis]
    key = (term, frozenset(live.items()))
    if key not in memo:
        memo[key] = yield from _descend(term, live)
    return memo[key]


def _descend(term: Term, live: _Live) -> _Replacing:
    if isinstance(term, Reduce):
        fresh = _fresh(term.axis, live, term.body.free)
        inner = {**live, term.axis: Index(fresh)} if fresh != term.axis else dict(live)
        body = yield term.body, inner
        assert body is not None
        return reduce_(term.monoid, fresh, body)
    if isinstance(term, (Running, Before, Online)):
        for axis, value in live.items():
            if axis == term.axis or (term.axis in value.free):
                raise ValueError(f"cannot rename {axis} under the running axis {term.axis}")
    parts: list[Term] = []
    for child in children(term):
        part = yield child, live
        assert part is not None
        parts.append(part)
    return rebuild(term, tuple(parts))


def _fresh(axis: Axis, live: Mapping[Axis, Term], free: frozenset[Axis]) -> Axis:
    """A binder of axis' family that no replacement mentions."""
    hit = {a for t in live.values() for a in t.free}
    if axis not in hit:
        return axis
    taken = {a.number for a in hit | free if a.family == axis.family}
    number = next(n for n in range(len(taken) + 1) if n not in taken)
    return Axis(axis.family, number, axis.extent)


def buffers(*roots: Term) -> tuple[Buffer, ...]:
    """The distinct buffers that the terms read, in order of first use."""
    found = {t.buffer: None for t in walk(*roots) if isinstance(t, Load)}
    return tuple(found)


def text(root: Term) -> str:
    """Canonical prefix text: shared subterms are numbered lines, so its length is linear in the
    number of distinct subterms. It is a term's identity; people read `lang.printer` instead."""
    names: dict[Term, str] = {}
    lines: list[str] = []
    for term in walk(root):
        inner = " ".join(names[c] for c in children(term))
        names[term] = f"%{len(names)}"
        lines.append(f"{_head(term)} {inner}".rstrip())
    return "\n".join(lines)


def _head(term: Term) -> str:
    match term:
        case Const(value):
            return f"const {type(value).__name__} {value!r}"
        case Index(axis):
            return f"index {axis.name}:{axis.extent}"
        case Load(buffer, _):
            return f"load {buffer.name}:{buffer.dtype}{list(buffer.shape)}"
        case Apply(operation, _):
            return operation
        case Cast(dtype, _):
            return f"cast {dtype}"
        case Reduce(monoid, axis, _):
            return f"{monoid} {axis.name}:{axis.extent}"
        case Online(axis):
            return f"online {axis.name}:{axis.extent}"
    return type(term).__name__.lower()


def digest(*parts: str | Term) -> str:
    """BLAKE2b-128 of canonical texts, in hexadecimal: the key of caches."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update((part if isinstance(part, str) else text(part)).encode())
        h.update(b"\0")
    return h.hexdigest()
