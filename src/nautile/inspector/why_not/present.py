"""A term that the e-graph holds, and the chosen program does not compute: how far it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nautile.extract.candidates import KEPT, NOISE, Candidate
from nautile.extract.classes import Classes
from nautile.extract.licence import Licence, widened
from nautile.extract.pool import Pool
from nautile.report import quantity
from nautile.snapshot import Node
from nautile.terms import Before, Running, Term, walk

from .answers import Reason
from .bodies import extracted, formed
from .forcing import Forced, cheapest, pool_with
from .generated import Generated, computes, generated, only, through
from .inquiry import Inquiry, Place
from .limits import limit_of
from .proving import fault_of

__all__ = [
    "NO_TILING",
    "OPEN",
    "Verdict",
    "dearer",
    "faulty",
    "in_one_kernel",
    "is_open",
    "joined",
    "makes",
    "of_term",
    "rival",
    "weighed",
]


SHOWN = 60  # operations of a term in a sentence
NO_TILING = (
    "no emitter takes it as one kernel: the tensor cores' path has no tiling for such a mixture of "
    "contractions and folds"
)
OPEN = (
    "a running value stands open in it: it is a value inside a pass, which an online sum must end "
    "before a kernel can store anything of it"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A reason with the program that was forced to find it."""

    reason: Reason
    forced: Forced | None = None


def of_term(inquiry: Inquiry, place: Place) -> Verdict:
    """Why the chosen program does not compute a term that the e-graph of its region holds."""
    nodes, root = place.lookup.nodes, place.lookup.root
    assert root is not None
    if not nodes[root].children:
        name = inquiry.text_of(place.term, SHOWN)
        text = f"{name} is read where it is needed: it is no work of a kernel"
        return Verdict(Reason("input", text))
    chosen = inquiry.kernel_classes(place.number)
    if computes(chosen, nodes):
        return Verdict(_taken(inquiry, place))
    if place.lookup.clash is not None:
        return Verdict(_clash(inquiry, place))
    verdict = _searched(inquiry, place)
    rounding = _contract(inquiry, place)
    if rounding is not None:
        verdict = Verdict(rounding, verdict.forced)
    instead = _instead(inquiry, place, chosen)
    evidence = {**verdict.reason.evidence, **instead}
    return Verdict(Reason(verdict.reason.code, verdict.reason.text, evidence), verdict.forced)


def _taken(inquiry: Inquiry, place: Place) -> Reason:
    pool = inquiry.choice.pool
    root = place.lookup.root
    where = [k for k in inquiry.taken(place.number) if root in pool.candidates[k][1].choice]
    names = sorted({n for k in where for n in makes(inquiry, *pool.candidates[k])})
    text = f"the chosen program computes it, in the kernel that makes {', '.join(names)}"
    return Reason("chosen", text, {"candidates": where})


def makes(inquiry: Inquiry, number: int, candidate: Candidate) -> list[str]:
    """What a candidate stores, by name where the program has one."""
    own = inquiry.choice.pool.classes[number]
    found = []
    for c in sorted(candidate.makes):
        names = [
            o.buffer.name for o, r in zip(own.outputs, own.snapshot.roots, strict=True) if r == c
        ]
        found += names or [inquiry.name_of(number, c)]
    return found


def _clash(inquiry: Inquiry, place: Place) -> Reason:
    c = place.lookup.clash
    assert c is not None
    text = (
        f"it computes the same value in two ways, {inquiry.name_of(place.number, c)}; a kernel "
        "computes each value once"
    )
    return Reason("form", text)


def _instead(inquiry: Inquiry, place: Place, chosen: Mapping[int, Node]) -> dict[str, Any]:
    """How the chosen program has the same value, where it does."""
    root = place.lookup.root
    assert root is not None
    if root not in chosen:
        return {}
    term = extracted(inquiry.choice.pool.classes[place.number], chosen, root)
    return {} if term is None else {"instead": inquiry.text_of(term, SHOWN)}


# ---- the search ----------------------------------------------------------------------------------


def _searched(inquiry: Inquiry, place: Place) -> Verdict:
    """Force it among the candidates of the choice, then among all that were priced and those of an
    e-graph that has no other form of its values. One kernel may compute it, or several."""
    number, nodes, root = place.number, place.lookup.nodes, place.lookup.root
    assert root is not None
    found = _with(inquiry, inquiry.choice.pool, number, nodes, root)
    if found is not None:
        return weighed(inquiry, number, found, kept=True)
    snapshot = inquiry.result.snapshots[number]
    every = generated(inquiry, number, snapshot)
    narrow = generated(inquiry, number, only(snapshot, nodes))
    found = _with(inquiry, joined(inquiry, number, every, narrow), number, nodes, root)
    if found is None:
        narrow = generated(inquiry, number, only(through(snapshot, root), nodes))
        found = _with(inquiry, joined(inquiry, number, every, narrow), number, nodes, root)
    if found is None:
        return Verdict(_nowhere(inquiry, place, every.classes, narrow))
    assert found.candidate is not None
    parts = {c: n for c, n in nodes.items() if c in found.candidate.choice}
    seen = any(computes(c.choice, parts) for c in every.all)
    return weighed(inquiry, number, found, kept=False, every=every, seen=seen)


