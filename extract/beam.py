"""Bottom-up generation of partial bodies, with dominance pruning and a beam.

For every class the beam keeps the bodies that price best with tiles (plus what storing their needs
takes), and reserved places: fewest needs, least own cost, fewest passes, and what is cheap given
the tensors that the current choice already stores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nautile.extract.agree import agreed, clash
from nautile.extract.classes import Classes
from nautile.extract.partial import FOLD, NORM, Partial, combine, leaf, stored
from nautile.extract.roofline import price
from nautile.snapshot import Node
from nautile.terms import Axis, Buffer, Output, Term

__all__ = ["Beam"]

ROUNDS = 4
EQUAL = 1.02  # costs within this factor count as equal: the model is no better
FOREIGN = 0.001  # what a node that is not the source's adds when near equals are ranked
AGREED = 4  # combinations of children that differ in a choice which are made to agree
PRODUCT = 3000  # combinations of children tried for one node


@dataclass(slots=True)
class Beam:
    """Partial bodies of every class. `width` bodies a class; `wide * width` are priced with tiles;
    `free` are classes that the incumbent stores, `counts` what was pruned. `plain` also keeps the
    body of each class that computes the fewest, whatever it costs."""

    classes: Classes
    width: int = 8
    wide: int = 1
    coarse: int = 400
    free: frozenset[int] = frozenset()
    bodies: dict[int, tuple[Partial, ...]] = field(default_factory=dict)
    total: dict[int, float] = field(default_factory=dict)
    plan: dict[int, dict[int, float]] = field(default_factory=dict)
    prices: dict[Term, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    plain: bool = False

    def sweep(self) -> None:
        """Visit every class once, knots of mutually dependent classes until they settle."""
        for knot in self.classes.order():
            rounds = 1 if len(knot) == 1 else ROUNDS
            for _ in range(rounds):
                changed = [self._visit(c) for c in knot]
                if not any(changed):
                    break

    def _visit(self, c: int) -> bool:
        before = [(p.term, p.needs) for p in self.bodies.get(c, ())]
        if c in self.classes.leaves:
            self.bodies[c] = (leaf(self.classes, c),)
        else:
            found = [p for node in self.classes.nodes[c] for p in self._bodies_of(c, node)]
            self.bodies[c] = tuple(self._keep(c, found))
            self._store(c)
        return before != [(p.term, p.needs) for p in self.bodies[c]]

    def _bodies_of(self, c: int, node: Node) -> Iterable[Partial]:
        kids = tuple(dict.fromkeys(node.children))
        options = [self._options(k, c, node) for k in kids]
        apart: list[tuple[Partial, ...]] = []
        found: list[Partial] = []
        for parts in itertools.islice(itertools.product(*options), PRODUCT):
            partial = combine(self.classes, c, node, dict(zip(kids, parts, strict=True)))
            self.count("combined")
            if partial is not None:
                partial.producers = self.needed(partial.needs)
                found.append(partial)
                continue
            self.count("conflicts")
            if len(apart) < AGREED and len(kids) > 1 and clash(parts):
                apart.append(parts)
        yield from found
        yield from self._agreed(c, node, [x for x in apart if not _covered(x, found)])

    def _agreed(self, c: int, node: Node, apart: list[tuple[Partial, ...]]) -> Iterable[Partial]:
        """The best bodies that differ in a choice, each pair with the choices of one of them."""
        for parts in apart:
            for leader in range(len(parts)):
                same = agreed(self.classes, parts, leader, self.total)
                if same is None:
                    continue
                partial = combine(self.classes, c, node, {p.root: p for p in same})
                self.count("agreed" if partial else "conflicts")
                if partial is not None:
                    partial.producers = self.needed(partial.needs)
                    yield partial

    def _options(self, k: int, c: int, node: Node) -> list[Partial]:
        options = list(self.bodies.get(k, ()))
        readable = node.kind not in ("running", "before")
        if readable and k != c and k in self.total and self.classes.storable(k):
            options.append(stored(self.classes, k, self.total[k]))
        return options

    def _store(self, c: int) -> None:
        """Update the cheapest known way to have the class stored."""
        closed = [p for p in self.bodies[c] if not p.follows]
        if not closed:
            return
        best = min(closed, key=lambda p: p.total)
        own = best.own + self.classes.transfer(c) + self.classes.device.launch_seconds
        if own + best.producers < self.total.get(c, float("inf")):
            self.total[c] = own + best.producers
            plan: dict[int, float] = {}
            for need in sorted(best.needs):
                plan.update(self.plan[need])
            self.plan[c] = {**plan, c: own}

    def needed(self, needs: Iterable[int]) -> float:
        """Seconds to have all of `needs` stored: their plans together, each kernel once."""
        plan: dict[int, float] = {}
        for need in sorted(needs):
            plan.update(self.plan[need])
        return sum(plan.values())

    # ---- pruning -------------------------------------------------------------------------------

    def _keep(self, c: int, found: list[Partial]) -> list[Partial]:
        slim = self._undominated(found, priced=False)
        if len(slim) > self.width or c in self.classes.roots or self.classes.storable(c):
            slim = self._priced(slim)
            for partial in slim:
                partial.own = self.tiled(partial)
            slim = self._undominated(slim, priced=True)
        best = slim[: self.width]
        shortest = sorted(found, key=lambda p: (len(p.choice), p.total))[: self.plain]
        for extra in [*self._reserved(slim), *shortest]:
            if all(extra is not p for p in best):
                best.append(extra)
        self.count("beam", max(0, len(slim) - len(best)))
        return best

    def _priced(self, slim: list[Partial]) -> list[Partial]:
        """The bodies that are priced with tiles: the best ones, the one that needs least, and the
        best of every nest of reductions. Where laws make many multiples of a class, one body alone
        computes it; the others turn what is stored of one multiple into another. And a product
        inside another one, which costs nothing more without tiles, may be done again in each."""
        best = slim[: self.wide * self.width]
        more = [min(slim, key=lambda p: len(p.needs))] if slim else []
        nests = {_nest(p) for p in best}
        for p in slim[len(best) :]:
            if _nest(p) not in nests:
                nests.add(_nest(p))
                more.append(p)
        return best + [p for p in more if all(p is not q for q in best)]

    def _undominated(self, found: list[Partial], *, priced: bool) -> list[Partial]:
        """Best first, without bodies that another beats in needs, cost and passes at once. Ideal
        costs compare only bodies of equal needs: tiles may turn a body with fewer needs slow."""
        kept: list[Partial] = []
        for p in sorted(found, key=self._rank):
            if any(_dominates(q, p) for q in kept if priced or _alike(q, p)):
                self.count("dominated")
            else:
                kept.append(p)
        return kept

    def _rank(self, p: Partial) -> tuple[float, int, int, int]:
        """Cheapest first; of near equals the one closest to the source, so that bodies of several
        classes agree in their choices."""
        foreign = sum(self.classes.snapshot.source.get(c) != n for c, n in p.choice.items())
        return p.total * (1 + FOREIGN * foreign), p.passes, len(p.choice), len(p.needs)

    def _reserved(self, slim: list[Partial]) -> list[Partial]:
        if not slim:
            return []
        keys: tuple[Callable[[Partial], tuple[float, float]], ...] = (
            lambda p: (len(p.needs), p.own),
            lambda p: (p.own, p.producers),
            lambda p: (p.passes, p.total),
        )
        places = [min(slim, key=key) for key in keys]
        closed = [p for p in slim if not p.follows]
        places += closed[:1]
        if self.free:
            places += sorted(slim, key=self._with_free)[: max(1, self.width // 2)]
        return places

    def _with_free(self, p: Partial) -> float:
        return p.own + self.needed(p.needs - self.free)

    def tiled(self, partial: Partial) -> float:
        """Seconds of the partial as a kernel of its own on its best tiles, less launch and store;
        a body with open running values keeps its ideal cost."""
        if partial.follows:
            return partial.own
        if partial.term not in self.prices:
            axes = self.classes.axes[partial.root]
            shape = tuple(a.extent for a in axes)
            output = Output(Buffer("~", shape, "f32"), axes, partial.term)
            device = self.classes.device
            priced = price((output,), device, numerics=self.classes.numerics, limit=self.coarse)
            self.count("priced")
            fixed = device.launch_seconds + self.classes.transfer(partial.root)
            seconds = priced.best()
            self.prices[partial.term] = max(seconds - fixed, seconds / 10)
        return self.prices[partial.term]

    def count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


def _nest(p: Partial) -> tuple[int, frozenset[Axis], frozenset[Axis]]:
    """The reductions inside a body: their sorts, and the axes of contractions and of folds."""
    return p.kinds, p.depths, p.folded


def _covered(parts: tuple[Partial, ...], found: list[Partial]) -> bool:
    """Whether a body that was found needs no more than these bodies do."""
    needs = frozenset[int]().union(*(p.needs for p in parts))
    return any(p.needs <= needs for p in found)


def _alike(a: Partial, b: Partial) -> bool:
    """Whether ideal costs compare two bodies: of equal needs, and, before a contraction, of as many
    passes (a norm's rows may be resident, where one pass is worth no more than three)."""
    return a.needs == b.needs and (a.passes == b.passes or a.kinds != FOLD)


def _dominates(a: Partial, b: Partial) -> bool:
    return (
        a.needs <= b.needs
        and a.own <= b.own * EQUAL
        and a.own_resident <= b.own_resident * EQUAL
        and a.passes <= b.passes
        and a.follows == b.follows
        and a.kinds & NORM <= b.kinds & NORM
    )
