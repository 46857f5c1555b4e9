"""Does saturation with these rules reach the chosen terms? Asked of the real e-graph.

The region's source goes in, rules are applied one by one (`egraph.alone`, which loads all laws once
and leaves out what it is told to), and only when nothing more is found the chosen terms are
inserted: each must land in the class of its output. What is inserted last meets folding and normal
laws alone, so that nothing is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from nautile.egraph import Limits, encode, job_of
from nautile.egraph.encode import Region
from nautile.egraph.engine import Frozen, Job
from nautile.errors import SaturationError
from nautile.rules.law import Rule
from nautile.terms import Output, Term
from nautile.worker import Worker

from .goal import Goal
from .parts import subterms

__all__ = ["Encoded", "Question", "encoded"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A region's source and further terms as egglog lines: those of the source, those that come
    `after`, how many terms the source has, and the places of all roots, the source's first."""

    region: Region
    lines: tuple[str, ...]
    after: tuple[str, ...]
    count: int
    roots: tuple[int, ...]

    @property
    def sources(self) -> tuple[Term, ...]:
        """The source's terms as the e-graph has them, one for each output."""
        return tuple(self.region.terms[r] for r in self.roots[: len(self.roots) // 2])

    @property
    def targets(self) -> tuple[Term, ...]:
        """The further terms, as the e-graph has them."""
        return tuple(self.region.terms[r] for r in self.roots[len(self.roots) // 2 :])


def encoded(outputs: Sequence[Output], targets: Sequence[Term]) -> Encoded:
    """The outputs with one further term for each. Nothing is claimed to be known of the latter: not
    that they stand in the source, nor that they are of ordinary size. Totals of which running
    values alone are asked for are no terms of their own here, as they are none in the e-graph."""
    more = (Output(o.buffer, o.axes, t) for o, t in zip(outputs, targets, strict=True))
    alone, both = encode(tuple(outputs)), encode((*outputs, *more))
    count = len(alone.terms)
    inserted = set(subterms(*(both.terms[r] for r in both.roots)))
    cut, place, every = len(both.lines), -1, list[str]()
    for line in both.lines:
        if line.startswith("(set (N "):
            place += 1
            cut = len(every) if place == count else cut
        own = both.terms[place] in inserted or not line.startswith("(set (N ")
        every.append(line if own else f"(set (N {place}) (Num 0.0))")
    after = tuple(map(plain, every[cut:]))
    return Encoded(both, tuple(every[:cut]), after, count, both.roots)


def plain(line: str) -> str:
    """The line that inserts a term, without what it says of it; leaves keep their masks."""
    leaf = "(Leaf" in line
    return line if leaf or not line.startswith("(set (N ") else line.split(" (set (traits ")[0]


@dataclass(slots=True)
class Question:
    """One goal asked again and again; `asked` counts, `known` remembers answers."""

    goal: Goal
    laws: tuple[Rule, ...]
    limits: Limits
    worker: Worker
    encoded: Encoded = field(init=False)
    job: Job = field(init=False)
    known: dict[frozenset[int], bool] = field(default_factory=dict, init=False)
    budget: float = field(default=math.inf, init=False)
    last: tuple[frozenset[int], Frozen] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.encoded = encoded(self.goal.outputs, self.goal.wholes)
        job = job_of(self.encoded.region, self.laws, self.limits, alone=True)
        own = {"lines": list(self.encoded.lines), "terms": self.encoded.count}
        self.job = msgspec.structs.replace(job, **own, after=list(self.encoded.after))

    def reaches(self, rules: Collection[int]) -> bool:
        """Whether the laws of these numbers reach the goal; not, as far as is known, once the
        budget (seconds of the engine's processor time) is spent."""
        key = frozenset(rules)
        if key not in self.known and self.budget > 0:
            try:
                frozen = self.frozen(key)
            except SaturationError:
                self.known[key] = False
            else:
                self.known[key] = self.reached(frozen)
        return self.known.get(key, False)

    def reached(self, frozen: Frozen) -> bool:
        """Whether each output and its chosen term are in one class."""
        half = len(self.encoded.roots) // 2
        places = [frozen.inputs[r] for r in self.encoded.roots]
        return places[:half] == places[half:]

    def frozen(self, rules: Collection[int]) -> Frozen:
        """The e-graph that the laws of these numbers make, with its tables. Raises SaturationError
        where they make two constants equal."""
        key = frozenset(rules)
        if self.last is None or self.last[0] != key:
            skip = [i for i in range(len(self.laws)) if i not in key]
            job = msgspec.structs.replace(self.job, skip=skip, tables=True)
            self.last = key, self.worker.frozen(job, self.laws)
            self.budget -= self.last[1].processor
        return self.last[1]
