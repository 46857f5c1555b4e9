"""Kernels that are asked for: a candidate by number, one by name, one for a set of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautile.errors import InputError
from nautile.extract.candidates import Candidate
from nautile.report import quantity
from nautile.terms import Index, Load

from .answers import Reason
from .asking import kernel_names, unknown
from .forcing import cheapest, finished, pool_with, program_text
from .generated import Generated, generated
from .inquiry import Inquiry
from .limits import limit_of
from .present import NO_TILING, Verdict, dearer, faulty, makes, weighed

__all__ = ["of_candidate", "of_kernel", "of_one_kernel"]

_TERM = 80  # operations of a term in a sentence


def of_candidate(inquiry: Inquiry, k: int) -> tuple[str, Verdict]:
    """What a candidate makes, and why it does not run. Raises InputError for an unknown number."""
    pool = inquiry.choice.pool
    if k >= len(pool.candidates):
        message = f"no candidate {k}: they are numbered from 0 to {len(pool.candidates) - 1}"
        raise InputError(message, code="unknown-question")
    number, candidate = pool.candidates[k]
    subject = _subject(candidate, inquiry, number)
    if k in inquiry.choice.taken.columns:
        text = f"it runs: it makes {', '.join(makes(inquiry, number, candidate))}"
        return subject, Verdict(Reason("chosen", text, {"candidates": [k]}))
    found = cheapest(inquiry, pool, [[k]])
    if found is None:
        text = "no program can run it: what it needs would have to be made of what it makes"
        return subject, Verdict(Reason("unreachable", text, {"candidate": k}))
    return subject, weighed(inquiry, number, found, kept=True)


def _subject(candidate: Candidate, inquiry: Inquiry, number: int) -> str:
    parts = [(inquiry.name_of(number, c), t) for group in candidate.groups for c, t in group]
    texts = "; ".join(f"{name} = {inquiry.text_of(t, _TERM)}" for name, t in parts)
    needs = [inquiry.name_of(number, c) for c in sorted(candidate.needs)]
    return texts + (f", with {', '.join(needs)} in memory" if needs else "")


def of_kernel(inquiry: Inquiry, name: str) -> tuple[str, Verdict]:
    """Why a kernel of a runner-up does not run, by its name (the cheapest runner-up that has it).
    Raises InputError for a name that no plan has."""
    for kernel in inquiry.plan.kernels:
        if kernel.name == name:
            names = ", ".join(o.buffer.name for o in kernel.outputs)
            reason = Reason("chosen", f"it runs: it makes {names}", {"kernel": name})
            return program_text([kernel]), Verdict(reason)
    choice = inquiry.choice
    for rank, ((seconds, kernels), selection) in enumerate(
        zip(inquiry.plan.runners_up, choice.others, strict=True)
    ):
        wanted = [k for k in kernels if k.name == name]
        if not wanted:
            continue
        found = finished(inquiry, choice.pool, selection)
        if found is None:
            break
        fault = faulty(inquiry, found)
        reason = fault or dearer(inquiry, found, kept=True)
        text = f"it is a kernel of runner-up {rank + 1} ({quantity(seconds, 's')}); {reason.text}"
        evidence = {**reason.evidence, "runner_up": rank}
        return program_text(wanted), Verdict(Reason(reason.code, text, evidence), found)
    raise unknown(name, kernel_names(inquiry))


def of_one_kernel(inquiry: Inquiry, names: Sequence[str]) -> tuple[str, Verdict]:
    """Why not one kernel makes these tensors from inputs alone."""
    subject = f"one kernel that makes {', '.join(names)} and reads inputs alone"
    homes = {n: _home(inquiry, n) for n in names}
    between = sorted({b for n in names for b in _between(inquiry, n)})
    numbers = {home[0] for home in homes.values() if home is not None}
    if between or len(numbers) > 1:
        return subject, Verdict(_cut(inquiry, names, between))
    if None in homes.values():
        strange = next(n for n, home in homes.items() if home is None)
        if strange in {b.name for b in inquiry.program.inputs}:
            return subject, Verdict(Reason("input", f"{strange} is an input: nothing makes it"))
        raise InputError(f"{strange} is no value of a region", code="unknown-question")
    (number,) = numbers
    wanted = frozenset(home[1] for home in homes.values() if home is not None)
    return subject, _alone(inquiry, number, wanted)


def _home(inquiry: Inquiry, name: str) -> tuple[int, int] | None:
    """The region and the class of a tensor, the region that stores it before all others."""
    for region in inquiry.regions:
        roots = inquiry.result.snapshots[region.number].roots
        for o, c in zip(region.outputs, roots, strict=True):
            if o.buffer.name == name:
                return region.number, c
    d = inquiry.definition(name)
    if d is None:
        return None
    places = inquiry.places(Load(d.buffer, tuple(Index(a) for a in d.axes)))
    return next(((p.number, p.lookup.root) for p in places if p.lookup.root is not None), None)


def _between(inquiry: Inquiry, name: str) -> list[str]:
    """The tensors that other regions store for the region of this one."""
    home = _home(inquiry, name)
    if home is None:
        return []
    inputs = {b.name for b in inquiry.program.inputs}
    return [n for n in inquiry.regions[home[0]].reads if n not in inputs]


def _cut(inquiry: Inquiry, names: Sequence[str], between: Sequence[str]) -> Reason:
    stored = ", ".join(between) or " and ".join(names)
    text = (
        f"the program is cut: {stored} end regions and are stored in between, because each of "
        "their elements would be computed again at every place that reads it, or because the "
        "program is too large for one region"
    )
    return Reason("cut", text, {"stored": list(between), "regions": len(inquiry.regions)})


def _alone(inquiry: Inquiry, number: int, wanted: frozenset[int]) -> Verdict:
    pool = inquiry.choice.pool

    def fits(c: Candidate) -> bool:
        return wanted <= c.makes and not c.needs

    for k in inquiry.taken(number):
        c = pool.candidates[k][1]
        if fits(c) and c.division is None:
            return Verdict(Reason("chosen", "one kernel makes it", {"candidates": [k]}))
    every = generated(inquiry, number, inquiry.result.snapshots[number])
    whole = [_undivided(c) for c in every.all if fits(c)]
    wide = pool_with(pool, number, pool.classes[number], whole)[0]
    hits = [k for k, (n, _) in enumerate(wide.candidates) if n == number]
    if hits and (found := cheapest(inquiry, wide, ([k] for k in hits))) is not None:
        return weighed(inquiry, number, found, kept=False, every=every)
    return Verdict(_none_alone(inquiry, every, wanted))


def _undivided(candidate: Candidate) -> Candidate:
    """The candidate without the split of its reductions over blocks, which takes two launches."""
    return replace(candidate, division=None)


def _none_alone(inquiry: Inquiry, every: Generated, wanted: frozenset[int]) -> Reason:
    for body in every.refused:
        if wanted <= body.makes and not body.needs:
            limit = limit_of(body.outputs, inquiry.device, inquiry.result.options.numerics)
            if limit is not None:
                return Reason("infeasible", limit.text, limit.as_dict())
            return Reason("form", NO_TILING)
    text = (
        "no kernel holds all of it: a kernel with a tensor contraction has room for no other kind "
        "of contraction, and for folds along its depth alone; and one launch joins kernels only "
        "where none waits for another"
    )
    return Reason("form", text)
