"""A term against the values of a region, by the oracle: equal to one of them, or to none?

Inputs are drawn as certificates draw them; whatever a region reads is drawn too. The term and every
value over the same axes are evaluated in float64 at a few positions. A difference refutes equality;
agreement proves nothing, and is told as what it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nautile.certificate.drawing import Array, Drawn
from nautile.certificate.recipes import float_kind, recipes
from nautile.dtypes import DTYPES
from nautile.oracle import evaluate
from nautile.oracle.work import work_of
from nautile.terms import Axis, Before, Running, Term, buffers, walk

from .inquiry import Inquiry

__all__ = ["Compared", "compared"]

_POSITIONS = 3  # along each free axis
_WORK = 1 << 29  # products of one evaluation
_VALUES = 48  # values of the region that are compared
CLOSE = 1e-6  # relative to the largest magnitude at hand


@dataclass(frozen=True, slots=True)
class Compared:
    """The value of the region that is nearest to the term: the largest difference relative to the
    magnitude, and the position where they differ most, with both values."""

    name: str
    number: int
    difference: float
    at: Mapping[str, int]
    asked: float
    there: float
    samples: int

    @property
    def same(self) -> bool:
        return self.difference <= CLOSE

    def as_dict(self) -> dict[str, Any]:
        return {
            "value": self.name,
            "difference": self.difference,
            "at": dict(self.at),
            "asked": self.asked,
            "there": self.there,
            "samples": self.samples,
        }

    @property
    def text(self) -> str:
        place = ", ".join(f"{a} = {p}" for a, p in self.at.items())
        where = f"at {place} " if place else ""
        return (
            f"{where}it is {self.asked:.6g} where {self.name} is {self.there:.6g} "
            "(float64, drawn inputs)"
        )


def compared(inquiry: Inquiry, number: int, term: Term) -> Compared | None:
    """The nearest value of a region over the term's own axes; None where there is none, or where
    one look would take minutes."""
    at = {a: _positions(a) for a in sorted(term.free, key=lambda a: (a.family, a.number))}
    size = {a: len(p) for a, p in at.items()}
    if work_of(term, size, {}) > _WORK or any(a.name.startswith("~") for a in at):
        return None
    fetch = _drawn(inquiry, term)
    mine = _value(term, fetch, at)
    found = [
        _difference(inquiry.name_of(number, c), c, mine, _value(other, fetch, at), at)
        for c, other in itertools.islice(_alike(inquiry, number, term, size), _VALUES)
    ]
    return min(found, key=lambda f: f.difference, default=None)


def _alike(inquiry: Inquiry, number: int, term: Term, size: dict[Axis, int]):  # type: ignore[no-untyped-def]
    """The region's values over the same axes that are cheap to look at."""
    for c, other in inquiry.smallest(number).items():
        if other.free != term.free or _runs(other) or not inquiry.node(number, c).children:
            continue
        if work_of(other, size, {}) <= _WORK:
            yield c, other


def _runs(term: Term) -> bool:
    moments = [t for t in walk(term) if isinstance(t, (Running, Before))]
    return any(t.axis in term.free for t in moments)


def _positions(axis: Axis) -> Array:
    rng = np.random.default_rng([axis.extent, axis.number])
    count = min(_POSITIONS, axis.extent)
    return np.sort(rng.choice(axis.extent, size=count, replace=False))


def _drawn(inquiry: Inquiry, term: Term) -> Drawn:
    kinds = recipes(inquiry.program)
    terms = [o.term for r in inquiry.regions for o in r.outputs]
    for b in buffers(term, *terms):
        if b.name not in kinds:
            kind = DTYPES[b.dtype].kind
            plain = "bool" if kind == "bool" else "integers:0:2"
            kinds[b.name] = float_kind("ordinary", b) if kind == "float" else plain
    return Drawn(inquiry.result.options.seed, kinds)


def _value(term: Term, fetch: Drawn, at: Mapping[Axis, Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(evaluate(term, fetch, at), dtype=np.float64)


def _difference(
    name: str, c: int, mine: Array, theirs: Array, at: Mapping[Axis, Array]
) -> Compared:
    finite = np.isfinite(mine) & np.isfinite(theirs)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    scale = max(
        float(np.abs(np.where(finite, mine, 0)).max(initial=0)),
        float(np.abs(np.where(finite, theirs, 0)).max(initial=0)),
        1e-300,
    )
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.where(finite, np.abs(mine - theirs) / scale, np.inf))
    worst = np.unravel_index(int(np.argmax(gap)), gap.shape) if gap.size else ()
    place = {a.name: int(p[i]) for (a, p), i in zip(at.items(), worst, strict=True)}
    return Compared(
        name, c, float(gap[worst]), place, float(mine[worst]), float(theirs[worst]), gap.size
    )
