"""The program that a question's kernel, term or tensor would have forced.

The choice is solved again with columns that must run (or items that must be made); the cheapest
such program is finished like any other, and compared with the chosen one resource by resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from nautile.terms import Buffer

from .inquiry import Inquiry

__all__ = ["Forced", "cheapest", "finished", "pool_with", "program_text", "spent"]

TRIED = 24  # columns that are forced in turn, the cheapest ones first
_TERM = 400  # operations of a term that are printed


@dataclass(frozen=True, slots=True)
class Forced:
    """A program and its predicted seconds. `columns` are those of the pool that it was chosen from,
    `forced` the one that had to run, if it was one; `more` are the seconds that each resource is
    asked for beyond (or, negative, below) what the chosen program asks."""

    seconds: float
    slower_by: float
    kernels: tuple[Kernel, ...]
    more: Mapping[str, float] = field(default_factory=dict)
    forced: int | None = None
    candidate: Candidate | None = None
    intermediates: tuple[Buffer, ...] = ()

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


def cheapest(
    inquiry: Inquiry, pool: Pool, columns: Iterable[int], extra: Iterable[int] = ()
) -> Forced | None:
    """The cheapest program in which one of the columns runs (any program, without columns) and the
    items `extra` are made; None where there is none."""
    order = sorted(set(columns), key=lambda k: (pool.columns[k].cost, k))[:TRIED]
    roots = (*pool.roots, *extra)
    best: tuple[Selection, int | None] | None = None
    choices: list[int | None] = list(order) or [None]
    for k in choices:
        force = frozenset() if k is None else frozenset([k])
        answer = Exact(seconds=5.0, force=force)(pool.columns, roots)
        if answer is None or (k is not None and k not in answer.columns):
            continue
        if best is None or answer.cost < best[0].cost:
            best = answer, k
    return None if best is None else finished(inquiry, pool, *best)


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
    slower = seconds / inquiry.plan.seconds - 1
    return Forced(seconds, slower, kernels, more, column, candidate, between)


def spent(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Seconds that each resource is asked for, over all kernels."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for name, seconds in kernel.prediction.shares.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def program_text(kernels: Sequence[Kernel]) -> str:
    """The program as definitions, one for each stored tensor, in the order of launches."""
    lines = []
    for kernel in kernels:
        for o in kernel.outputs:
            axes = f"[{', '.join(a.name for a in o.axes)}]" if o.axes else ""
            lines.append(f"{o.buffer.name}{axes} = {lang.show_term(o.term, _TERM)}")
    return "\n".join(lines)
