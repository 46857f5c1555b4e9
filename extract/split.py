"""A reduction split over blocks: partial states of chunks, and the kernel that merges them.

```
Split  ::= axis, chunks, length, span   position = chunk * length + place + first
Launch ::= outputs                      partial states over [.., chunk, ..], or merged results
```

A split of an axis j takes every reduction over j that waits for no other pass over j, and makes two
launches of one body. The first stores each reduction's state over one chunk of positions; chunks
are an axis of its grid. In the second a state is what merging its chunks gives:

- a monoid's reduction, the monoid over the chunks;
- an online sum, the sum over the chunks of `where(R = 0, 0, S * R) + offset`: its repair R and its
  offset bring a partial sum S from the old running values of its carriers (here a chunk's) to the
  new ones (here the merged ones), as they do along a stream;
- argmax and argmin, the place within the first chunk that holds the extreme.

Positions outside the span add nothing to any of the reductions (a mask empties them), so chunks
cover the span alone.

What waits for these reductions, later passes over j included, follows in the second launch, which
is split again where it reduces over j. Every launch is ordinary terms. Sources: split-K of GEMM
libraries; Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023; the merge
by the repair is the general form of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nautile.extract.body import inner_terms, needs
from nautile.extract.contractions import contracts
from nautile.extract.grouping import grouped
from nautile.extract.masks import conjuncts, pass_mask, span
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    apply,
    children,
    rebuild,
    reduce_,
    walk,
)
from nautile.types import type_of

__all__ = ["Split", "launches"]

Reduction = Reduce | Online
Outputs = tuple[Output, ...]
Names = Callable[[], str]
_EXTREMES = {"argmax": "max", "argmin": "min"}
_WHOLE = {"i32": 2**31, "i64": 2**63}


@dataclass(frozen=True, slots=True)
class Split:
    """`chunks` chunks of `length` positions of an axis, from `first` up to `stop` (0: the end); the
    last may be shorter, none is empty."""

    axis: Axis
    length: int
    first: int = 0
    stop: int = 0

    @property
    def chunks(self) -> int:
        return -(-((self.stop or self.axis.extent) - self.first) // self.length)

    @property
    def ragged(self) -> bool:
        """Whether the last chunk has positions beyond the end of the axis."""
        return self.first + self.chunks * self.length > self.axis.extent

    def over(self, reductions: Iterable[Reduction]) -> Split:
        """The split, or that of the whole axis where one of the reductions needs more."""
        first, stop = span(pass_mask(reductions), self.axis)
        inside = self.first <= first and stop <= (self.stop or self.axis.extent)
        return self if inside else Split(self.axis, self.length)


def launches(outputs: Outputs, split: Split, names: Names) -> tuple[Outputs, ...]:
    """The outputs of each launch, in order: partial states, then what is made of them. Empty where
    nothing is reduced over the axis, or a state cannot be merged. `names` gives fresh names for the
    tensors that hold the states."""
    made: list[Outputs] = []
    left = outputs
    while firsts := _firsts(left, split.axis):
        once = _Splitting.of(left, firsts, split.over(firsts), names)
        merged = once.merged_outputs(left)
        if merged is None or not once.states:
            return ()
        stored, left = grouped(tuple(s.output for s in once.states.values()), merged)
        made.append(stored)
    return (*made, left) if made else ()


def _firsts(outputs: Outputs, axis: Axis) -> frozenset[Reduction]:
    """The reductions over the axis that wait for no finished pass over it."""
    _, stage = needs(inner_terms(o.term for o in outputs))
    own = (t for t, s in stage.items() if s == 0 and isinstance(t, (Reduce, Online)))
    return frozenset(t for t in own if t.axis == axis)


@dataclass(frozen=True, slots=True)
class _State:
    """A stored state: what a chunk stores, and how it is read back."""

    output: Output

    @property
    def load(self) -> Load:
        return Load(self.output.buffer, tuple(Index(a) for a in self.output.axes))


@dataclass(slots=True)
class _Splitting:
    """One split: `chunk` numbers the chunks, `place` is the position within one; `states` are kept
    by what they are states of."""

    firsts: frozenset[Reduction]
    split: Split
    chunk: Axis
    place: Axis
    names: Names
    order: tuple[Axis, ...]
    limits: Mapping[Term, Term]
    states: dict[Term, _State] = field(default_factory=dict)
    merged: dict[Term, Term] = field(default_factory=dict)
    cut: dict[Term, Term] = field(default_factory=dict)
    failed: bool = False

    @classmethod
    def of(
        cls, outputs: Outputs, firsts: frozenset[Reduction], split: Split, names: Names
    ) -> _Splitting:
        axis = split.axis
        axes = _axes(outputs)
        chunk = Axis(_family(axis, axes), 0, split.chunks)
        place = Axis(axis.family, axis.number, split.length)
        limits = _limits(firsts) if split.ragged else {}
        return cls(firsts, split, chunk, place, names, axes, limits)

    # ---- within a chunk ------------------------------------------------------------------------

    @property
    def position(self) -> Term:
        """The position on the whole axis."""
        return self._at(Index(self.place))

    def _at(self, place: Term) -> Term:
        """The position on the whole axis of a place in the chunk."""
        chunk = apply("mul", Index(self.chunk), Const(self.split.length))
        moved = apply("add", chunk, place)
        return apply("add", moved, Const(self.split.first)) if self.split.first else moved

    @property
    def inside(self) -> Term:
        """Whether the position is one of the axis; all are, where the chunks are of one length."""
        return apply("lt", self.position, Const(self.split.axis.extent))

    def within(self, root: Term) -> Term:
        """The term with one chunk in place of the whole axis."""
        for term in walk(root):
            if term not in self.cut:
                new = self._within(term, tuple(self.cut[c] for c in children(term)))
                limit = self.limits.get(term)
                if limit is not None:
                    new = apply("where", self.inside, new, limit)
                self.cut[term] = new
        return self.cut[root]

    def _within(self, term: Term, inner: tuple[Term, ...]) -> Term:
        axis = self.split.axis
        match term:
            case Index(own) if own == axis:
                return self.position
            case Reduce(monoid, own, body) if own == axis:
                return self._guarded(Reduce(monoid, self.place, inner[0]), body)
            case Online(own, _, body) if own == axis:
                return self._guarded(Online(self.place, *inner), body)
        return rebuild(term, inner)

    def _guarded(self, term: Reduction, source: Term) -> Term:
        """The reduction with nothing added beyond the axis' last position."""
        if not self.split.ragged or conjuncts(self.inside) <= pass_mask([term]):
            return term
        monoid = term.monoid if isinstance(term, Reduce) else "sum"
        body = apply("where", self.inside, term.body, Const(_identity(monoid, type_of(source))))
        if isinstance(term, Online):
            return Online(term.axis, term.repair, body, term.offset)
        return Reduce(monoid, term.axis, body)

    # ---- states --------------------------------------------------------------------------------

    def state(self, root: Reduction) -> Load:
        """The stored states of a reduction, one a chunk."""
        if root not in self.states:
            self._store(root, self.within(root))
        return self.states[root].load

    def _store(self, root: Reduction, term: Term) -> None:
        axes = self._stored_axes(root)
        shape = tuple(a.extent for a in axes)
        buffer = Buffer(self.names(), shape, type_of(term))
        self.states[root] = _State(Output(buffer, axes, term))

    def _stored_axes(self, root: Reduction) -> tuple[Axis, ...]:
        """Chunks come last, or before the axis along which the block's results lie side by side."""
        free = [a for a in self.order if a in root.free]
        if free and (contracts(root) is not None or _contiguous(root, free[-1])):
            return (*free[:-1], self.chunk, free[-1])
        return (*free, self.chunk)

    # ---- merged --------------------------------------------------------------------------------

    def merged_outputs(self, outputs: Outputs) -> Outputs | None:
        """The outputs made of states; None where some state cannot be merged."""
        made = tuple(Output(o.buffer, o.axes, self.outside(o.term)) for o in outputs)
        return None if self.failed else made

    def outside(self, root: Term) -> Term:
        """The term with merged states in place of the reductions that are split."""
        return _replaced(root, self.merged, self._result)

    def _result(self, term: Term) -> Term | None:
        if term not in self.firsts:
            return None
        assert isinstance(term, (Reduce, Online))
        return self._merge(term)

    def _merge(self, root: Reduction) -> Term:
        if isinstance(root, Online):
            return self._merge_online(root)
        if root.monoid in _EXTREMES:
            return self._merge_place(root)
        return reduce_(root.monoid, self.chunk, self.state(root))

    def _merge_online(self, root: Online) -> Term:
        """The sum of the chunks' sums, each brought to the merged values of its carriers."""
        moved: Term = self.state(root)
        repair = self._moved(root.repair)
        if repair not in (Const(1), Const(1.0)):
            gone = apply("eq", repair, Const(0.0))
            moved = apply("where", gone, Const(0.0), apply("mul", moved, repair))
        if root.offset is not None:
            moved = apply("add", moved, self._moved(root.offset))
        return reduce_("sum", self.chunk, moved)

    def _moved(self, root: Term) -> Term:
        """A repair or an offset from a chunk's values to the merged ones."""
        moved = _replaced(root, {}, self._moment)
        self.failed |= self.split.axis in moved.free
        return moved

    def _moment(self, term: Term) -> Term | None:
        if not isinstance(term, (Running, Before)) or term.reduction not in self.firsts:
            return None
        assert isinstance(term.reduction, (Reduce, Online))
        own = self.state if isinstance(term, Before) else self.outside
        return own(term.reduction)

    def _merge_place(self, root: Reduce) -> Term:
        """The place of the extreme: that of the first chunk whose own extreme is the extreme."""
        carried = type_of(root.body)
        if carried == "bool":
            self.failed = True
            return root
        value = self.state(reduce_(_EXTREMES[root.monoid], self.split.axis, root.body))
        if root not in self.states:
            self._store(root, self._at(self.within(root)))
        first = reduce_(root.monoid, self.chunk, value)
        here = apply("eq", Index(self.chunk), first)
        place = apply("where", here, self.states[root].load, Const(0))
        return reduce_("sum", self.chunk, place)


