"""Candidate kernels of one region: priced columns for the exact choice.

```
Candidate ::= makes, needs (classes), parts (outputs of one grid each), division, seconds
```

Single-output candidates come from the beam. Joint ones make several classes at once: a class that a
body computes anyway, siblings that share what they read (one grid), or independent bodies with the
same tiles side by side in one launch. A candidate of one part may be divided: its reductions are
split over blocks, and a second launch merges them (see chunks.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nautile.extract.beam import Beam
from nautile.extract.chunks import Divided, best_split
from nautile.extract.classes import Classes
from nautile.extract.exact import Exact, relaxation
from nautile.extract.kernel import Part, Prediction
from nautile.extract.priced import Priced
from nautile.extract.roofline import price
from nautile.extract.selection import Column, Selection, prune
from nautile.extract.split import Split
from nautile.extract.together import CHOICES, side_by_side
from nautile.snapshot import Node
from nautile.terms import Axis, Output, Term, buffers

__all__ = ["Candidate", "Generator", "Unfit"]

Outputs = tuple[Output, ...]

NOISE = 0.03
REFINEMENTS = 2
BASE = 40  # candidates that are looked at for by-products
KEPT = 2.0  # candidates of selections up to this times the best stay, for runners-up
JOINT = 40  # joint candidates that enter the choice
TIE = 1.01  # a joint kernel this much dearer than its two alone may still be the simpler plan
PAIRS = 60  # pairs of candidates that are joined in one round
HIDDEN = 0.25  # of a kernel's time, what may hide under another's in one launch
WHOLE = 256  # extent of an axis that a block may have whole
OUTPUTS = 4  # classes that one joint candidate may make
REMEMBERED = 200  # candidates left out of the choice that are kept to be told of


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to launch: the classes made and needed, the term of each, the nodes chosen, and the
    schedule. Two candidates are one where their parts are. `division` is the split that is cheaper
    than the best schedule of the whole, if there is one."""

    makes: frozenset[int]
    needs: frozenset[int]
    groups: tuple[tuple[tuple[int, Term], ...], ...]  # classes and their terms, part by part
    choice: Mapping[int, Node]
    parts: tuple[Part, ...]
    prediction: Prediction
    division: Divided | None = None

    @property
    def seconds(self) -> float:
        return (self.division or self.prediction).seconds

    @property
    def column(self) -> Column:
        return Column(self.makes, self.needs, self.seconds)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A body of which no tiling fits the device: what it would make and need, and its terms."""

    makes: frozenset[int]
    needs: frozenset[int]
    groups: tuple[tuple[tuple[int, Term], ...], ...]


class Generator:
    """Generates the candidates of one region. `counts` tells what was priced and pruned; after
    `budget` priced bodies no further round begins. Of what is left out, `dropped` has the cheapest
    candidates, and `unfit` bodies that fit no tiles, some of each."""

    def __init__(self, classes: Classes, *, width: int = 8, budget: int = 3000) -> None:
        self.classes, self.numerics = classes, classes.numerics
        self.beam = Beam(classes, width)
        self.budget = budget
        self.pool: dict[tuple[Term, frozenset[int]], Candidate | None] = {}
        self.counts = self.beam.counts
        self.tables: dict[Outputs, tuple[tuple[Part, Prediction], ...]] = {}
        self.divisions: dict[Outputs, Divided | None] = {}
        self.dropped: tuple[Candidate, ...] = ()
        self.unfit: list[Unfit] = []

    def spent(self) -> bool:
        """Whether the budget of priced bodies is gone: then only what is begun is finished. (A
        count, not a clock, so that the choice is the same on a slow machine.)"""
        return self.counts.get("priced", 0) > self.budget

    def run(self) -> list[Candidate]:
        """All candidates worth choosing from; empty when the outputs cannot be made."""
        candidates, chosen = self._settle()
        if chosen is None:  # what was best where nothing is short may fit no machine
            self.beam.plain = True
            candidates, chosen = self._settle()
        if chosen is None:
            return []
        return self._joint(candidates, chosen.cost)

    def _settle(self) -> tuple[list[Candidate], Selection | None]:
        """Generate, choose, and generate again around what was chosen, while it pays."""
        best: Selection | None = None
        candidates: list[Candidate] = []
        for _ in range(1 + REFINEMENTS):
            self.beam.sweep()
            self._price()
            candidates = [c for c in self.pool.values() if c is not None]
            answer = self.choose(candidates)
            if answer is None or (best and answer.cost > best.cost * (1 - 1e-6)):
                break
            best = answer
            made = frozenset(i for k in answer.columns for i in candidates[k].makes)
            if made <= frozenset(self.classes.roots) or self.spent():
                break
            self.beam.free = made
        return candidates, best

    def choose(self, candidates: Sequence[Candidate]) -> Selection | None:
        """The cheapest selection of the candidates."""
        return Exact()([c.column for c in candidates], self.classes.roots)

    def _price(self) -> None:
        """Price every closed body of the classes that some candidate needs."""
        todo, seen = list(self.classes.roots), set(self.classes.roots)
        while todo:
            c = todo.pop()
            for partial in self.beam.bodies.get(c, ()):
                key = (partial.term, partial.needs)
                if partial.follows or partial.needs == {c}:
                    continue
                if key not in self.pool:
                    self.pool[key] = self._candidate(
                        (((c, partial.term),),), partial.choice, partial.needs
                    )
                if self.pool[key] is not None:
                    fresh = sorted(partial.needs - seen)
                    seen.update(fresh)
                    todo += fresh

    def _candidate(
        self,
        groups: tuple[tuple[tuple[int, Term], ...], ...],
        choice: Mapping[int, Node],
        needs: frozenset[int],
        splits: Sequence[Split] | None = None,
    ) -> Candidate | None:
        """One part that makes the classes of the only group, on its best tiles. `splits` are those
        that are tried, if not all."""
        outputs = self.outputs(groups[0])
        makes = frozenset(c for c, _ in groups[0])
        best = self.table(outputs, splits)
        if not best:
            self.beam.count("infeasible")
            if len(self.unfit) < REMEMBERED:
                self.unfit.append(Unfit(makes, needs, groups))
            return None
        part, prediction = best[0]
        division = self.divisions[outputs]
        return Candidate(makes, needs, groups, choice, (part,), prediction, division)

    def table(
        self, outputs: Outputs, splits: Sequence[Split] | None = None
    ) -> tuple[tuple[Part, Prediction], ...]:
        """The best schedule of a part, then the best ones that may share a launch with others,
        remembered, as is its best split."""
        if outputs not in self.tables:
            self.beam.count("priced")
            priced = price(outputs, self.classes.device, numerics=self.numerics)
            self.tables[outputs] = _table(priced)
            division = best_split(outputs, priced, numerics=self.numerics, known=splits)
            self.divisions[outputs] = division
        return self.tables[outputs]

    def outputs(self, group: Iterable[tuple[int, Term]]) -> tuple[Output, ...]:
        """What a part stores that makes these classes."""
        return tuple(o for c, term in group for o in self.classes.output(c, term))

    # ---- several classes from one launch -------------------------------------------------------

    def _joint(self, candidates: list[Candidate], best: float) -> list[Candidate]:
        """The candidates that some selection within twice the best may use, joint ones included:
        those are built where they may bring a selection within the noise of the best."""
        ceiling = best * (1 + NOISE)
        joint = self._join(self._pruned(candidates, ceiling), ceiling)
        singles = self._pruned(candidates, best * KEPT)
        kept = self._pruned(singles + self._asked_for(singles, joint, best), best * KEPT)
        self._remember(kept, joint)
        return kept

    def _remember(self, kept: list[Candidate], joint: list[Candidate]) -> None:
        """Keep the cheapest of the candidates that were priced and do not enter the choice."""
        inside = {id(c) for c in kept}
        priced = [*(c for c in self.pool.values() if c is not None), *joint]
        others = [c for c in priced if id(c) not in inside]
        self.dropped = tuple(sorted(others, key=lambda c: c.seconds)[:REMEMBERED])

    def _asked_for(
        self, singles: list[Candidate], joint: list[Candidate], best: float
    ) -> list[Candidate]:
        """The joint candidates that the relaxation over single ones would buy, or nearly: others
        only weaken the integer program's bound."""
        answer = relaxation([c.column for c in singles], self.classes.roots)
        if answer is None:
            return joint[:JOINT]
        prices = [answer.reduced(c.column) for c in joint]
        order = sorted(range(len(joint)), key=lambda k: (prices[k], k))[:JOINT]
        return [joint[k] for k in order if prices[k] <= TIE * best - answer.value]

    def _join(self, pool: list[Candidate], ceiling: float) -> list[Candidate]:
        if len(pool) < 2:
            return []
        made = self._by_products(pool, ceiling)
        pool = self._pruned(pool + made, ceiling)
        fresh: list[Candidate] | None = None
        for _ in range(3):
            if self.spent():
                break
            fresh = self._merged(pool, fresh, ceiling)
            made += fresh
            pool = self._pruned(pool + fresh, ceiling)
            fresh = [c for c in fresh if any(c is p for p in pool)]
            if not fresh:
                break
        return made

    def _pruned(self, candidates: list[Candidate], ceiling: float) -> list[Candidate]:
        columns = [c.column for c in candidates]
        return [candidates[k] for k in prune(columns, self.classes.roots, ceiling)]

    def _excess(self, candidates: list[Candidate]) -> tuple[dict[int, float], float]:
        """By how much each candidate (by identity) is dearer than the linear relaxation would pay,
        and the value of the relaxation."""
        answer = relaxation([c.column for c in candidates], self.classes.roots)
        if answer is None:
            return {id(c): 0.0 for c in candidates}, 0.0
        return {id(c): max(0.0, answer.reduced(c.column)) for c in candidates}, answer.value

    def _by_products(self, candidates: list[Candidate], ceiling: float) -> list[Candidate]:
        """Candidates that also store a wanted class which their body computes anyway."""
        excess, value = self._excess(candidates)
        wanted = set(self.classes.roots).union(*(c.needs for c in candidates))
        found = []
        for candidate in sorted(candidates, key=lambda c: excess[id(c)])[:BASE]:
            if excess[id(candidate)] > ceiling - value + self._saving(candidate.seconds):
                break
            terms = dict(candidate.groups[0])
            inside = _terms_inside(candidate, self.classes)
            for c in sorted(wanted & set(inside) - candidate.makes):
                group = (*terms.items(), (c, inside[c]))
                joint = self._candidate(
                    (group,), candidate.choice, candidate.needs, _splits(candidate)
                )
                if joint is not None and joint.seconds <= ceiling:
                    found.append(joint)
        return found

    def _saving(self, seconds: float, shared: int = 0) -> float:
        """About the most that joining two kernels saves: a launch, the shared reads, and a part of
        the shorter one that runs under the longer."""
        d = self.classes.device
        return d.launch_seconds + shared / d.memory_bandwidth + HIDDEN * seconds

    def _merged(
        self, pool: list[Candidate], fresh: list[Candidate] | None, ceiling: float
    ) -> list[Candidate]:
        """Joint candidates of the pairs that may pay most, each cheaper than its two alone."""
        found: dict[tuple[frozenset[int], frozenset[int]], Candidate] = {}
        for a, b in self._pairs(pool, fresh, ceiling):
            for joint in (self._one_grid(a, b), side_by_side(a, b, self)):
                if joint is None or joint.seconds > min(ceiling, TIE * (a.seconds + b.seconds)):
                    continue
                key = (joint.makes, joint.needs)
                if key not in found or joint.seconds < found[key].seconds:
                    found[key] = joint
        return sorted(found.values(), key=lambda c: c.seconds)

    def _pairs(
        self, pool: list[Candidate], fresh: list[Candidate] | None, ceiling: float
    ) -> list[tuple[Candidate, Candidate]]:
        excess, value = self._excess(pool)
        new = None if fresh is None else {id(c) for c in fresh}
        read = [reads(c) for c in pool]
        ranked = []
        for (i, a), (j, b) in itertools.combinations(enumerate(pool), 2):
            if new is not None and id(a) not in new and id(b) not in new:
                continue
            over = excess[id(a)] + excess[id(b)] - (ceiling - value)
            if over > self._saving(min(a.seconds, b.seconds), 1 << 62) or not _apart(a, b):
                continue
            shared = _shared(read[i], read[j])
            over -= self._saving(min(a.seconds, b.seconds), shared)
            if shared and over <= 0:
                ranked.append((over, i, j))
        return [(pool[i], pool[j]) for _, i, j in sorted(ranked)[:PAIRS]]

    def _one_grid(self, a: Candidate, b: Candidate) -> Candidate | None:
        """Both bodies in one part, where they agree and walk the same output axes, but for some
        that a block has whole (as the channels of two gradients may be)."""
        if len(a.parts) > 1 or len(b.parts) > 1 or len(a.makes | b.makes) > OUTPUTS:
            return None
        axes = {frozenset(o.axes) for c in (a, b) for o in c.parts[0].outputs}
        most = max(axes, key=len)
        own = frozenset().union(*axes) - most and frozenset().union(*(most ^ x for x in axes))
        if any(axis.extent > WHOLE for axis in own):
            return None
        choice = dict(a.choice)
        if any(choice.setdefault(c, node) != node for c, node in b.choice.items()):
            return None
        if not (a.needs | b.needs).isdisjoint(choice):
            return None
        group = (*a.groups[0], *b.groups[0])
        joint = self._candidate((group,), choice, a.needs | b.needs, _splits(a, b))
        return joint if joint is not None and _has_whole(joint.parts[0], own) else None


