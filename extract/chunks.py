"""Which splits of a body are worth their second launch: chunk lengths tried, each priced, the best.

A split pays where the best schedule of the whole body leaves multiprocessors idle or is held up by
what one block does in turn, so only bodies well above what their work and traffic alone take are
tried. Chunk counts are the powers of two that give the device up to a few waves of blocks, and what
fills it exactly. A length is a divisor of the extent where a suitable one is near, else a multiple
of 64 with a shorter last chunk.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.closed import COUNTED, launched
from nautile.extract.device import PORTABLE, Device
from nautile.extract.grouping import most_shared
from nautile.extract.kernel import Part, Prediction
from nautile.extract.masks import alive, pass_mask, span
from nautile.extract.priced import Priced
from nautile.extract.roofline import price
from nautile.extract.split import Outputs, Split, launches
from nautile.terms import Axis, Online, Reduce, Term

__all__ = ["Divided", "best_split", "divided"]

SLACK = 1.03  # times what work and traffic take alone: below it no split is tried
WAVES = 8  # most blocks a multiprocessor that chunks may make
SHORTEST = 64  # positions of a chunk
ALIGNED = 16  # positions: what a vector load may need
COARSE = 400  # tilings priced while lengths are compared
NEAR = math.sqrt(2)  # how far a divisor may be from the count that is wanted


@dataclass(frozen=True, slots=True)
class Divided:
    """A body in several launches, each on its best schedule."""

    split: Split
    schedules: tuple[tuple[Part, Prediction], ...]

    @property
    def seconds(self) -> float:
        """Predicted seconds of all launches together."""
        return launched(self.schedules)


def best_split(
    outputs: Outputs,
    whole: Priced,
    *,
    numerics: str = "real",
    known: Sequence[Split] | None = None,
) -> Divided | None:
    """The cheapest split of a body whose unsplit tilings are `whole`, if one is cheaper than all of
    those; of the `known` ones alone, if they are given."""
    device, most = whole.device, whole.best()
    if not device.launch_seconds + COUNTED < most < math.inf or most < SLACK * _ideal(whole):
        return None
    rows = _splits(whole) if known is None else [[s] for s in known]
    search = _Search(outputs, device, numerics)
    best = min((search.best(row) for row in rows), key=search.seconds, default=None)
    if best is None or search.seconds(best) >= most:
        return None
    made = divided(outputs, best, device, numerics=numerics)
    return made if made is not None and made.seconds < most else None


@dataclass(slots=True)
class _Search:
    """The seconds of splits, priced where they are asked for."""

    outputs: Outputs
    device: Device
    numerics: str
    known: dict[Split, float] = field(default_factory=dict)

    def seconds(self, split: Split) -> float:
        """About the seconds of the body in all its launches; inf where it cannot be split."""
        if split not in self.known:
            parts = launches(self.outputs, split, _Names())
            coarse = [price(p, self.device, numerics=self.numerics, limit=COARSE) for p in parts]
            best = [schedule for c in coarse for schedule in c.ranked(1)]
            found = bool(best) and len(best) == len(parts)
            self.known[split] = launched(best) if found else math.inf
        return self.known[split]

    def best(self, row: Sequence[Split]) -> Split:
        """The best of splits in order of their chunks, downhill from the best of every third: more
        chunks fill the device until their states cost more than they bring."""
        at = min(range(len(row) % 3 // 2, len(row), 3), key=lambda k: self.seconds(row[k]))
        for step in (1, -1):
            while 0 <= at + step < len(row) and self._better(row[at + step], row[at]):
                at += step
        return row[at]

    def _better(self, a: Split, b: Split) -> bool:
        return self.seconds(a) < self.seconds(b) or math.isinf(self.seconds(b))


def divided(
    outputs: Outputs, split: Split, device: Device, *, numerics: str = "real"
) -> Divided | None:
    """The split body on its best schedules, or None where it has none."""
    found: list[tuple[Part, Prediction]] = []
    for launch in launches(outputs, split, _Names()):
        ranked = price(launch, device, numerics=numerics).ranked(1)
        if not ranked:
            return None
        found += ranked
    return Divided(split, tuple(found)) if found else None


class _Names:
    """Names for states that are priced, not kept."""

    def __init__(self) -> None:
        self.count = itertools.count()

    def __call__(self) -> str:
        return f"~state{next(self.count)}"


def _ideal(whole: Priced) -> float:
    """What the work and the traffic of the thriftiest tilings take, each on an idle device, nothing
    read twice."""
    d, rates = whole.device, _rate(whole)
    fits = np.isfinite(whole.seconds)
    once = sum(b.size * DTYPES[b.dtype].bytes for b in {x.buffer for x in whole.body.loads})
    needs = (
        (np.minimum(whole.reads, once) + whole.writes, d.memory_bandwidth),
        (whole.tensor_flops, rates),
        (whole.vector_flops, d.fp32),
        (whole.special_ops, d.special),
    )
    alone = max((float(n[fits].min()) / rate for n, rate in needs), default=0.0)
    return max(alone, _filled(whole))


def _rate(whole: Priced) -> float:
    """flop/s of the tensor cores at best, along the paths that tilings take."""
    if not whole.wgmma.any():
        return max(whole.device.tensor[PORTABLE].values())
    operands = {c.operand for c in whole.body.contractions.values()}
    return max(whole.device.rate(operand, "wgmma") for operand in operands)


def _filled(whole: Priced) -> float:
    """What the best schedule takes if no multiprocessor idles, where its blocks are persistent: a
    tile of theirs takes as long whatever a split makes of it. 0 for any other."""
    best = int(whole.seconds.argmin())
    if not len(whole.wgmma) or not whole.wgmma[best]:
        return 0.0
    rounds = float(whole.blocks[best]) / whole.device.sms
    return float(whole.seconds[best]) * rounds / math.ceil(rounds)


# ---- lengths -----------------------------------------------------------------------------------


def _splits(whole: Priced) -> list[list[Split]]:
    """Splits worth pricing, by their chunks: a row for each reduced axis that is long enough."""
    own = _blocks(whole)
    rows = []
    for axis in _axes(whole):
        extent, (first, stop), live = _live(whole, axis)
        fewest = 1 if _walks_others(whole, axis) else SHORTEST
        counts = _counts(extent // fewest, own, WAVES * whole.device.sms / live)
        lengths = {_length(extent, count, min(fewest, ALIGNED)) for count in counts}
        row = [Split(axis, n, first, stop) for n in sorted(lengths, reverse=True) if n < extent]
        rows += [row] if row else []
    return rows


def _blocks(whole: Priced) -> set[int]:
    """How many blocks a chunk may take: those of the best schedule, and where larger tiles read
    less (contractions), those of the largest."""
    taken = int(whole.blocks[int(whole.seconds.argmin())])
    if not whole.body.contractions:
        return {taken}
    fewest = int(whole.blocks[np.isfinite(whole.seconds)].min())
    return {taken, fewest, max(1, fewest // most_shared(whole.body.outputs))}


def _axes(whole: Priced) -> list[Axis]:
    first = {_reduced(r) for r, k in whole.body.stage.items() if k == 0}
    return [a for a in whole.body.reduced if a in first and 1 < a.extent < 2**31]


def _walks_others(whole: Priced, axis: Axis) -> bool:
    """Whether each position of the axis is a loop over others, and none of a contraction's."""
    inner = {a for a, outer in whole.body.nested if outer == axis}
    multiplied = (c.left_free | c.right_free for c in whole.body.contractions.values())
    return bool(inner) and not any(axis in axes for axes in multiplied)


