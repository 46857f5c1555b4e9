"""All candidates of a program's regions as one covering problem, and what was chosen of them.

```
Pool   ::= classes (by region), candidates (region, candidate), columns (same order), roots, items,
           dropped (region, candidate), unfit (region, body), refused (region, candidate)
Choice ::= pool, best (the cheapest selection), chosen (a simpler one within the noise), others
```

A column's number is its candidate's; an item is a class of a region. The pool stays with the plan,
so that the choice can be solved again under other prices, or with columns forced and forbidden.
`dropped` and `unfit` are some of what the generators left out, to be told of; `refused` are those
that code generation could make no kernel of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from nautile.errors import ExtractionError
from nautile.extract.candidates import Candidate, Generator, Unfit
from nautile.extract.classes import Classes
from nautile.extract.device import Device
from nautile.extract.finish import Chosen
from nautile.extract.regions import Region
from nautile.extract.selection import Column, Selection
from nautile.extract.trim import trim
from nautile.snapshot import Snapshot

__all__ = ["Choice", "Pool", "gathered"]


@dataclass(frozen=True, slots=True)
class Pool:
    """All candidates as columns over (region, class) items; `classes` by region."""

    classes: tuple[Classes, ...]
    candidates: tuple[tuple[int, Candidate], ...]
    columns: tuple[Column, ...]
    roots: tuple[int, ...]
    items: Mapping[tuple[int, int], int]
    dropped: tuple[tuple[int, Candidate], ...] = ()
    unfit: tuple[tuple[int, Unfit], ...] = ()
    refused: tuple[tuple[int, Candidate], ...] = ()

    def chosen(self, selection: Selection) -> list[Chosen]:
        """The candidates, each with the classes that it is there to store: another may make them,
        too, and the one that reads them must not be their maker."""
        found = []
        for k in selection.columns:
            number, candidate = self.candidates[k]
            own = (c for c in candidate.makes if selection.maker.get(self.items[number, c], k) == k)
            found.append(Chosen(candidate, self.classes[number], frozenset(own), k))
        return found

    @property
    def widened(self) -> Pool:
        """The pool with the candidates that were left out of the choice, numbered after its own:
        under other prices one of them may be worth its place."""
        if not self.dropped:
            return self
        wide = _numbered(self.classes, (*self.candidates, *self.dropped))
        return replace(wide, unfit=self.unfit, refused=self.refused)

    def without(self, columns: Collection[int]) -> Pool:
        """The pool without some columns, which it remembers as refused, and with all candidates
        that were left out: what the columns were better than may be the best now."""
        kept = (c for k, c in enumerate(self.widened.candidates) if k not in columns)
        gone = tuple(self.candidates[k] for k in sorted(columns))
        less = _numbered(self.classes, tuple(kept))
        return replace(less, unfit=self.unfit, refused=(*self.refused, *gone))


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen from a pool: the cheapest selection, the one that was taken (fewer kernels
    within the model's noise, or faster with its final storage types), and the next best, in the
    order of `Plan.runners_up`."""

    pool: Pool
    best: Selection
    taken: Selection
    others: tuple[Selection, ...] = ()


def gathered(
    regions: Sequence[tuple[Region, Snapshot]],
    device: Device,
    numerics: str,
    *,
    guarded: bool = False,
) -> tuple[Pool, dict[str, int]]:
    """The candidates of all regions, and what was counted on the way. Raises ExtractionError where
    nothing that makes a region's outputs fits the device."""
    counts: dict[str, int] = {}
    classes: list[Classes] = []
    found: list[tuple[int, Candidate]] = []
    dropped: list[tuple[int, Candidate]] = []
    unfit: list[tuple[int, Unfit]] = []
    for number, (region, whole) in enumerate(regions):
        snapshot = trim(whole)
        if snapshot is not whole:
            left_out = len(whole.classes) - len(snapshot.classes)
            counts["trimmed"] = counts.get("trimmed", 0) + left_out
        own = Classes(snapshot, region.outputs, device, f"~{number}.", numerics, guarded=guarded)
        generator = Generator(own)
        candidates = generator.run()
        if not candidates:
            names = ", ".join(o.buffer.name for o in region.outputs)
            raise ExtractionError(f"no kernel for {names} fits {device.name}")
        classes.append(own)
        found += [(number, c) for c in candidates]
        dropped += [(number, c) for c in generator.dropped]
        unfit += [(number, u) for u in generator.unfit]
        for what, n in generator.counts.items():
            counts[what] = counts.get(what, 0) + n
    pool = _numbered(tuple(classes), tuple(found))
    pool = replace(pool, dropped=tuple(dropped), unfit=tuple(unfit))
    return pool, dict(sorted(counts.items()))


def _numbered(classes: tuple[Classes, ...], found: tuple[tuple[int, Candidate], ...]) -> Pool:
    ids: dict[tuple[int, int], int] = {}

    def items(number: int, group: Sequence[int]) -> frozenset[int]:
        return frozenset(ids.setdefault((number, c), len(ids)) for c in group)

    roots = [i for n, own in enumerate(classes) for c in own.roots for i in items(n, [c])]
    columns = [
        Column(items(n, sorted(c.makes)), items(n, sorted(c.needs)), c.seconds) for n, c in found
    ]
    return Pool(classes, found, tuple(columns), tuple(roots), ids)
