"""A term that the e-graph does not hold: what is nearest, and what would have to be otherwise.

In this order: a rounding that the source does not make; rules of a higher numerics class, or of a
pack that is loaded by name alone, which make it; is it equal to a value of the program at all
(inserted beside, and saturated again), or refuted by values; and the premise that fails first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nautile.errors import SaturationError
from nautile.extract.contractions import NARROW
from nautile.options import NUMERICS
from nautile.rules.law import Rule
from nautile.rules.library import OPTIONAL, load, select
from nautile.snapshot import Snapshot
from nautile.terms import Axis, Cast, Const, Index, Term, transform, walk

from .answers import Reason
from .forcing import Forced, cheapest, pool_with
from .generated import generated, only
from .graph import Graph, Lookup
from .inquiry import Inquiry, Place, asked_output
from .naming import Asked
from .nearest import Near, Tables, nearest_rule
from .present import Verdict, faulty
from .values import Compared, compared

__all__ = ["of_absent"]

SHOWN = 60  # operations of a term in a sentence
_TRIALS = 24  # saturations that look for the rules that make a term
_SECONDS = 1.0  # of one saturation under further rules


@dataclass(frozen=True, slots=True)
class _Beside:
    """The e-graph of a region with the term inserted: its classes by number, those of the region
    that it is equal to, and its own place."""

    snapshot: Snapshot
    lookup: Lookup
    equal: tuple[int, ...]
    graph: Graph


def of_absent(inquiry: Inquiry, asked: Asked, places: Sequence[Place]) -> Verdict:
    """Why the e-graphs of a program do not hold a term."""
    if not places:
        return Verdict(_nowhere(inquiry, asked))
    place = places[0]
    if isinstance(place.term, (Const, Index)):
        return Verdict(Reason("input", "a number or a position is no work of a kernel"))
    evidence = _nearest(inquiry, place)
    rounded = _rounded(inquiry, place)
    if rounded is not None:
        return Verdict(Reason("rounding", rounded, evidence))
    beside = _beside(inquiry, place)
    stronger = _stronger(inquiry, place)
    if stronger is not None:
        code, text, rules = stronger
        evidence |= {"rules": rules, "equal": _equal(inquiry, place, beside)}
        return Verdict(Reason(code, text, evidence), _forced(inquiry, place, beside))
    return _told(inquiry, place, beside, evidence)


def _nowhere(inquiry: Inquiry, asked: Asked) -> Reason:
    inputs = {b.name for b in inquiry.program.inputs}
    written = inquiry.written(asked.term, None)
    if not any(t for t in walk(written) if t.free or getattr(t, "buffer", None) is not None):
        return Reason("input", "it is a constant: it is no work of a kernel")
    stored = sorted(inquiry.stored - inputs)
    if len(inquiry.regions) > 1 and stored:
        text = (
            f"no region reads all that it speaks of: the program is cut at {', '.join(stored)}, "
            "and what one region stores, others read from memory"
        )
        return Reason("cut", text, {"stored": stored, "regions": len(inquiry.regions)})
    return Reason("absent", "the program reads nothing of what it speaks of")


def _nearest(inquiry: Inquiry, place: Place) -> dict[str, Any]:
    """The first part that is missing, and the largest that is there."""
    missing = place.lookup.missing
    assert missing is not None
    return {
        "missing": inquiry.text_of(missing, SHOWN),
        "present": [inquiry.name_of(place.number, c) for c in place.lookup.below],
    }


# ---- roundings -----------------------------------------------------------------------------------


def _rounded(inquiry: Inquiry, place: Place) -> str | None:
    """The sentence where the term is one of the program but for roundings of its own."""
    narrow = {t.dtype for t in walk(place.term) if isinstance(t, Cast) and t.dtype in NARROW}
    if not narrow:
        return None
    graph = inquiry.graph(place.number)
    if not graph.lookup(transform(place.term, _uncast)).found:
        return None
    types = ", ".join(sorted(narrow))
    text = (
        f"the program has the same without the rounding to {types}, which is not the source's: "
        "no rule adds a rounding"
    )
    if inquiry.result.options.numerics == "exact":
        return f"{text}, and exact forbids rounding even the operands of the tensor cores"
    return f"{text}; where a tensor core takes an operand of that type, it is rounded there anyway"


def _uncast(term: Term) -> Term:
    return term.argument if isinstance(term, Cast) and term.dtype in NARROW else term


# ---- stronger rules ------------------------------------------------------------------------------


def _stronger(inquiry: Inquiry, place: Place) -> tuple[str, str, list[str]] | None:
    """The reason, the sentence and the rules where more rules make the term."""
    for code, what, more in _more(inquiry):
        found = _holding(inquiry, place, more)
        if found is None:
            continue
        rules = _needed(inquiry, place, more, found)
        laws = "; ".join(f"{r.name}: {r.text}" for r in rules[:3])
        return code, f"{what} would make it, by {laws}", [r.name for r in rules]
    return None


def _more(inquiry: Inquiry) -> Iterator[tuple[str, str, tuple[Rule, ...]]]:
    """Further rules, one set after the other: higher classes, then packs loaded by name."""
    o = inquiry.result.options
    have = {r.name for r in inquiry.laws}
    levels = list(NUMERICS)
    for level in levels[levels.index(o.numerics) + 1 :]:
        rules = [r for r in select(load(o.packs), NUMERICS[level]) if r.name not in have]
        if rules:
            yield "numerics", f"the numerics class {level} (--numerics {level})", tuple(rules)
    for pack in OPTIONAL:
        rules = [r for r in select(load((pack,)), NUMERICS[o.numerics]) if r.name not in have]
        if rules:
            yield "pack", f"the pack {pack} (--rules {pack})", tuple(rules)


def _holding(inquiry: Inquiry, place: Place, more: Sequence[Rule]) -> Snapshot | None:
    """The e-graph of the region under further rules, if it holds the term within a short time."""
    outputs = inquiry.regions[place.number].outputs
    try:
        snapshot = inquiry.saturate(outputs, (*inquiry.laws, *more), most=_SECONDS)
    except SaturationError:
        return None
    return snapshot if Graph(snapshot).lookup(place.term).found else None


def _needed(
    inquiry: Inquiry, place: Place, more: Sequence[Rule], found: Snapshot
) -> tuple[Rule, ...]:
    """Rules that make the term, none of which can be left out (while trials last): those that put
    something into the classes of the term are tried first."""
    nodes = Graph(found).lookup(place.term).nodes
    made = {name for c in nodes for name in found.made.get(c, ())}
    kept = [r for r in more if r.name in made]
    if not kept or _holding(inquiry, place, kept) is None:
        kept = list(more)
    trials, size = 0, max(1, len(kept) // 2)
    while trials < _TRIALS:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            trials += 1
            if rest and _holding(inquiry, place, rest) is not None:
                kept = rest
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return tuple(kept)


# ---- beside the program --------------------------------------------------------------------------


def _beside(inquiry: Inquiry, place: Place) -> _Beside:
    """The region's e-graph with the term inserted, saturated with the program's own rules."""
    axes: tuple[Axis, ...] = tuple(sorted(place.term.free, key=lambda a: (a.family, a.number)))
    outputs = (*inquiry.regions[place.number].outputs, asked_output(place.term, axes))
    snapshot = inquiry.saturate(outputs, inquiry.laws)
    graph = Graph(snapshot)
    mine = snapshot.roots[-1]
    equal = [
        c for c, term in inquiry.smallest(place.number).items() if graph.lookup(term).root == mine
    ]
    return _Beside(snapshot, graph.lookup(place.term), tuple(equal), graph)


def _told(inquiry: Inquiry, place: Place, beside: _Beside, evidence: dict[str, Any]) -> Verdict:
    nearest = None if beside.equal else compared(inquiry, place.number, place.term)
    near = _premise(inquiry, place, beside, nearest)
    if near is not None:
        evidence["premise"] = near.as_dict()
    equal = _equal(inquiry, place, beside)
    if equal is not None:
        evidence["equal"] = equal
        text = (
            f"no rule makes it from the program; inserted beside it, it is equal to {equal['to']}"
        )
        if equal["rules"]:
            text += f", by {', '.join(equal['rules'])}{_one_way(inquiry, equal['rules'])}"
        forced = _forced(inquiry, place, beside)
        fault = None if forced is None else faulty(inquiry, forced)
        text += "" if fault is None else f"; {fault.text}"
        return Verdict(Reason("absent", text + _then(near), evidence), forced)
    if nearest is not None and not nearest.same:
        evidence["values"] = nearest.as_dict()
        text = (
            f"it is equal to no value of the program: the nearest is {nearest.name}; {nearest.text}"
        )
        return Verdict(Reason("unequal", text + _then(near), evidence))
    if nearest is not None:
        evidence["values"] = nearest.as_dict()
        text = (
            f"no rule makes it; at {nearest.samples} sampled places it has the values of "
            f"{nearest.name}, but no rules are known that prove it"
        )
        return Verdict(Reason("absent", text + _then(near), evidence))
    text = "no rule makes it, and the program has no value over these axes that it could be"
    return Verdict(Reason("absent", text + _then(near), evidence))


def _equal(inquiry: Inquiry, place: Place, beside: _Beside) -> dict[str, Any] | None:
    """The value of the program that saturation finds the term equal to, and the rules that made
    more of that value than they make without the term."""
    if not beside.equal:
        return None
    c = beside.equal[0]
    before = set(inquiry.result.snapshots[place.number].made.get(c, ()))
    after = beside.snapshot.made.get(beside.snapshot.roots[-1], ())
    rules = [name for name in after if name not in before]
    return {"to": inquiry.name_of(place.number, c), "by": "saturation", "rules": rules}


def _one_way(inquiry: Inquiry, names: Sequence[str]) -> str:
    """That the rules lead away from the term, where they do."""
    laws = [r for r in inquiry.laws if r.name in names]
    single = [r.text for r in laws if ">>" in r.text]
    if not laws or len(single) < len(laws):
        return ""
    return f", which lead{'s' * (len(single) == 1)} away from it alone: {'; '.join(single)}"


def _then(near: Near | None) -> str:
    return "" if near is None else f". Nearest: {near.text}"


def _premise(
    inquiry: Inquiry, place: Place, beside: _Beside, nearest: Compared | None
) -> Near | None:
    """The rule that comes closest to the first missing part, in the class where it belongs."""
    missing = place.lookup.missing
    assert missing is not None
    tables = Tables(inquiry, place.number)
    target = _target(inquiry, place, beside, nearest, tables)
    return nearest_rule(tables, missing, inquiry.laws, target)


def _target(
    inquiry: Inquiry,
    place: Place,
    beside: _Beside,
    nearest: Compared | None,
    tables: Tables,
) -> int | None:
    """The class of the tables to which the missing part is known, or seems, to belong."""
    missing = place.lookup.missing
    assert missing is not None
    root = beside.graph.lookup(missing).root
    small = inquiry.smallest(place.number)
    for term in small.values():
        if root is not None and beside.graph.lookup(term).root == root:
            return tables.classes(term).get(term)
    if missing is place.term and nearest is not None and nearest.same:
        term = small[nearest.number]
        return tables.classes(term).get(term)
    return None


def _forced(inquiry: Inquiry, place: Place, beside: _Beside) -> Forced | None:
    """The program that the term would have forced, had the e-graph held it."""
    nodes = beside.lookup.nodes
    if beside.lookup.root is None:
        return None
    own = beside.snapshot
    trimmed = _without_asked(own)
    narrow = generated(inquiry, place.number, only(trimmed, nodes))
    if not narrow.all:
        return None
    candidates = _distinct(narrow.all)
    pool, first = pool_with(inquiry.choice.pool, place.number, narrow.classes, candidates)
    root = beside.lookup.root
    hits = [[first + k] for k, c in enumerate(candidates) if c.choice.get(root) == nodes[root]]
    return cheapest(inquiry, pool, hits)


def _without_asked(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, roots=snapshot.roots[:-1])


def _distinct(candidates: Iterable[Any]) -> list[Any]:
    return list({(c.groups, c.needs): c for c in candidates}.values())