def _with(
    inquiry: Inquiry, pool: Pool, number: int, nodes: Mapping[int, Node], root: int
) -> Forced | None:
    """The cheapest program of the pool that computes a term: its values by its own nodes alone."""
    alike = [(n, c) for n, c in pool.candidates if n != number or not _otherwise(c.choice, nodes)]
    own = pool_with(pool, number, pool.classes[number], [c for n, c in alike if n == number])[0]
    hits = [
        [k] for k, (n, c) in enumerate(own.candidates)
        if n == number and c.choice.get(root) == nodes[root]
    ]  # fmt: skip
    return cheapest(inquiry, own, hits)


def _otherwise(choice: Mapping[int, Node], nodes: Mapping[int, Node]) -> bool:
    """Whether a choice computes some value of a term by another node than the term's."""
    return any(choice.get(c, n) != n for c, n in nodes.items() if n.children)


def joined(inquiry: Inquiry, number: int, *more: Generated) -> Pool:
    """The choice's pool with further candidates of one region."""
    pool = inquiry.choice.pool
    own = [c for n, c in pool.candidates if n == number]
    known = {(c.groups, c.needs) for c in own}
    for found in more:
        for c in found.all:
            if (c.groups, c.needs) not in known:
                known.add((c.groups, c.needs))
                own.append(c)
    return pool_with(pool, number, pool.classes[number], own)[0]


def weighed(
    inquiry: Inquiry,
    number: int,
    forced: Forced,
    *,
    kept: bool,
    every: Generated | None = None,
    seen: bool = True,
) -> Verdict:
    """The reason why a program that can be formed was not chosen."""
    fault = faulty(inquiry, forced)
    if fault is not None:
        return Verdict(fault, forced)
    assert forced.candidate is not None
    better = None if kept or forced.forced is not None else rival(inquiry, number, forced.candidate)
    if better is not None:
        return Verdict(_dominated(inquiry, better, forced), forced)
    if not kept and not seen and every is not None:
        return Verdict(_left_out(inquiry, number, every, forced), forced)
    return Verdict(dearer(inquiry, forced, kept=kept), forced)


def faulty(inquiry: Inquiry, forced: Forced) -> Reason | None:
    """The fault that would keep the forced program from being used, whatever it costs."""
    fault = fault_of(inquiry, forced)
    if fault is None:
        return None
    words = {
        "certificate": "the program that it forces fails its certificate",
        "lowering": "the program that it forces does not lower",
        "gate": "the compiler's gate refuses the program that it forces",
        "compile": "the compiler refuses the program that it forces",
    }
    return Reason(fault.code, f"{words[fault.code]}: {fault.text}", {"message": fault.text})


def rival(inquiry: Inquiry, number: int, candidate: Candidate) -> int | None:
    """The candidate of the choice that makes at least as much from at most as little for less."""
    found = [
        (c.seconds, k)
        for k, (n, c) in enumerate(inquiry.choice.pool.candidates)
        if n == number
        and c.makes >= candidate.makes
        and c.needs <= candidate.needs
        and c.seconds < candidate.seconds * (1 - 1e-9)
    ]
    return min(found)[1] if found else None


def _dominated(inquiry: Inquiry, better: int, forced: Forced) -> Reason:
    assert forced.candidate is not None
    other = inquiry.choice.pool.candidates[better][1]
    mine, theirs = forced.candidate, other
    worse = {
        name: mine.prediction.shares.get(name, 0.0) - seconds
        for name, seconds in theirs.prediction.shares.items()
    }
    most = max(worse, key=lambda name: worse[name])
    text = (
        f"candidate {better} makes as much of no more in {quantity(theirs.seconds, 's')}; this "
        f"takes {quantity(mine.seconds, 's')}"
    )
    if worse[most] > 0:
        text += f", {quantity(worse[most], 's')} more of {most}"
    evidence = {
        "candidate": better,
        "seconds": mine.seconds,
        "its_seconds": theirs.seconds,
        "more": worse,
    }
    return Reason("dominated", text, evidence)


def _left_out(inquiry: Inquiry, number: int, every: Generated, forced: Forced) -> Reason:
    """The beam's part: its rank among the forms of the value that were kept."""
    candidate = forced.candidate
    assert candidate is not None
    name = inquiry.name_of(number, min(candidate.makes))
    kept = [c.seconds for c in every.all if c.makes == candidate.makes]
    rank = 1 + sum(seconds < candidate.seconds for seconds in kept)
    text = (
        f"the beam (of {every.width} forms a value) never formed it; priced, it is number {rank} "
        f"of the {len(kept) + 1} forms of {name} that are known; " + _dearer(inquiry, forced)
    )
    evidence = {"rank": rank, "forms": len(kept) + 1, "width": every.width}
    return Reason("beam", text, {**evidence, "seconds": candidate.seconds})


