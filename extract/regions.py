"""Regions: the pieces of a program that are optimized one at a time.

```
Region ::= number, outputs     terms in which the region's own definitions are written out
```

What a region reads are inputs of the program and outputs of other regions, by name. A program of
up to `WHOLE` distinct subterms is one region. A larger one is cut at definitions that would be
computed again and again if they were written into their readers: they hold a reduction, and either
several readers would repeat it, or one reader needs each element in many blocks. Pointwise
definitions are always written out. Outputs that share most of what they read, or a reduction, and
do not wait for one another, share a region.
What is stored lives in one tensor each (homes.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nautile.extract.body import inner_terms
from nautile.extract.homes import homes, moved, returned, targets
from nautile.extract.unsaturated import snapshot_of
from nautile.inline import inline_outputs
from nautile.terms import (
    Axis,
    Definition,
    Load,
    Online,
    Output,
    Program,
    Reduce,
    Term,
    buffers,
    children,
    substitute,
    walk,
)

__all__ = ["Region", "cut", "snapshot_of", "written"]

WHOLE = 64  # distinct subterms of a program that is left uncut
LARGEST = 110  # subterms of a region before it is cut further
PLACES = 8  # index expressions that a definition is read at before it is stored
MORE = 1.25  # positions that a definition read at several places may be computed over, for one
REPEAT = 1024  # positions that read one element before it is stored (four blocks of 256)


@dataclass(frozen=True, slots=True)
class Region:
    """Outputs to be computed together; `number` is its place in the program's order."""

    outputs: tuple[Output, ...]
    number: int = 0

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that the region loads."""
        return tuple(b.name for b in buffers(*(o.term for o in self.outputs)))


def cut(program: Program) -> tuple[Region, ...]:
    """The program's regions in an order in which they can be computed."""
    pieces = _Pieces(program)
    stored = pieces.forced()
    if pieces.size(pieces.whole(stored)) > WHOLE:
        stored = pieces.cuts(stored)
    groups = pieces.groups(stored)
    return tuple(Region(outputs, n) for n, outputs in enumerate(groups))


def written(program: Program) -> tuple[Region, ...]:
    """The program as it is written: a region for each definition that its results need."""
    pieces = _Pieces(program)
    outputs = pieces.whole(set(pieces.needed))
    return tuple(Region((output,), n) for n, output in enumerate(outputs))