def _live(whole: Priced, axis: Axis) -> tuple[int, tuple[int, int], float]:
    """How many positions of the axis masks leave, from where to where (as a split's span), and
    the share of those that they leave on average."""
    firsts = [r for r, k in whole.body.stage.items() if k == 0 and _reduced(r) == axis]
    mask = pass_mask(firsts)
    first, stop = span(mask, axis)
    first = first // SHORTEST * SHORTEST
    kept = alive(mask, {axis: SHORTEST}, axis) if mask else 1.0
    end = stop if stop < axis.extent else 0
    return stop - first, (first, end), min(1.0, kept * axis.extent / (stop - first))


def _reduced(term: Term) -> Axis:
    assert isinstance(term, (Reduce, Online))
    return term.axis


def _counts(most: int, blocks: Iterable[int], total: float) -> list[int]:
    """Chunk counts, `most` at most, that give up to `total` blocks: powers of two, and what gives a
    half, a quarter or an eighth of that."""
    found: set[int] = set()
    for own in blocks:
        limit = min(most, int(total / own))
        found |= {2**k for k in range(1, 31) if 2**k <= limit}
        found |= {n for k in (2, 4, 8) if 2 <= (n := int(total / k / own)) <= limit}
    return sorted(found)


def _length(extent: int, count: int, aligned: int) -> int:
    """The length of about `count` chunks, a multiple of `aligned`."""
    low, high = max(2, math.ceil(count / NEAR)), int(count * NEAR)
    exact = [n for n in range(low, high + 1) if extent % n == 0 and extent // n % aligned == 0]
    if exact:
        return extent // min(exact, key=lambda n: (abs(n - count), n))
    unit = SHORTEST if extent > SHORTEST * count else aligned
    return -(-extent // (count * unit)) * unit
