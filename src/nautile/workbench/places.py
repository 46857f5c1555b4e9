"""Classes of a frozen e-graph for people: a small term of each, and the line where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from nautile import lang
from nautile.egraph.encode import encode
from nautile.egraph.schema import CONSTRUCTORS
from nautile.inline import inline
from nautile.rules.egglog import STORAGE, TRAITS, TYPES
from nautile.rules.law import Rule
from nautile.terms import (
    MONOIDS,
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Online,
    Output,
    Program,
    Reduce,
    Running,
    Term,
    reduce_,
)

from .runs import Saturated

__all__ = ["Places", "lines_of"]

_LIMIT = 40  # operations of a term that are printed
_SIGNS = ("pos", "neg", "nonneg", "nonpos", "nonzero")
_Row = tuple[str, list[Any]]


class Places:
    """The classes of one region's e-graph."""

    def __init__(self, run: Saturated, lines: dict[Term, int], rules: Sequence[Rule]) -> None:
        self.run, self.lines, self.rules = run, lines, rules
        self.source: dict[int, Term] = {}
        for term, c in zip(run.encoded.terms, run.frozen.inputs, strict=False):
            self.source.setdefault(c, term)
        self.traits: dict[int, int] = dict(run.frozen.tables["traits"])

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.run.encoded.axes

    def term(self, c: int) -> Term:
        """The term of the source that stands in a class, else one of the smallest."""
        return self.source.get(c) or self.smallest[c]

    def text(self, c: int) -> str:
        """The term as text, its larger parts left out."""
        return lang.show_term(self.term(c), _LIMIT)

    def line(self, c: int) -> int | None:
        """The line of the source where the class' term first stands."""
        term = self.source.get(c)
        return None if term is None else self.lines.get(term)

    def makers(self, c: int) -> tuple[str, ...]:
        """The rules that put something into a class."""
        laws = sorted({law for where, law in self.run.frozen.made if where == c})
        return tuple(self.rules[law].name for law in laws)

    def heads(self, c: int) -> tuple[str, ...]:
        """What the members of a class are, outermost operation each."""
        names = {name for name, _, where in self.run.frozen.rows if where == c}
        words = {"Leaf": "an element of a tensor", "Num": "a number"}
        shown = {words.get(n, n.removeprefix("op_").removeprefix("r_").lower()) for n in names}
        return tuple(sorted(shown))

    def free(self, c: int) -> tuple[str, ...]:
        """The axes that a class depends on."""
        mask = self.run.frozen.free.get(c, 0)
        return tuple(a.name for i, a in enumerate(self.axes) if mask >> i & 1)

    def known(self, c: int) -> tuple[str, ...]:
        """What analyses know: the carried type, signs and so on."""
        bits = self.traits.get(c, 0)
        carried = (bits & -bits).bit_length() - 1
        kind = TYPES[carried] if 0 <= carried < len(TYPES) else "?"
        return (kind, *(name for name, bit in TRAITS.items() if bits & bit))

    @cached_property
    def smallest(self) -> dict[int, Term]:
        """A term of each class, made of the fewest operations that a fixpoint finds."""
        size: dict[int, int] = {}
        best: dict[int, Term] = {}
        changed = True
        while changed:
            changed = False
            for name, arguments, c in self.run.frozen.rows:
                inner = _inner(name, arguments)
                if not all(k in best for k in inner):
                    continue
                total = 1 + sum(size[k] for k in inner)
                if total < size.get(c, total + 1):
                    size[c], best[c] = total, self._term(name, arguments, best)
                    changed = True
        return best

    def _term(self, name: str, arguments: list[Any], best: dict[int, Term]) -> Term:
        inner = [best[k] for k in _inner(name, arguments)]
        first = arguments[0]
        if name.startswith("op_"):
            return Apply(name[3:], tuple(inner))
        if name.startswith("r_"):
            return reduce_(name[2:], self.axes[first], inner[0])
        if name in ("Running", "Before"):
            return _moment(name, Reduce(MONOIDS[first], self.axes[arguments[1]], inner[0]))
        if name.endswith("Online"):
            repair, body, offset = inner
            online = Online(self.axes[first], repair, body, offset)
            return online if name == "Online" else _moment(name.removesuffix("Online"), online)
        return Cast(STORAGE[first], inner[0]) if name == "Round" else self._leaf(name, first)

    def _leaf(self, name: str, value: Any) -> Term:
        if name == "Ix":
            return Index(self.axes[value])
        if name == "Leaf":
            leaf: Term = self.run.encoded.leaves[value]
            return leaf
        if name == "Odd":
            value = (-0.0, float("nan"), *self.run.encoded.odd)[value]
        return Const(bool(value) if name == "Truth" else value)


def _moment(name: str, reduction: Term) -> Term:
    return Running(reduction) if name == "Running" else Before(reduction)


def _inner(name: str, arguments: list[Any]) -> list[int]:
    sorts = CONSTRUCTORS[name]
    return [a for a, sort in zip(arguments, sorts, strict=True) if sort == "T"]


def lines_of(program: Program, runs: Sequence[Saturated]) -> dict[Term, int]:
    """The line of the first definition in which each term stands, as regions have it."""
    stored = {o.buffer.name for run in runs for o in run.region.outputs}
    written = {d.name: (d.axes, d.body) for d in program.definitions if d.name not in stored}
    found: dict[Term, int] = {}
    for d in program.definitions:
        for term in _terms(Output(d.buffer, d.axes, inline(d.body, written))):
            found.setdefault(term, d.line)
    return found


def _terms(output: Output) -> Iterator[Term]:
    yield from encode((output,)).terms