class _Pieces:
    """The definitions of one program and who reads them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.definitions: dict[str, Definition] = {d.name: d for d in program.definitions}
        self.needed = self._needed()
        self.heavy = self._heavy()
        self._dimensions: dict[str, tuple[int, ...]] = {}

    def _needed(self) -> list[str]:
        """The definitions that the outputs depend on, in source order."""
        found: set[str] = set()
        todo = [o.term for o in self.program.outputs]
        while todo:
            for buffer in buffers(todo.pop()):
                if buffer.name in self.definitions and buffer.name not in found:
                    found.add(buffer.name)
                    todo.append(self.definitions[buffer.name].body)
        return [d.name for d in self.program.definitions if d.name in found]

    def _heavy(self) -> set[str]:
        """Definitions that hold a reduction, their own or one written into them."""
        heavy: set[str] = set()
        for name in self.needed:
            body = self.definitions[name].body
            reduces = any(isinstance(t, (Reduce, Online)) for t in walk(body))
            if reduces or any(b.name in heavy for b in buffers(body)):
                heavy.add(name)
        return heavy

    def forced(self) -> set[str]:
        """Heavy definitions that would be computed over more positions than they have if they were
        written out: at all index expressions together that they are read at. (A quarter more is
        nothing: picking one element a row does not force a matrix of logits into memory.)

        What is written out is read where its readers are, binders of their own included: the terms
        of one row under two axes are two rows to the e-graph.
        """
        found: set[str] = set()
        places: dict[str, dict[tuple[Term, ...], Load]] = {n: {} for n in self.heavy}
        for output in self.program.outputs:
            self._note(output.term, places)
        for name in (n for n in reversed(self.needed) if n in self.heavy):
            d, read = self.definitions[name], places[name]
            if len(read) > PLACES or self._widened(name, set(read)):
                found.add(name)
                self._note(d.body, places)
            else:
                for load in read.values():
                    at = dict(zip(d.axes, load.coordinates, strict=True))
                    self._note(substitute(d.body, at), places)
        return found | self._gathered(found)

    def _note(self, body: Term, places: dict[str, dict[tuple[Term, ...], Load]]) -> None:
        """Add where heavy definitions are read: at one load of those that reductions inside them
        cannot tell apart."""
        for load in _loads(body):
            if load.buffer.name in places:
                at = tuple(load.coordinates[k] for k in self._felt(load.buffer.name))
                places[load.buffer.name].setdefault(at, load)

    def _gathered(self, stored: set[str]) -> set[str]:
        """Definitions that read one tensor at several places and whose elements are read again and
        again (a rotation before a product): no product can read them where they lie."""
        spread = {n for n in self.needed if _several_places(self.definitions[n].body)}
        spread -= self.heavy
        repeats = self._repeats(self._edges(), stored) if spread else {}
        return {n for n in spread if repeats[n] > REPEAT}

    def _felt(self, name: str) -> tuple[int, ...]:
        """The dimensions of a definition that some reduction inside it depends on."""
        if name not in self._dimensions:
            d = self.definitions[name]
            inside: list[Term] = [t for t in walk(d.body) if isinstance(t, (Reduce, Online))]
            for load in _loads(d.body):
                if load.buffer.name in self.heavy:  # not written out: copies double at each level
                    inside += [load.coordinates[k] for k in self._felt(load.buffer.name)]
            free = frozenset[Axis]().union(*(t.free for t in inside))
            self._dimensions[name] = tuple(k for k, a in enumerate(d.axes) if a in free)
        return self._dimensions[name]

    def _widened(self, name: str, places: set[tuple[Term, ...]]) -> bool:
        axes = self.definitions[name].axes
        size = math.prod(axes[k].extent for k in self._felt(name))
        free = [frozenset[Axis]().union(*(c.free for c in p)) for p in places]
        positions = sum(math.prod(a.extent for a in f) for f in free)
        return positions > size * (1 if len(places) == 1 else MORE)

    def written(self, outputs: Iterable[Output], stored: set[str]) -> tuple[Output, ...]:
        """The outputs with all definitions that are not stored written out."""
        open_ = {
            n: (self.definitions[n].axes, self.definitions[n].body)
            for n in self.needed
            if n not in stored
        }
        return inline_outputs(tuple(outputs), open_)

    def stored(self, names: set[str]) -> list[Definition]:
        return [self.definitions[n] for n in self.needed if n in names]

    def targets(self, stored: set[str]) -> list[Output]:
        """What must be stored: the chosen definitions in source order, then the other outputs."""
        return targets(self.program, self.stored(stored))

    def whole(self, stored: set[str]) -> tuple[Output, ...]:
        """The targets written out, what they read where it lives."""
        places = homes(self.program, self.stored(stored))
        new = {self.definitions[n].buffer: place for n, place in places.items()}
        return moved(self.written(self.targets(stored), stored), new)

    @staticmethod
    def size(outputs: Iterable[Output]) -> int:
        return len(inner_terms(o.term for o in outputs))

    # ---- where to cut --------------------------------------------------------------------------

    def cuts(self, stored: set[str]) -> set[str]:
        """`stored` and the definitions that are worth a kernel of their own."""
        edges = self._edges()
        chosen = set(stored)
        own = self._contracting(set(self.needed))
        repeats = self._repeats(edges, chosen)
        chosen |= {n for n in own if len(edges[n]) > 1 and repeats[n] > REPEAT}
        for name in reversed(self.needed):
            working = self._contracting(chosen)
            if name in working and self._repeats(edges, chosen)[name] > REPEAT:
                nearest = max(missing for _, missing in edges[name])
                if nearest > REPEAT or len(edges[name]) > 1:
                    chosen.add(name)
        return self._small(chosen)

    def _small(self, stored: set[str]) -> set[str]:
        """More cuts where a region is still too large."""
        chosen = set(stored)
        while True:
            large = [o for o in self.targets(chosen) if self._large(o, chosen)]
            extra = [n for o in large if (n := self._middle(o, chosen)) is not None]
            if not extra:
                return chosen
            chosen |= set(extra)

    def _contracting(self, stored: set[str]) -> set[str]:
        """Definitions that hold a contraction, their own or that of one written into them."""
        found: set[str] = set()
        for name in self.needed:
            body = self.definitions[name].body
            own = any(_is_contraction(t) for t in walk(body))
            if own or any(b.name in found and b.name not in stored for b in buffers(body)):
                found.add(name)
        return found

    def _edges(self) -> dict[str, list[tuple[str, int]]]:
        """For each definition its readers (outputs as "") and how many positions of the reader's
        result need one element."""
        edges: dict[str, list[tuple[str, int]]] = {n: [] for n in self.needed}
        for reader, axes, body in self._readers():
            worst: dict[str, int] = {}
            for load in _loads(body):
                if load.buffer.name in edges:
                    missing = {a for a in axes if a not in load.free}
                    missing |= _enclosing(body, load) - load.free
                    n = math.prod(a.extent for a in missing)
                    worst[load.buffer.name] = max(worst.get(load.buffer.name, 1), n)
            for name, n in worst.items():
                edges[name].append((reader, n))
        return edges

    def _repeats(
        self, edges: Mapping[str, list[tuple[str, int]]], stored: set[str]
    ) -> dict[str, int]:
        """How many positions need one element of each definition, through the readers that are
        written out themselves."""
        repeats: dict[str, int] = {}
        for name in reversed(self.needed):
            further = [n * (1 if r in stored else repeats.get(r, 1)) for r, n in edges[name]]
            repeats[name] = max(further, default=1)
        return repeats

    def _readers(self) -> list[tuple[str, tuple[Axis, ...], Term]]:
        own = [(n, self.definitions[n].axes, self.definitions[n].body) for n in self.needed]
        return own + [("", o.axes, o.term) for o in self.program.outputs]

    def _large(self, output: Output, stored: set[str]) -> bool:
        return self.size(self.written([output], stored)) > LARGEST

    def _middle(self, output: Output, stored: set[str]) -> str | None:
        """The heavy definition below `output` whose own term is nearest half the region's size."""
        total = self.size(self.written([output], stored))
        below = [n for n in self._below(output, stored) if n in self.heavy]
        sizes = {n: self._definition_size(n, stored) for n in below}
        return min(below, key=lambda n: abs(2 * sizes[n] - total), default=None)

    def _definition_size(self, name: str, stored: set[str]) -> int:
        d = self.definitions[name]
        return self.size(self.written([Output(d.buffer, d.axes, d.body)], stored))

    def _below(self, output: Output, stored: set[str]) -> list[str]:
        """The definitions that are written into the output, but for the one that it returns."""
        load = returned(output)
        own = self.definitions.get(load.buffer.name) if load is not None else None
        found: dict[str, None] = {}
        todo = [own.body if own is not None and own.name not in stored else output.term]
        while todo:
            for buffer in buffers(todo.pop()):
                name = buffer.name
                if name in self.definitions and name not in stored and name not in found:
                    found[name] = None
                    todo.append(self.definitions[name].body)
        return list(found)

    # ---- which outputs share a region ----------------------------------------------------------

    def groups(self, stored: set[str]) -> list[tuple[Output, ...]]:
        """Written-out outputs, those that share reads together, in an order that can be run."""
        targets = self.whole(stored)
        waits = _depths(targets)
        groups: list[list[Output]] = []
        for target in targets:
            home = self._home(target, groups, waits)
            if home is None:
                groups.append([target])
            else:
                home.append(target)
        groups.sort(key=lambda g: max(waits[o.buffer.name] for o in g))
        return [tuple(g) for g in groups]

    def _home(
        self, target: Output, groups: Sequence[list[Output]], waits: Mapping[str, int]
    ) -> list[Output] | None:
        reads = _read_bytes([target])
        for group in groups:
            if waits[group[0].buffer.name] != waits[target.buffer.name]:
                continue
            theirs = _read_bytes(group)
            shared = sum(n for name, n in reads.items() if name in theirs)
            most = max(sum(reads.values()), sum(theirs.values()))
            near = 5 * shared >= most or (shared and _reduced(group) & _reduced([target]))
            if near and self.size([*group, target]) <= LARGEST:
                return group
        return None


