"""Tensors in memory that are asked for: why is p stored, why is it not?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from nautile.extract.candidates import Candidate
from nautile.extract.classes import Classes
from nautile.extract.pool import Pool
from nautile.snapshot import node_of
from nautile.terms import Index, Load, Output, buffers

from .answers import Reason
from .forcing import Forced, cheapest, pool_with
from .generated import generated, through
from .inquiry import Inquiry, Place
from .present import OPEN, Verdict, dearer, faulty, is_open

__all__ = ["of_stored", "of_stored_term"]

Item = tuple[int, int]  # region, class
_EACH = 6  # readers of one tensor that are tried


def of_stored(inquiry: Inquiry, names: Sequence[str]) -> tuple[str, Verdict]:
    """Why these definitions are, or are not, tensors in memory in the chosen program."""
    subject = f"{', '.join(names)} in memory between kernels"
    items: dict[str, Item] = {}
    for name in names:
        known = _known(inquiry, name)
        if known is not None and len(names) == 1:
            return subject, Verdict(known)
        if known is None:
            found = _item(inquiry, name)
            if isinstance(found, Reason):
                return subject, Verdict(found)
            items[name] = found
    if all(_is_stored(inquiry, item) for item in items.values()):
        text = f"{', '.join(names)} are stored" if len(names) > 1 else f"{names[0]} is stored"
        return subject, Verdict(Reason("chosen", text + _readers(inquiry, items)))
    for name, item in items.items():
        barred = _barred(inquiry, name, item)
        if barred is not None:
            return subject, Verdict(barred)
    return subject, _stored(inquiry, items)


def of_stored_term(inquiry: Inquiry, place: Place) -> Verdict:
    """The same for the value of a term that an e-graph holds."""
    assert place.lookup.root is not None
    item = place.number, place.lookup.root
    name = inquiry.text_of(place.term, 40)
    if place.lookup.root in inquiry.result.snapshots[place.number].roots:
        return Verdict(Reason("chosen", f"{name} is what a region ends with: it is stored"))
    if _is_stored(inquiry, item):
        return Verdict(Reason("chosen", f"{name} is stored" + _readers(inquiry, {name: item})))
    if is_open(place.term):
        return Verdict(Reason("open", OPEN))
    barred = _barred(inquiry, name, item)
    return Verdict(barred) if barred is not None else _stored(inquiry, {name: item})


def _known(inquiry: Inquiry, name: str) -> Reason | None:
    """Inputs, results and what regions end with are in memory whatever is chosen."""
    if name in {b.name for b in inquiry.program.inputs}:
        return Reason("input", f"{name} is an input: it is in memory, and nothing makes it")
    for region in inquiry.regions:
        if name in {o.buffer.name for o in region.outputs}:
            if name in {o.buffer.name for o in inquiry.program.outputs}:
                return Reason("chosen", f"{name} is a result of the program: it is always stored")
            text = (
                f"{name} is stored because a region ends with it: written into its readers, it "
                "would be computed again at each place that reads an element of it"
            )
            return Reason("chosen", text, {"cut": True, "region": region.number})
    return None


def _item(inquiry: Inquiry, name: str) -> Item | Reason:
    d = inquiry.definition(name)
    assert d is not None
    places = inquiry.places(Load(d.buffer, tuple(Index(a) for a in d.axes)))
    for place in places:
        if place.lookup.root is not None:
            return place.number, place.lookup.root
    text = f"no result of the program reads {name}"
    return Reason("unreachable", text)


def _is_stored(inquiry: Inquiry, item: Item) -> bool:
    pool, taken = inquiry.choice.pool, inquiry.choice.taken
    return item in pool.items and pool.items[item] in taken.maker


def _readers(inquiry: Inquiry, items: dict[str, Item]) -> str:
    pool = inquiry.choice.pool
    readers = []
    for number, c in items.values():
        readers += [k for k in inquiry.taken(number) if c in pool.candidates[k][1].needs]
    return f", and read by candidate(s) {', '.join(map(str, readers))}" if readers else ""


def _barred(inquiry: Inquiry, name: str, item: Item) -> Reason | None:
    """What can be no tensor."""
    number, c = item
    classes = inquiry.choice.pool.classes[number]
    if c in classes.leaves:
        text = f"{name} is an input, a number or a position: it is read or made where it is needed"
        return Reason("unstorable", text, {"why": "leaf"})
    if classes.buffer(c).dtype == "bool":
        text = f"{name} holds truth values, which are computed where they are needed"
        return Reason("unstorable", text, {"why": "bool"})
    return None


def _stored(inquiry: Inquiry, items: dict[str, Item]) -> Verdict:
    """The cheapest program in which they are stored, and some kernel reads each of them."""
    pool = inquiry.choice.pool
    found = cheapest(inquiry, pool, _reading(pool, items))
    if found is not None:
        return _weighed(inquiry, found, items, kept=True)
    wide = pool
    for number in sorted({n for n, _ in items.values()}):
        own = frozenset(c for n, c in items.values() if n == number)
        candidates = [c for n, c in pool.candidates if n == number]
        candidates += _through_memory(inquiry, number, own)
        wide = pool_with(wide, number, pool.classes[number], candidates)[0]
    found = cheapest(inquiry, wide, _reading(wide, items))
    if found is not None:
        return _weighed(inquiry, found, items, kept=False)
    text = "no kernel that stores it, with another that reads it, could be formed"
    return Verdict(Reason("unreachable", text))


def _reading(pool: Pool, items: dict[str, Item]) -> list[tuple[int, ...]]:
    """The groups of columns that together read all of the items."""
    readers = [
        [k for k, (n, c) in enumerate(pool.candidates) if n == number and own in c.needs]
        for number, own in items.values()
    ]
    readers = [sorted(ks, key=lambda k: pool.columns[k].cost)[:_EACH] for ks in readers]
    return list(itertools.product(*readers))


def _through_memory(inquiry: Inquiry, number: int, stored: frozenset[int]) -> list[Candidate]:
    """Candidates of an e-graph in which these classes are tensors that lie in memory: all that read
    them, and all that make one of them."""
    snapshot = inquiry.result.snapshots[number]
    classes = inquiry.choice.pool.classes[number]
    nodes = {c: (node_of(classes.load(c), ()),) for c in stored}
    used = snapshot
    for c in sorted(stored):
        used = through(used, c)
    read = generated(inquiry, number, replace(used, classes={**used.classes, **nodes}))
    found = [_needing(c, classes, stored) for c in read.all]
    for c in sorted(stored):
        rest = {k: own for k, own in nodes.items() if k != c}
        made = replace(snapshot, classes={**snapshot.classes, **rest}, roots=(c,))
        output = Output(classes.buffer(c), classes.axes[c], inquiry.smallest(number)[c])
        own = generated(inquiry, number, made, outputs=(output,))
        found += [_needing(k, classes, stored - {c}) for k in own.all]
    return found


def _needing(candidate: Candidate, classes: Classes, stored: frozenset[int]) -> Candidate:
    """The candidate with the tensors that its terms read among its needs."""
    read = {b.name for group in candidate.groups for b in buffers(*(t for _, t in group))}
    more = {c for c in stored if classes.buffer(c).name in read}
    return replace(candidate, needs=candidate.needs | more) if more else candidate


def _weighed(inquiry: Inquiry, found: Forced, items: dict[str, Item], *, kept: bool) -> Verdict:
    fault = faulty(inquiry, found)
    if fault is not None:
        return Verdict(fault, found)
    reason = dearer(inquiry, found, kept=kept)
    notes = [n for name, item in items.items() if (n := _note(inquiry, name, item))]
    text = "; ".join([reason.text, *notes])
    return Verdict(Reason(reason.code, text, reason.evidence), found)


def _note(inquiry: Inquiry, name: str, item: Item) -> str:
    """Why the search did not even look at storing it."""
    number, c = item
    classes: Classes = inquiry.choice.pool.classes[number]
    if classes.storable(c):
        return ""
    if classes.volume(c) > max(map(classes.volume, classes.snapshot.source), default=0.0):
        return f"{name} has more elements than any value of the source"
    return (
        f"storing {name} was not looked at: its one user is a value of the same shape, so that "
        "storing that one moves the same bytes and leaves less to do"
    )