def _replaced(
    root: Term, done: dict[Term, Term], replacement: Callable[[Term], Term | None]
) -> Term:
    """The term with replacements for those outermost subterms that have one."""
    stack: list[tuple[Term, bool]] = [(root, False)]
    while stack:
        term, ready = stack.pop()
        if term in done:
            continue
        if ready:
            done[term] = rebuild(term, tuple(done[c] for c in children(term)))
            continue
        new = replacement(term)
        if new is not None:
            done[term] = new
        else:
            stack.append((term, True))
            stack.extend((c, False) for c in children(term))
    return done[root]


# ---- masks of a ragged last chunk --------------------------------------------------------------


def _limits(firsts: Iterable[Reduction]) -> dict[Term, Term]:
    """What maxima and minima are taken of, and what it is beyond the last position: what follows
    their running values then vanishes there by itself, as behind a mask in the source."""
    own = (t for t in firsts if isinstance(t, Reduce) and t.monoid in ("max", "min"))
    return {t.body: Const(_identity(t.monoid, type_of(t.body))) for t in own}


def _identity(monoid: str, carried: str) -> bool | int | float:
    """A monoid's value over nothing, for elements of a carried type."""
    low = monoid in ("max", "argmax")
    if low or monoid in ("min", "argmin"):
        if carried in _WHOLE:
            return -_WHOLE[carried] if low else _WHOLE[carried] - 1
        return not low if carried == "bool" else float("-inf" if low else "inf")
    if monoid in ("any", "all"):
        return monoid == "all"
    number = 1 if monoid == "prod" else 0
    if carried == "bool":
        return bool(number)
    return number if carried in _WHOLE else float(number)


# ---- axes --------------------------------------------------------------------------------------


def _axes(outputs: Outputs) -> tuple[Axis, ...]:
    """Every axis of the outputs and their terms, those of the outputs first."""
    found = dict.fromkeys(a for o in outputs for a in o.axes)
    for term in walk(*(o.term for o in outputs)):
        if isinstance(term, (Index, Reduce, Online)):
            found.setdefault(term.axis)
    return tuple(found)


def _family(axis: Axis, axes: Iterable[Axis]) -> str:
    """A family for the chunks of an axis."""
    taken = {a.family for a in axes} | {a.name for a in axes}
    stem = f"{axis.family}_chunk"
    name, n = stem, 2
    while name in taken:
        name, n = f"{stem}{n}", n + 1
    return name


def _contiguous(root: Reduction, axis: Axis) -> bool:
    """Whether some tensor below the reduction has the axis as its last."""
    loads = (t for t in inner_terms([root]) if isinstance(t, Load) and t.coordinates)
    return any(axis in t.coordinates[-1].free for t in loads)
