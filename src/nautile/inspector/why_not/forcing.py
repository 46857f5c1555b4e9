"""The program that a question's kernel, term or tensor would have forced.

The choice is solved again with columns that must run (or items that must be made); the cheapest
such program is finished like any other, and compared with the chosen one resource by resource.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nautile import lang
from nautile.errors import ExtractionError
from nautile.extract.candidates import Candidate
from nautile.extract.classes import Classes
from nautile.extract.exact import Exact
from nautile.extract.finish import finish
from nautile.extract.kernel import Kernel
from nautile.extract.pool import Pool
from nautile.extract.selection import Column, Selection
from nautile.report import kernel_dict
from nautile.terms import Buffer, Term

from .inquiry import Inquiry

__all__ = ["Forced", "cheapest", "finished", "pool_with", "program_text", "spent"]

TRIED = 40  # groups of columns that are forced in turn, the cheapest ones first
_READERS = 8  # readers that are tried for a column which nothing reads
_TERM, _BRIEF = 400, 48  # operations of a term that are printed, and for people


@dataclass(frozen=True, slots=True)
class Forced:
    """A program and its predicted seconds. `candidate` is the one that had to run, if it was one,
    and `forced` its number, where the choice knows it; `more` are the seconds that each resource is
    asked for beyond (or, negative, below) what the chosen program asks; `brief` is the program for
    people, with the names of definitions for what they stand for."""

    seconds: float
    slower_by: float
    kernels: tuple[Kernel, ...]
    more: Mapping[str, float] = field(default_factory=dict)
    forced: int | None = None
    candidate: Candidate | None = None
    intermediates: tuple[Buffer, ...] = ()
    brief: str = ""

    @property
    def dearer_in(self) -> str | None:
        """The resource that the program asks most of beyond the chosen one."""
        if not self.more or max(self.more.values()) <= 0:
            return None
        return max(self.more, key=lambda name: self.more[name])

    def as_dict(self) -> dict[str, Any]:
        """The program as JSON; `slower_by` is a share of the chosen program's seconds."""
        return {
            "seconds": self.seconds,
            "slower_by": self.slower_by,
            "kernels": [kernel_dict(k) for k in self.kernels],
            "text": program_text(self.kernels),
            "more": dict(self.more),
            "dearer_in": self.dearer_in,
            "column": self.forced,
        }


def pool_with(
    pool: Pool, number: int, classes: Classes, candidates: Iterable[Candidate]
) -> tuple[Pool, int]:
    """The pool with these candidates of one region in place of its own, and the number of the
    first of them; the other regions' come before."""
    others = [(n, c) for n, c in pool.candidates if n != number]
    found = (*others, *((number, c) for c in candidates))
    every = tuple(classes if n == number else own for n, own in enumerate(pool.classes))
    ids: dict[tuple[int, int], int] = {}

    def items(home: int, group: Iterable[int]) -> frozenset[int]:
        return frozenset(ids.setdefault((home, c), len(ids)) for c in sorted(group))

    roots = [i for n, own in enumerate(every) for c in own.roots for i in items(n, [c])]
    columns = tuple(Column(items(n, c.makes), items(n, c.needs), c.seconds) for n, c in found)
    return Pool(every, found, columns, tuple(roots), ids), len(others)


def cheapest(inquiry: Inquiry, pool: Pool, wanted: Iterable[Iterable[int]]) -> Forced | None:
    """The cheapest program in which all columns of one of the groups `wanted` run and are of use;
    None where there is none. Of many groups the cheapest ones are tried."""
    found = min(_forced(pool, wanted), key=lambda pair: pair[0].cost, default=None)
    return None if found is None else finished(inquiry, pool, found[0], min(found[1]))


def _forced(
    pool: Pool, wanted: Iterable[Iterable[int]]
) -> Iterator[tuple[Selection, frozenset[int]]]:
    """Selections in which one of the groups runs, each with its group. Where the makers of a group
    are idle (nothing reads what they make), a reader is forced beside them."""
    best = float("inf")
    todo = [(_cost(pool, g), sorted(g), frozenset(g)) for g in {frozenset(g) for g in wanted}]
    heapq.heapify(todo)
    for _ in range(TRIED):
        if not todo or todo[0][0] >= best:
            return
        _, first, group = heapq.heappop(todo)
        answer = Exact(seconds=5.0, force=group)(pool.columns, pool.roots)
        if answer is None or not group <= set(answer.columns):
            continue
        idle = group - _useful(pool, answer)
        if not idle:
            best = min(best, answer.cost)
            yield answer, frozenset(first)
            continue
        for reader in _readers(pool, idle)[:_READERS]:
            more = group | {reader}
            heapq.heappush(todo, (_cost(pool, more), first, more))


def _cost(pool: Pool, group: Iterable[int]) -> float:
    return sum(pool.columns[k].cost for k in group)


def _useful(pool: Pool, answer: Selection) -> set[int]:
    """The columns that make something which the roots need."""
    found: set[int] = set()
    todo, seen = list(pool.roots), set(pool.roots)
    while todo:
        k = answer.maker[todo.pop()]
        found.add(k)
        fresh = pool.columns[k].needs - seen
        seen |= fresh
        todo += fresh
    return found


def _readers(pool: Pool, makers: Iterable[int]) -> list[int]:
    """The columns that read something of these, the cheapest first."""
    made = frozenset(i for k in makers for i in pool.columns[k].makes)
    found = [k for k, c in enumerate(pool.columns) if c.needs & made]
    return sorted(found, key=lambda k: (pool.columns[k].cost, k))


def finished(
    inquiry: Inquiry, pool: Pool, selection: Selection, column: int | None = None
) -> Forced | None:
    """The selection's program; None where its kernels wait for one another."""
    result = inquiry.result
    try:
        kernels, between = finish(
            pool.chosen(selection), result.work, inquiry.device, numerics=result.options.numerics
        )
    except ExtractionError:
        return None
    seconds = sum(k.prediction.seconds for k in kernels)
    own = spent(inquiry.plan.kernels)
    theirs = spent(kernels)
    more = {name: theirs.get(name, 0.0) - own.get(name, 0.0) for name in {**own, **theirs}}
    candidate = None if column is None else pool.candidates[column][1]
    known = None if candidate is None else _known(inquiry, candidate)
    slower = seconds / inquiry.plan.seconds - 1
    brief = program_text(kernels, lambda term: inquiry.text_of(term, _BRIEF))
    return Forced(seconds, slower, kernels, more, known, candidate, between, brief)


def _known(inquiry: Inquiry, candidate: Candidate) -> int | None:
    """The number of a candidate in the choice's own pool, if it has one."""
    own = inquiry.choice.pool.candidates
    return next((k for k, (_, c) in enumerate(own) if c == candidate), None)


def spent(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Seconds that each resource is asked for, over all kernels."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for name, seconds in kernel.prediction.shares.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def program_text(kernels: Sequence[Kernel], shown: Callable[[Term], str] | None = None) -> str:
    """The program as definitions, one for each stored tensor, in the order of launches."""
    lines = []
    for kernel in kernels:
        for o in kernel.outputs:
            axes = f"[{', '.join(a.name for a in o.axes)}]" if o.axes else ""
            text = shown(o.term) if shown else lang.show_term(o.term, _TERM)
            lines.append(f"{o.buffer.name}{axes} = {text}")
    return "\n".join(lines)
