"""Terms to egglog lines: one line a distinct subterm, ids instead of names.

Loads are leaves; their terms stay here, as do integers that no 64-bit number holds. An integer
constant among floating-point operands becomes the same number in floating point, so that rules see
one kind of literal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nautile.errors import LimitError
from nautile.operations import OPERATIONS
from nautile.rules.egglog import STORAGE, TRAITS, number, type_bits
from nautile.terms import (
    MONOIDS,
    Apply,
    Axis,
    Before,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    children,
    transform,
    walk,
)
from nautile.types import type_of

__all__ = ["AXES", "Region", "encode"]

AXES = 62
_SOURCE = TRAITS["source"] | TRAITS["tame"]
_ODD = 2  # the first free id; 0 and 1 are -0.0 and NaN
_MIXED = frozenset(
    name for name, o in OPERATIONS.items() if o.infix and name not in ("and", "or", "not")
) | {"max", "min", "where"}


@dataclass(frozen=True, slots=True)
class Region:
    """The outputs of one region as egglog lines, and what its ids stand for. `terms` are the
    distinct subterms in order of insertion; `(N i)` is the class of `terms[i]`."""

    lines: tuple[str, ...]
    terms: tuple[Term, ...]
    roots: tuple[int, ...]
    axes: tuple[Axis, ...]
    leaves: tuple[Term, ...]
    odd: tuple[int, ...]


def encode(outputs: tuple[Output, ...]) -> Region:
    """The region of the outputs' terms.

    Raises LimitError for more than 62 distinct axes, which a bitmask of 64 bits cannot hold.
    """
    known: dict[Term, str] = {}
    roots = tuple(transform(o.term, lambda t: _floating(t, known)) for o in outputs)
    writer = _Writer(_axes(outputs, roots))
    for term in _visible(roots):
        writer.add(term)
    return Region(
        tuple(writer.lines),
        tuple(writer.ids),
        tuple(writer.ids[r] for r in roots),
        tuple(writer.axes),
        tuple(writer.leaves),
        tuple(writer.odd),
    )


def _visible(roots: tuple[Term, ...]) -> Iterator[Term]:
    """The subterms outside the coordinates of loads, children first."""
    seen: set[Term] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if ready:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            if not isinstance(term, Load):
                stack.extend((c, False) for c in reversed(children(term)))


def _axes(outputs: tuple[Output, ...], roots: tuple[Term, ...]) -> dict[Axis, int]:
    """Numbers of axes: those of the outputs first, then in order of appearance."""
    found = dict.fromkeys(a for o in outputs for a in o.axes)
    for term in walk(*roots):
        if isinstance(term, (Index, Reduce, Online)):
            found.setdefault(term.axis)
    if len(found) > AXES:
        raise LimitError(f"a region of {len(found)} axes; at most {AXES} are handled")
    return {axis: i for i, axis in enumerate(found)}


def _floating(term: Term, known: dict[Term, str]) -> Term:
    """Integer constants as floats, where they meet floats."""
    if not isinstance(term, Apply) or term.operation not in _MIXED:
        return term
    places = term.arguments[1:] if term.operation == "where" else term.arguments
    whole = any(type_of(p, known) in ("f32", "f64") for p in places) or term.operation in (
        "div",
        "pow",
    )
    if not whole:
        return term
    return Apply(term.operation, (*term.arguments[: -len(places)], *map(_float, places)))


def _float(term: Term) -> Term:
    if isinstance(term, Const) and type(term.value) is int and abs(term.value) < 2**53:
        return Const(float(term.value))
    return term


class _Writer:
    """Collects the lines of a region and the tables behind its ids."""

    def __init__(self, axes: dict[Axis, int]) -> None:
        self.axes = axes
        self.lines = [f"(set (ext {i}) {float(a.extent)!r})" for a, i in axes.items()]
        self.ids: dict[Term, int] = {}
        self.leaves: list[Term] = []
        self.odd: list[int] = []

    def add(self, term: Term) -> None:
        """Insert a term whose children are in."""
        form = self._form(term)
        self.lines.append(f"(set (N {len(self.ids)}) {form}) (set (traits {form}) {_SOURCE})")
        if form.startswith("(Leaf"):
            mask = sum(1 << self.axes[a] for a in term.free)
            bits = type_bits(type_of(term))
            self.lines.append(f"(set (fv {form}) {mask}) (set (traits {form}) {bits})")
            self.lines.append(f"(set (rd {form}) 0) (set (ra {form}) 0) (set (loose {form}) 0)")
        self.ids[term] = len(self.ids)

    def _form(self, term: Term) -> str:
        if isinstance(term, Load):
            return self._leaf(term)
        inner = " ".join(f"(N {self.ids[c]})" for c in children(term))
        match term:
            case Const(value):
                return self._constant(value)
            case Index(axis):
                return f"(Ix {self.axes[axis]})"
            case Apply(operation, _):
                return f"(op_{operation} {inner})"
            case Cast(dtype, _):
                return f"(Round {STORAGE.index(dtype)} {inner})"
            case Reduce(monoid, axis, _):
                return f"(r_{monoid} {self.axes[axis]} {inner})"
            case Online(axis, _, _, offset):
                none = " (Num 0.0)" if offset is None else ""
                return f"(Online {self.axes[axis]} {inner}{none})"
            case Running(Reduce(monoid, axis, body)) | Before(Reduce(monoid, axis, body)):
                place = f"{MONOIDS.index(monoid)} {self.axes[axis]} (N {self.ids[body]})"
                return f"({type(term).__name__} {place})"
            case Running(Online() as online) | Before(Online() as online):
                return self._form(online).replace("(Online", f"({type(term).__name__}Online", 1)
        raise TypeError(f"not a term: {term!r}")

    def _leaf(self, term: Term) -> str:
        """A load: nothing rewrites inside."""
        self.leaves.append(term)
        return f"(Leaf {len(self.leaves) - 1})"

    def _constant(self, value: bool | int | float) -> str:
        if type(value) is int and abs(value) >= 2**63:
            self.odd.append(value)
            return f"(Odd {_ODD + len(self.odd) - 1})"
        return number(value)
