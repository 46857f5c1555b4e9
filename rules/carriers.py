"""Carriers, and what they have come to along the stream.

A carrier is a reduction over the streamed axis or an expression of reductions over it. Its value at
a position is the same expression of the reductions' running values (or of those before the
position), but for two things: the number of positions becomes the number of those seen, and a
quotient is 0 while its divisor is, so that a mean of nothing is 0 and never NaN.

`lowered` writes the abbreviations of the rule language out:

    online[j](m, k, r)    streamed[j](repair(m, k), 0, r)
    repair(m, k)          exp(-k * where(before(m) == running(m), 0, before(m) - running(m)))
    running(m), before(m) the carrier's expression of running values

The repair is written so that equal infinities leave a sum as it is, and a first finite value
discards what was summed before it.
"""

from __future__ import annotations

from collections.abc import Mapping

from .law import (
    Call,
    Carrier,
    Fold,
    Moment,
    Name,
    Number,
    Pattern,
    Repair,
    Rescaled,
    Round,
    Rule,
    Size,
    Stream,
    Streamed,
    over,
    parts,
)

__all__ = ["carriers_of", "lowered", "moment_of", "named_slope", "stream_axes"]


def carriers_of(rule: Rule) -> dict[str, Pattern]:
    """What a law says its carriers are."""
    return {c.name: c.reduction for c in rule.conditions if isinstance(c, Carrier)}


def stream_axes(carrier: Pattern) -> frozenset[str]:
    """The axes of a carrier's outermost reductions."""
    match carrier:
        case Fold(_, axis, _):
            return frozenset({axis})
        case Call(_, arguments):
            return frozenset[str]().union(*map(stream_axes, arguments))
        case Round(_, argument):
            return stream_axes(argument)
    return frozenset()


def moment_of(carrier: Pattern, moment: str) -> Pattern:
    """A carrier's value up to ("running") or before ("before") the position of its stream."""
    (axis,) = stream_axes(carrier)
    return _moment(carrier, moment, axis)


def _moment(pattern: Pattern, moment: str, axis: str) -> Pattern:
    match pattern:
        case Fold(monoid, a, body) if a == axis:
            return Stream(moment, monoid, axis, body)
        case Size(a) if a == axis:
            return Stream(moment, "sum", axis, Number(1.0))
        case Call("div", (above, below)) if (under := _moment(below, moment, axis)) != below:
            quotient = Call("div", (_moment(above, moment, axis), under))
            return Call("where", (Call("eq", (under, Number(0.0))), Number(0.0), quotient))
        case Call(operation, arguments):
            return Call(operation, tuple(_moment(a, moment, axis) for a in arguments))
        case Round(dtype, argument):
            return Round(dtype, _moment(argument, moment, axis))
    return pattern


def lowered(pattern: Pattern, carriers: Mapping[str, Pattern], *, unit: bool = False) -> Pattern:
    """The pattern without abbreviations. A carrier that no condition defines keeps `running(m)`.
    With `unit`, slopes of repairs that are names stand for -1."""

    def inner(child: Pattern) -> Pattern:
        return lowered(child, carriers, unit=unit)

    match pattern:
        case Moment(moment, of):
            return _lowered_moment(moment, of, carriers, unit)
        case Repair(carrier, slope):
            return _repair(carrier, inner(slope), carriers, unit and isinstance(slope, Name))
        case Rescaled(axis, carrier, slope, body):
            return inner(Streamed(axis, Repair(carrier, slope), Number(0.0), body))
    return over(pattern, inner)


def _lowered_moment(
    moment: str, of: Pattern, carriers: Mapping[str, Pattern], unit: bool
) -> Pattern:
    if isinstance(of, Name):
        carrier = carriers.get(of.name)
        return Moment(moment, of) if carrier is None else moment_of(carrier, moment)
    if isinstance(of, (Streamed, Rescaled)):
        return Moment(moment, lowered(of, carriers, unit=unit))
    return moment_of(lowered(of, carriers, unit=unit), moment)


def _repair(carrier: str, slope: Pattern, carriers: Mapping[str, Pattern], unit: bool) -> Pattern:
    old, new = (_lowered_moment(m, Name(carrier), carriers, unit) for m in ("before", "running"))
    step = Call("where", (Call("eq", (old, new)), Number(0.0), Call("sub", (old, new))))
    return Call("exp", (step if unit else Call("mul", (Call("neg", (slope,)), step)),))


def named_slope(pattern: Pattern) -> str | None:
    """The name of a repair's slope, if it is one: a repair with slope -1 is written shorter."""
    for part in parts(pattern):
        if isinstance(part, (Repair, Rescaled)) and isinstance(part.slope, Name):
            return part.slope.name
    return None
