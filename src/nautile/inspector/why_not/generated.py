"""Candidates beyond those that the choice kept: all that were priced, and those of an e-graph cut
down to the terms that a question asks for.

```
Generated ::= classes, kept (candidates of the choice), priced (all others), refused (no tiling)
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nautile.extract.candidates import Candidate, Generator
from nautile.extract.classes import Classes
from nautile.extract.split import Split
from nautile.extract.trim import trim
from nautile.retreat import is_guarded
from nautile.snapshot import Node, Snapshot, term_of
from nautile.terms import Output, Term

from .inquiry import Inquiry

__all__ = ["Generated", "Refused", "computes", "generated", "only", "through"]

WIDTH = 8  # of the beam, as programs are optimized
BUDGET = 3000
Groups = tuple[tuple[tuple[int, Term], ...], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A body that no tiling makes fit the device."""

    makes: frozenset[int]
    needs: frozenset[int]
    choice: Mapping[int, Node]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """What a generator made of one region: `kept` are the candidates that the choice is made from,
    `priced` all others with a price, `refused` those with none."""

    classes: Classes
    kept: tuple[Candidate, ...]
    priced: tuple[Candidate, ...]
    refused: tuple[Refused, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    width: int = WIDTH

    @property
    def all(self) -> tuple[Candidate, ...]:
        return self.kept + self.priced


class _Unlicensed(Classes):
    """Classes whose terms round every neighbour of a narrow operand, licensed or not."""

    def term_of(self, node: Node, inside: tuple[Term, ...]) -> Term:
        return term_of(node, inside)


class _Watched(Generator):
    """A generator that keeps what it refuses."""

    def __init__(self, classes: Classes, width: int) -> None:
        super().__init__(classes, width=width, budget=BUDGET)
        self.refused: dict[Groups, Refused] = {}
        self.every: dict[tuple[Groups, frozenset[int]], Candidate] = {}

    def _candidate(
        self,
        groups: Groups,
        choice: Mapping[int, Node],
        needs: frozenset[int],
        splits: Sequence[Split] | None = None,
    ) -> Candidate | None:
        found = super()._candidate(groups, choice, needs, splits)
        if found is not None:
            self.every[groups, needs] = found
        else:
            makes = frozenset(c for c, _ in groups[0])
            self.refused[groups] = Refused(makes, needs, choice, self.outputs(groups[0]))
        return found


def generated(
    inquiry: Inquiry,
    number: int,
    snapshot: Snapshot,
    *,
    outputs: tuple[Output, ...] | None = None,
    width: int = WIDTH,
    licensed: bool = True,
) -> Generated:
    """The candidates of a region over `snapshot`, for its own outputs or for others (one for each
    root of the snapshot). Without `licensed` the rounding contract is not kept."""
    classes = (Classes if licensed else _Unlicensed)(
        trim(snapshot),
        outputs or inquiry.regions[number].outputs,
        inquiry.device,
        f"~{number}.",
        inquiry.result.options.numerics,
        guarded=is_guarded(inquiry.result.plan),
    )
    generator = _Watched(classes, width)
    kept = tuple(generator.run())
    known = {id(c) for c in kept}
    priced = tuple(c for c in generator.every.values() if id(c) not in known)
    refused = tuple(generator.refused.values())
    return Generated(classes, kept, priced, refused, dict(generator.counts), width)


def only(snapshot: Snapshot, nodes: Mapping[int, Node]) -> Snapshot:
    """The snapshot in which each of these classes is computed by its node alone."""
    classes = {
        c: (nodes[c],) if c in nodes and nodes[c] in own else own
        for c, own in snapshot.classes.items()
    }
    return replace(snapshot, classes=classes)


def through(snapshot: Snapshot, target: int) -> Snapshot:
    """The snapshot in which whatever can be made of the class `target` is made of it."""
    above = {target}
    users: dict[int, set[int]] = {}
    for c, nodes in snapshot.classes.items():
        for node in nodes:
            for k in node.children:
                users.setdefault(k, set()).add(c)
    todo = [target]
    while todo:
        fresh = users.get(todo.pop(), set()) - above
        above |= fresh
        todo += fresh

    def kept(c: int, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        own = tuple(n for n in nodes if not above.isdisjoint(n.children))
        return nodes if c == target or not own else own

    return replace(snapshot, classes={c: kept(c, ns) for c, ns in snapshot.classes.items()})


def computes(choice: Mapping[int, Node], nodes: Mapping[int, Node]) -> bool:
    """Whether a choice computes a term, node by node, leaves left out."""
    inner = ((c, n) for c, n in nodes.items() if n.children)
    return all(choice.get(c) == n for c, n in inner)
