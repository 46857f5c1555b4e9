"""Tensors in memory that are asked for: why is p stored, why is it not?"""

from __future__ import annotations

from collections.abc import Sequence

from nautile.extract.classes import Classes
from nautile.terms import Index, Load

from .answers import Reason
from .forcing import Forced, cheapest
from .generated import generated
from .inquiry import Inquiry
from .present import Verdict, dearer, faulty, joined

__all__ = ["of_stored"]

Item = tuple[int, int]  # region, class


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
    """The cheapest program in which they are stored, and some kernel reads one of them."""
    pool = inquiry.choice.pool
    if all(item in pool.items for item in items.values()):
        readers = [
            k
            for k, (n, c) in enumerate(pool.candidates)
            if any(n == number and own in c.needs for number, own in items.values())
        ]
        found = _cheapest(inquiry, pool, readers, items)
        if found is not None:
            return _weighed(inquiry, found, items, kept=True)
    more = {}
    for number in {n for n, _ in items.values()}:
        own = frozenset(c for n, c in items.values() if n == number)
        more[number] = generated(inquiry, number, inquiry.result.snapshots[number], stored=own)
    if len(more) == 1:
        ((number, found_more),) = more.items()
        wide = joined(inquiry, number, found_more)
        readers = [
            k
            for k, (n, c) in enumerate(wide.candidates)
            if any(n == home and own in c.needs for home, own in items.values())
        ]
        if all(item in wide.items for item in items.values()):
            found = _cheapest(inquiry, wide, readers, items)
            if found is not None:
                return _weighed(inquiry, found, items, kept=False)
    text = "no kernel that stores it, with another that reads it, could be formed"
    return Verdict(Reason("unreachable", text))


def _cheapest(inquiry: Inquiry, pool, readers: list[int], items: dict[str, Item]) -> Forced | None:  # type: ignore[no-untyped-def]
    if not readers:
        return None
    return cheapest(inquiry, pool, readers, [pool.items[item] for item in items.values()])


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