def dearer(inquiry: Inquiry, forced: Forced, *, kept: bool) -> Reason:
    """It costs more: by how much, and of which resource."""
    text = _dearer(inquiry, forced)
    if not kept and forced.seconds > KEPT * inquiry.plan.seconds:
        text += f"; candidates of programs beyond {KEPT:g} times the best are not kept"
    evidence = {"slower_by": forced.slower_by, "resource": forced.dearer_in}
    if abs(forced.slower_by) <= NOISE:
        text = (
            f"{text}: the model cannot tell the two apart (its noise is {NOISE:.0%}), and the "
            "choice goes to fewer kernels, then to the forms of the source"
        )
        return Reason("tied", text, evidence)
    return Reason("dearer", text, evidence)


def _dearer(inquiry: Inquiry, forced: Forced) -> str:
    more = forced.seconds - inquiry.plan.seconds
    word = "dearer" if more >= 0 else "cheaper"
    text = (
        f"the program that it forces is {quantity(abs(more), 's')} ({forced.slower_by:+.1%}) {word}"
    )
    resource = forced.dearer_in
    if resource is not None and more >= 0:
        text += f", most of it {resource} ({quantity(forced.more[resource], 's')} more)"
    return text


def _contract(inquiry: Inquiry, place: Place) -> Reason | None:
    """The rounding contract, where it alone keeps the term from being chosen: were its narrow
    operands not widened beside float32 neighbours, its program would be the cheapest."""
    if inquiry.result.options.numerics == "exact" or not _is_widened(inquiry, place):
        return None
    number, nodes = place.number, place.lookup.nodes
    narrow = only(inquiry.result.snapshots[number], nodes)
    free = generated(inquiry, number, narrow, licensed=False)
    root = place.lookup.root
    assert root is not None
    found = _with(inquiry, joined(inquiry, number, free), number, nodes, root)
    if found is None or found.slower_by > -NOISE:
        return None
    text = (
        "the rounding contract: it brings float32 values beside narrow operands where the source "
        "has none, and they may not be rounded to that type, so the operands are widened; without "
        f"that its program would take {quantity(found.seconds, 's')} ({found.slower_by:+.1%})"
    )
    return Reason("rounding", text, {"narrow_seconds": found.seconds})


def _is_widened(inquiry: Inquiry, place: Place) -> bool:
    """Whether some contraction of the term has operands that the contract widens."""
    classes = inquiry.choice.pool.classes[place.number]
    given = Licence((o.term for o in classes.outputs), guarded=classes.guarded)
    return any(widened(t, given) is not t for t in walk(place.term))


# ---- nothing was formed --------------------------------------------------------------------------


def in_one_kernel(inquiry: Inquiry, place: Place) -> Verdict:
    """Why no single kernel computes all of a term that the e-graph holds."""
    number, nodes, root = place.number, place.lookup.nodes, place.lookup.root
    assert root is not None
    pool = inquiry.choice.pool
    for k in inquiry.taken(number):
        if computes(pool.candidates[k][1].choice, nodes):
            names = ", ".join(makes(inquiry, *pool.candidates[k]))
            text = f"one kernel computes it, the one that makes {names}"
            return Verdict(Reason("chosen", text, {"candidates": [k]}))
    snapshot = inquiry.result.snapshots[number]
    narrow = generated(inquiry, number, only(through(snapshot, root), nodes))
    wide = joined(inquiry, number, narrow)
    hits = [
        [k] for k, (n, c) in enumerate(wide.candidates)
        if n == number and computes(c.choice, nodes)
    ]  # fmt: skip
    found = cheapest(inquiry, wide, hits)
    if found is not None:
        return weighed(inquiry, number, found, kept=False)
    return Verdict(_nowhere(inquiry, place, pool.classes[number], narrow))


def _nowhere(inquiry: Inquiry, place: Place, classes: Classes, narrow: Generated) -> Reason:
    nodes, root = place.lookup.nodes, place.lookup.root
    assert root is not None
    refused = [r for r in narrow.refused if computes(r.choice, nodes)]
    for body in refused:
        limit = limit_of(body.outputs, inquiry.device, inquiry.result.options.numerics)
        if limit is not None:
            return Reason("infeasible", limit.text, limit.as_dict())
    if refused:
        return Reason("form", NO_TILING)
    if is_open(place.term):
        return Reason("open", OPEN)
    own = formed(classes, nodes, root)
    if own.body is None and own.at is not None:
        text = f"no kernel holds {inquiry.name_of(place.number, own.at)}: {own.text}"
        return Reason("form", text, {"at": inquiry.name_of(place.number, own.at)})
    users = sorted(
        {inquiry.name_of(place.number, u) for u, _ in inquiry.graph(place.number).users(root)}
    )
    text = "it is in the e-graph, but no kernel of the program's results uses this form of it"
    return Reason("unreachable", text, {"users": users[:8]})


def is_open(term: Term) -> bool:
    """Whether a running value is free in the term."""
    moments = [t for t in walk(term) if isinstance(t, (Running, Before))]
    return any(t.axis in term.free for t in moments)
