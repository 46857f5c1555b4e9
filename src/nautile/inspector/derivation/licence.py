"""What a step rests on: the facts behind it, and theirs, down to those that need none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nautile.terms import Term

from .equalities import Instance
from .model import Fact
from .shown import Names, brief
from .ways import Leg, Rewrite, Ways
from .writing import Related, item_parts

__all__ = ["facts_of", "laws_of"]


def facts_of(ways: Ways, rewrite: Rewrite, names: Names) -> tuple[Fact, ...]:
    """The facts that license a rewrite, each after those that it rests on itself."""
    found: dict[Fact, None] = {}
    own = rewrite.instances if _is_facts(ways, rewrite) else ()
    for instance in _licences(ways, rewrite):
        found.setdefault(_told(ways, instance, names))
    for instance in own:
        if instance.law >= 0:
            found.setdefault(_told(ways, instance, names))
    return tuple(found)


def laws_of(ways: Ways, rewrites: Iterable[Rewrite]) -> set[int]:
    """The numbers of all laws that rewrites need, facts included."""
    found: set[int] = set()
    for rewrite in rewrites:
        found |= {i.law for i in (*rewrite.instances, *_licences(ways, rewrite)) if i.law >= 0}
    return found


def _is_facts(ways: Ways, rewrite: Rewrite) -> bool:
    return any(isinstance(i.left, Related) for i in rewrite.instances)


def _licences(ways: Ways, rewrite: Rewrite) -> Iterator[Instance]:
    seen: set[int] = set()
    for instance in rewrite.instances:
        yield from _behind(ways, instance, rewrite.time, seen)


def _behind(ways: Ways, instance: Instance, time: int, seen: set[int]) -> Iterator[Instance]:
    """The instances behind one's premises, deepest first."""
    for term in instance.held:
        maker = ways.graph.maker(term)
        if maker is not None and maker.law >= 0 and id(maker) not in seen:
            seen.add(id(maker))
            yield from _behind(ways, maker, time, seen)
            yield maker
    for related, running in instance.premises:
        if related in ways.graph.edges:
            yield from _along(ways, ways.way(related, running, time), seen)


def _along(ways: Ways, legs: Iterable[Leg], seen: set[int]) -> Iterator[Instance]:
    for leg in legs:
        if leg.instance is None:
            for a, b in zip(item_parts(leg.one), item_parts(leg.two), strict=True):
                if a is not b:
                    yield from _along(ways, ways.way(a, b, leg.time), seen)
        elif leg.instance.law >= 0 and id(leg.instance) not in seen:
            seen.add(id(leg.instance))
            yield from _behind(ways, leg.instance, leg.time, seen)
            yield leg.instance


def _told(ways: Ways, instance: Instance, names: Names) -> Fact:
    law = ways.laws[instance.law]
    return Fact(law.name, law.text, law.pack, _equation(instance, names))


def _equation(instance: Instance, names: Names) -> str:
    """The relation of these terms, or what a law rewrote."""
    left = instance.left
    if isinstance(left, Term):
        return f"{brief(left, names, 30)} = {brief(instance.right, names, 30)}"
    subject, carrier, slope, *rest = left.places
    texts = [brief(t, names, 30) for t in (subject, carrier, slope, *rest, instance.right)]
    return f"{left.relation}({', '.join(texts)})"
