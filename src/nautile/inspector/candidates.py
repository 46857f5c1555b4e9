"""Every candidate kernel of a program, and why it was taken or not.

```
Row    ::= id, makes, needs, seconds, bound, tile, streams, split, taken, reason, forced
id     ::= "c" column of the pool | "d" one that was left out of the choice | "u" a body that fits
           no tiles | "l" one that code generation refused (numbers as in Pool.candidates,
           Pool.dropped, Pool.unfit, Pool.refused)
reason ::= taken | noise | dearer | unused | dominated | beyond | unpriced | infeasible | lowering
```

`forced` is the cheapest program in which the candidate is used: what it would cost to take it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nautile.extract.candidates import KEPT, NOISE, Candidate
from nautile.extract.device import Device
from nautile.extract.exact import Exact
from nautile.extract.kernel import Part
from nautile.extract.pool import Choice, Pool
from nautile.extract.selection import Selection

from .places import RegionPlaces
from .why_not.limits import limit_of

__all__ = ["Row", "forced", "rows"]

_PATIENCE = 3.0  # seconds that solving for one candidate may take


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate. `seconds` is its predicted time alone, inf where it fits no tiles; `forced`
    the predicted seconds of the cheapest program that uses it, None where none does."""

    id: str
    makes: tuple[str, ...]
    needs: tuple[str, ...]
    seconds: float
    reason: str
    text: str
    region: int = 0
    candidate: Candidate | None = None
    forced: float | None = None
    slower_by: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def taken(self) -> bool:
        return self.reason == "taken"

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON; figures that it has none of are null."""
        made = self.candidate
        return {
            "id": self.id,
            "region": self.region,
            "makes": list(self.makes),
            "needs": list(self.needs),
            "seconds": self.seconds if math.isfinite(self.seconds) else None,
            "bound": None if made is None else made.prediction.bound,
            "tile": {} if made is None else _tile(made.parts),
            "streams": [] if made is None else _streams(made.parts),
            "split": {} if made is None else _split(made),
            "taken": self.taken,
            "reason": {"code": self.reason, "text": self.text, **self.facts},
            "forced": None
            if self.forced is None
            else {"seconds": self.forced, "slower_by": self.slower_by},
        }


def rows(choice: Choice, places: Sequence[RegionPlaces], device: Device) -> tuple[Row, ...]:
    """All candidates: those of the choice, those left out of it, bodies that fit no tiles, and
    those that were chosen and refused."""
    table = _Table(choice, places, device)
    return (*table.entered(), *table.dropped(), *table.unfit(), *table.refused())


def forced(pool: Pool, taken: Sequence[int], column: int) -> Selection | None:
    """The cheapest selection in which the column makes something that is needed; None where there
    is none. Columns beside it may not be idle."""
    if column in taken:
        return Exact(force=frozenset([column]))(pool.columns, pool.roots)
    cuts = (frozenset(taken),)
    for exact in (
        Exact(force=frozenset([column]), seconds=_PATIENCE),
        Exact(force=frozenset([column]), cuts=cuts, seconds=_PATIENCE),
    ):
        answer = exact(pool.columns, pool.roots)
        if answer is not None and column in answer.columns:
            return answer
    return None


class _Table:
    def __init__(self, choice: Choice, places: Sequence[RegionPlaces], device: Device) -> None:
        self.choice, self.places, self.device = choice, places, device
        self.pool, self.cost = choice.pool, choice.taken.cost

    def entered(self) -> Iterator[Row]:
        """The columns of the choice."""
        for k, (number, candidate) in enumerate(self.pool.candidates):
            if k in self.choice.taken.columns:
                yield self._row(f"c{k}", number, candidate, "taken", "part of the chosen program")
                continue
            answer = forced(self.pool, self.choice.taken.columns, k)
            yield self._entered(f"c{k}", number, candidate, answer)

    def _entered(
        self, name: str, number: int, candidate: Candidate, answer: Selection | None
    ) -> Row:
        if answer is None:
            text = "no program uses it: nothing reads what it makes, or what it needs needs it"
            return self._row(name, number, candidate, "unused", text)
        more = answer.cost / self.cost - 1
        if more < -1e-9:
            fewer = len(self.choice.taken.columns) < len(answer.columns)
            why = "takes more kernels" if fewer else "is slower once storage is settled"
            text = (
                f"a program with it is {-more:.2%} faster, within the model's noise "
                f"({NOISE:.0%}), and {why}"
            )
            return self._row(name, number, candidate, "noise", text, answer.cost, more)
        text = (
            "the best program that uses it is just as fast"
            if more < 1e-9
            else f"the best program that uses it is {more:.1%} slower"
        )
        return self._row(name, number, candidate, "dearer", text, answer.cost, more)

    def dropped(self) -> Iterator[Row]:
        """Candidates that were priced and left out of the choice."""
        for k, (number, candidate) in enumerate(self.pool.dropped):
            rival = self._rival(number, candidate)
            if rival is not None:
                other = self.pool.candidates[rival][1]
                text = f"c{rival} makes as much of as little, in {_compared(other, candidate)}"
                yield self._row(
                    f"d{k}", number, candidate, "dominated", text, facts={"by": f"c{rival}"}
                )
                continue
            yield self._left_out(f"d{k}", number, candidate)

    def _left_out(self, name: str, number: int, candidate: Candidate) -> Row:
        pool, column = self._with(number, candidate)
        answer = forced(pool, self.choice.taken.columns, column)
        if answer is None:
            text = "no program uses it: something that it needs has no candidate left"
            return self._row(name, number, candidate, "unused", text)
        more = answer.cost / self.cost - 1
        reason = "beyond" if more >= KEPT - 1 else "unpriced"
        text = (
            f"the best program that uses it takes {1 + more:.1f} times as long"
            if reason == "beyond"
            else f"the relaxation would not buy it; a program with it is {_by(more)}"
        )
        return self._row(name, number, candidate, reason, text, answer.cost, more)

    def _with(self, number: int, candidate: Candidate) -> tuple[Pool, int]:
        """The pool with one more candidate, and its number."""
        return replace(self.pool, dropped=((number, candidate),)).widened, len(self.pool.candidates)

    def _rival(self, number: int, candidate: Candidate) -> int | None:
        """A candidate of the choice that makes at least as much of at most as little for no
        more."""
        found = [
            k
            for k, (home, other) in enumerate(self.pool.candidates)
            if home == number
            and other.makes >= candidate.makes
            and other.needs <= candidate.needs
            and other.seconds <= candidate.seconds
        ]
        return min(found, key=lambda k: self.pool.columns[k].cost, default=None)

    def unfit(self) -> Iterator[Row]:
        """Bodies that no tiling of fits the device: the limit, and the least that one needs."""
        for k, (number, body) in enumerate(self.pool.unfit):
            place = self.places[number]
            outputs = tuple(o for c, t in body.groups[0] for o in place.classes.output(c, t))
            limit = limit_of(outputs, self.device, place.classes.numerics)
            yield Row(
                f"u{k}",
                tuple(place.definitions(body.groups)),
                tuple(place.shown(c) for c in sorted(body.needs)),
                math.inf,
                "infeasible",
                "no tiling of it is known" if limit is None else limit.text,
                number,
                facts={} if limit is None else limit.as_dict(),
            )

    def refused(self) -> Iterator[Row]:
        """Candidates that were chosen, and no kernel could be made of."""
        text = "it was chosen, but no schedule of it lowers and passes the gate"
        for k, (number, candidate) in enumerate(self.pool.refused):
            yield self._row(f"l{k}", number, candidate, "lowering", text)

    def _row(
        self,
        name: str,
        number: int,
        candidate: Candidate,
        reason: str,
        text: str,
        cost: float | None = None,
        more: float | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Row:
        place = self.places[number]
        if reason == "taken":
            cost, more = self.cost, 0.0
        return Row(
            name,
            tuple(place.made(candidate)),
            tuple(place.shown(c) for c in sorted(candidate.needs)),
            candidate.seconds,
            reason,
            text,
            number,
            candidate,
            cost,
            more,
            facts or {},
        )


def _compared(other: Candidate, own: Candidate) -> str:
    return f"{other.seconds / own.seconds:.0%} of its time"


def _by(more: float) -> str:
    return f"{more:.1%} slower" if more >= 0 else f"{-more:.2%} faster, which the choice left out"


def _tile(parts: Sequence[Part]) -> dict[str, int]:
    return {a.name: t for part in parts for a, t in part.tiles.items()}


def _streams(parts: Sequence[Part]) -> list[str]:
    return list(dict.fromkeys(a.name for part in parts for a in part.streams))


def _split(candidate: Candidate) -> dict[str, int]:
    if candidate.division is None:
        return {}
    split = candidate.division.split
    return {split.axis.name: split.chunks}
