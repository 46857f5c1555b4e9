"""Candidate kernels of one region: priced columns for the exact choice.

```
Candidate ::= makes, needs (classes), parts (outputs of one grid each), seconds
```

Single-output candidates come from the beam. Joint ones make several classes at once: a class that a
body computes anyway, siblings that share what they read (one grid), or independent bodies with the
same tiles side by side in one launch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nautile.extract.beam import Beam
from nautile.extract.classes import Classes
from nautile.extract.exact import Exact, relaxation
from nautile.extract.kernel import Part, Prediction
from nautile.extract.roofline import schedules
from nautile.extract.selection import Column, Selection, prune
from nautile.extract.together import side_by_side
from nautile.snapshot import Node
from nautile.terms import Output, Term, buffers

__all__ = ["Candidate", "Generator"]

NOISE = 0.03
REFINEMENTS = 2
BASE = 40  # candidates that joint ones are built from
OUTPUTS = 4  # classes that one joint candidate may make


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to launch: the classes made and needed, the term of each, the nodes chosen, and the
    schedule. Two candidates are one where their parts are."""

    makes: frozenset[int]
    needs: frozenset[int]
    groups: tuple[tuple[tuple[int, Term], ...], ...]  # classes and their terms, part by part
    choice: Mapping[int, Node]
    parts: tuple[Part, ...]
    prediction: Prediction

    @property
    def seconds(self) -> float:
        return self.prediction.seconds

    @property
    def column(self) -> Column:
        return Column(self.makes, self.needs, self.seconds)