def _depths(targets: Sequence[Output]) -> dict[str, int]:
    """For each target the length of the longest chain of other targets that it waits for."""
    names = {o.buffer.name for o in targets}
    depth: dict[str, int] = {}
    for o in targets:
        below = [b.name for b in buffers(o.term) if b.name in names and b.name in depth]
        depth[o.buffer.name] = 1 + max((depth[n] for n in below), default=0)
    return depth


def _read_bytes(outputs: Iterable[Output]) -> dict[str, int]:
    return {b.name: b.size for o in outputs for b in buffers(o.term)}


def _reduced(outputs: Iterable[Output]) -> set[Term]:
    """The reductions that the outputs wait for."""
    terms = inner_terms(o.term for o in outputs)
    return {t for t in terms if isinstance(t, (Reduce, Online))}


def _several_places(term: Term) -> bool:
    """Whether one tensor is loaded at different places."""
    loads = {t for t in walk(term) if isinstance(t, Load)}
    return len({t.buffer.name for t in loads}) < len(loads)


def _loads(term: Term) -> list[Load]:
    return [t for t in walk(term) if isinstance(t, Load)]


def _is_contraction(term: Term) -> bool:
    """A sum over a product of two factors that both walk the summed axis."""
    if not (isinstance(term, Reduce) and term.monoid == "sum"):
        return False
    loads = [t for t in inner_terms([term.body]) if isinstance(t, Load) and term.axis in t.free]
    return len({t.free for t in loads}) > 1


def _enclosing(root: Term, load: Load) -> frozenset[Axis]:
    """The axes of the reductions of `root` that hold `load`."""
    holds: dict[Term, bool] = {}
    axes: set[Axis] = set()
    for term in walk(root):
        inside = term is load or any(holds[c] for c in children(term))
        holds[term] = inside
        if inside and isinstance(term, (Reduce, Online)):
            axes.add(term.axis)
    return frozenset(axes)