def _table(priced: Priced) -> tuple[tuple[Part, Prediction], ...]:
    """The best schedule, then the best of the portable path."""
    best, portable = priced.ranked(1), priced.ranked(CHOICES, "portable")
    return best + portable if best and best[0][0].path != "portable" else portable


def _has_whole(part: Part, axes: Iterable[Axis]) -> bool:
    """Whether each block has all of these axes."""
    return all(part.tiles.get(axis, 1) >= axis.extent for axis in axes)


def _splits(*candidates: Candidate) -> list[Split]:
    """The splits of the candidates, each once."""
    found = dict.fromkeys(c.division.split for c in candidates if c.division)
    return list(found)


def _terms_inside(candidate: Candidate, classes: Classes) -> dict[int, Term]:
    """The term that the candidate computes for each storable class inside it."""
    from nautile.extract.body import inner_terms
    from nautile.snapshot import node_of
    from nautile.terms import Cast, Load, children

    by_node = {node: c for c, node in candidate.choice.items()}
    ids: dict[Term, int] = {classes.load(c): c for c in candidate.needs}
    for term in inner_terms(t for _, t in candidate.groups[0]):
        if term in ids:
            continue
        below = () if isinstance(term, Load) else tuple(ids.get(k, -1) for k in children(term))
        c = by_node.get(node_of(term, below))
        if c is None and isinstance(term, Cast) and term.dtype == "f32":
            c = ids.get(term.argument)  # an operand that was widened
        if c is not None:
            ids[term] = c
    closed = {c: t for t, c in ids.items() if c in candidate.choice and classes.storable(c)}
    return {c: t for c, t in closed.items() if _closed(t)}


def _closed(term: Term) -> bool:
    """Whether no running value is open in the term."""
    from nautile.extract.body import inner_terms
    from nautile.terms import Before, Running

    inside = [t for t in inner_terms([term]) if isinstance(t, (Running, Before))]
    return all(t.axis not in term.free for t in inside)


def _apart(a: Candidate, b: Candidate) -> bool:
    """Whether neither makes what the other makes or needs."""
    return not (a.makes & b.makes or a.makes & b.needs or b.makes & a.needs)


def _shared(x: Mapping[str, int], y: Mapping[str, int]) -> int:
    """Bytes that both read, if they are at least a fifth of what the busier one reads, else 0."""
    shared = sum(n for name, n in x.items() if name in y)
    return shared if 5 * shared >= max(sum(x.values()), sum(y.values())) else 0


def reads(candidate: Candidate) -> dict[str, int]:
    """Bytes of the tensors that the candidate reads, by name."""
    from nautile.dtypes import DTYPES

    terms = [t for group in candidate.groups for _, t in group]
    return {b.name: b.size * DTYPES[b.dtype].bytes for b in buffers(*terms)}