class Generator:
    """Generates the candidates of one region. `counts` tells what was priced and pruned."""

    def __init__(
        self, classes: Classes, *, numerics: str = "real", width: int = 8, seconds: float = 10.0
    ) -> None:
        self.classes, self.numerics = classes, numerics
        self.beam = Beam(classes, numerics, width)
        self.deadline = time.monotonic() + seconds
        self.pool: dict[tuple[Term, frozenset[int]], Candidate | None] = {}
        self.counts = self.beam.counts

    def run(self) -> list[Candidate]:
        """All candidates worth choosing from; empty when the outputs cannot be made."""
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
            if made <= frozenset(self.classes.roots) or time.monotonic() > self.deadline:
                break
            self.beam.free = made
        return candidates, best

    def choose(self, candidates: Sequence[Candidate]) -> Selection | None:
        """The cheapest selection of the candidates."""
        return Exact(seconds=5.0)([c.column for c in candidates], self.classes.roots)

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
    ) -> Candidate | None:
        """One part that makes the classes of the only group, on its best tiles."""
        outputs = self.outputs(groups[0])
        best = schedules(outputs, self.classes.device, 1, numerics=self.numerics)
        self.beam._count("priced")
        if not best:
            self.beam._count("infeasible")
            return None
        part, prediction = best[0]
        makes = frozenset(c for c, _ in groups[0])
        return Candidate(makes, needs, groups, choice, (part,), prediction)

    def outputs(self, group: Iterable[tuple[int, Term]]) -> tuple[Output, ...]:
        """What a part stores that makes these classes."""
        return tuple(o for c, term in group for o in self.classes.output(c, term))

    # ---- several classes from one launch -------------------------------------------------------

    def _joint(self, candidates: list[Candidate], ceiling: float) -> list[Candidate]:
        ceiling *= 1 + NOISE
        pool = self._pruned(candidates, ceiling)
        if len(pool) < 2:
            return pool
        pool = self._pruned(pool + self._by_products(pool, ceiling), ceiling)
        frontier = self._base(pool)
        for _ in range(3):
            if time.monotonic() > self.deadline:
                break
            fresh = self._merged(frontier, self._base(pool), ceiling)
            if not fresh:
                break
            pool = self._pruned(pool + fresh, ceiling)
            frontier = [c for c in fresh if any(c is p for p in pool)]
        return pool

    def _pruned(self, candidates: list[Candidate], ceiling: float) -> list[Candidate]:
        columns = [c.column for c in candidates]
        return [candidates[k] for k in prune(columns, self.classes.roots, ceiling)]

    def _base(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that the linear relaxation comes nearest to using."""
        answer = relaxation([c.column for c in candidates], self.classes.roots)
        if answer is None:
            return candidates[:BASE]
        order = sorted(
            range(len(candidates)), key=lambda k: (answer.reduced(candidates[k].column), k)
        )
        return [candidates[k] for k in order[:BASE]]

    def _by_products(self, candidates: list[Candidate], ceiling: float) -> list[Candidate]:
        """Candidates that also store a wanted class which their body computes anyway."""
        wanted = set(self.classes.roots).union(*(c.needs for c in candidates))
        found = []
        for candidate in self._base(candidates):
            terms = dict(candidate.groups[0])
            inside = _terms_inside(candidate, self.classes)
            for c in sorted(wanted & set(inside) - candidate.makes):
                group = (*terms.items(), (c, inside[c]))
                joint = self._candidate((group,), candidate.choice, candidate.needs)
                if joint is not None and joint.seconds <= ceiling:
                    found.append(joint)
        return found

    def _merged(
        self, left: Sequence[Candidate], right: Sequence[Candidate], ceiling: float
    ) -> list[Candidate]:
        found: dict[tuple[frozenset[int], frozenset[int]], Candidate] = {}
        for a, b in itertools.product(left, right):
            if a is b or not _apart(a, b) or not _share(a, b):
                continue
            for joint in (self._one_grid(a, b), side_by_side(a, b, self)):
                if joint is None or joint.seconds >= min(ceiling, a.seconds + b.seconds):
                    continue
                key = (joint.makes, joint.needs)
                if key not in found or joint.seconds < found[key].seconds:
                    found[key] = joint
        return sorted(found.values(), key=lambda c: c.seconds)[:BASE]

    def _one_grid(self, a: Candidate, b: Candidate) -> Candidate | None:
        """Both bodies in one part, where they agree and walk the same output axes."""
        if len(a.parts) > 1 or len(b.parts) > 1 or len(a.makes | b.makes) > OUTPUTS:
            return None
        axes = {frozenset(o.axes) for c in (a, b) for o in c.parts[0].outputs}
        if max(axes, key=len) != frozenset().union(*axes):
            return None
        choice = dict(a.choice)
        if any(choice.setdefault(c, node) != node for c, node in b.choice.items()):
            return None
        if not (a.needs | b.needs).isdisjoint(choice):
            return None
        return self._candidate(((*a.groups[0], *b.groups[0]),), choice, a.needs | b.needs)


def _terms_inside(candidate: Candidate, classes: Classes) -> dict[int, Term]:
    """The term that the candidate computes for each storable class inside it."""
    from nautile.extract.body import inner_terms
    from nautile.snapshot import node_of
    from nautile.terms import Load, children

    by_node = {node: c for c, node in candidate.choice.items()}
    ids: dict[Term, int] = {classes.load(c): c for c in candidate.needs}
    for term in inner_terms(t for _, t in candidate.groups[0]):
        if term in ids:
            continue
        below = () if isinstance(term, Load) else tuple(ids.get(k, -1) for k in children(term))
        c = by_node.get(node_of(term, below))
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


def _share(a: Candidate, b: Candidate) -> bool:
    """Whether the two read at least a fifth of their bytes in common."""
    x, y = reads(a), reads(b)
    shared = sum(n for name, n in x.items() if name in y)
    return 5 * shared >= max(sum(x.values()), sum(y.values()))


def reads(candidate: Candidate) -> dict[str, int]:
    """Bytes of the tensors that the candidate reads, by name."""
    from nautile.dtypes import DTYPES

    terms = [t for group in candidate.groups for _, t in group]
    return {b.name: b.size * DTYPES[b.dtype].bytes for b in buffers(*terms)}
