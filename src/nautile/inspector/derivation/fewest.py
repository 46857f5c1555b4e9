"""The fewest rules that still reach what was chosen: delta debugging by real saturation.

From all rules that fired parts are taken away, halves first, while the goal is still reached; in
the end none can be left out alone (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", 2002). A rule without which all the others do not reach the goal is in
every set that does: if all that is left are such, the set is the smallest and the only one.
Otherwise sets with fewer rules are tried while they are few."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

__all__ = ["Fewest", "fewest"]

_SETS = 60  # smaller sets that are tried

Reaches = Callable[[Collection[int]], bool]


@dataclass(frozen=True, slots=True)
class Fewest:
    """`rules`: numbers of rules of which none can be left out; `smallest`: no other set that
    reaches the goal has fewer (as far as more rules never reach less); `others`: sets as small, if
    any were met."""

    rules: frozenset[int]
    smallest: bool
    others: tuple[frozenset[int], ...] = ()


def fewest(reaches: Reaches, fired: Collection[int], guess: Collection[int] = ()) -> Fewest | None:
    """The fewest of the fired rules; None where all of them do not reach the goal. `guess` is tried
    first."""
    whole, start = frozenset(fired), frozenset(guess) & frozenset(fired)
    if len(start) < len(guess) or not reaches(start):
        start = whole
        if not reaches(start):
            return None
    if len(start) > len(guess):
        start = _halved(reaches, start)
    needed = frozenset(r for r in start if not reaches(whole - {r}))
    if needed == start:
        return Fewest(start, True)
    return _smaller(reaches, whole, needed, _one_by_one(reaches, start, needed))


def _halved(reaches: Reaches, start: frozenset[int]) -> frozenset[int]:
    """The rules without parts that can go, large ones first."""
    kept, size = start, len(start) // 2
    while size > 1:
        for part in _chunks(kept, size):
            if reaches(kept - part):
                kept -= part
        size //= 2
    return kept


def _one_by_one(reaches: Reaches, kept: frozenset[int], needed: frozenset[int]) -> frozenset[int]:
    """The rules without any that can go alone; those that are `needed` by all cannot."""
    for one in sorted(kept - needed, reverse=True):
        if reaches(kept - {one}):
            kept -= {one}
    return kept


def _chunks(rules: frozenset[int], size: int) -> Iterator[frozenset[int]]:
    order = sorted(rules, reverse=True)  # user packs, which come last, are tried first
    return (frozenset(order[i : i + size]) for i in range(0, len(order), size))


def _smaller(
    reaches: Reaches, whole: frozenset[int], needed: frozenset[int], found: frozenset[int]
) -> Fewest:
    """Whether a set with fewer rules does, and other sets as small."""
    if found == needed:
        return Fewest(found, True)
    free, least = sorted(whole - needed), len(found) - len(needed)
    for count in range(least + 1):
        if comb(len(free), count) > _SETS:
            return Fewest(found, count == least)
        sets = [needed | frozenset(extra) for extra in combinations(free, count)]
        do = [s for s in sets if reaches(s)]
        if do:
            first = found if found in do else do[0]
            return Fewest(first, True, tuple(s for s in do if s != first))
    return Fewest(found, True)
