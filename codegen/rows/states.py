"""Partial states of folds: how an element enters them and how two of them merge.

Two partial states of a fold that is moved (by a repair, an offset or both) are brought to the
reference that they reach together: the repair and the offset of a side are those whose "before"
values are that side's own and whose running values are the combined ones. A repair of 0 drops the
side, NaN included; the state of a thread that no element has entered is the identity, whose offset
is 0 as it is before the first position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nautile.codegen.folding import identity
from nautile.codegen.tile import Fold
from nautile.codegen.types import CPP, carrier, literal

__all__ = [
    "Moves",
    "combine",
    "declared",
    "fields",
    "merge_lines",
    "moved",
    "start",
    "state_type",
    "update",
]

_SUFFIX = {"f32": "", "f64": "_f64", "i32": "_int", "i64": "_int", "bool": "_int"}


@dataclass(frozen=True, slots=True)
class Moves:
    """What brings the two sides of a merge to a common reference: `lines` of temporaries, and the
    repairs and offsets of the left and the right side in C++."""

    lines: tuple[str, ...] = ()
    repair: tuple[str, str] | None = None
    offset: tuple[str, str] | None = None

    def side(self, number: int, state: str, kind: str) -> str:
        """The state of one side (0 or 1), brought to the common reference."""
        repair, offset = (None if m is None else m[number] for m in (self.repair, self.offset))
        return moved(state, repair, offset, kind)


def moved(state: str, repair: str | None, offset: str | None, kind: str) -> str:
    """What was summed so far, multiplied by the repair and moved by the offset, in C++."""
    if repair is not None:
        call = "nt_repair_f64" if kind == "f64" else "nt_repair"
        state = f"{call}({state}, {repair})"
    return state if offset is None else f"({state} + {offset})"


def combine(monoid: str, a: str, b: str, kind: str) -> str:
    """The C++ expression of two values combined."""
    if monoid in ("max", "min"):
        cast = f"<{CPP[kind]}>" if _SUFFIX[kind] == "_int" else ""
        return f"nt_{monoid}{_SUFFIX[kind]}{cast}({a}, {b})"
    symbol = {"sum": "+", "prod": "*", "any": "||", "all": "&&"}[monoid]
    return f"{a} {symbol} {b}"


def start(monoid: str, kind: str) -> str:
    """The identity of a fold in C++."""
    value = identity(monoid, kind)
    if kind == "i64" and value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    if kind == "i32" and value == -(2**31):
        return "(-2147483647 - 1)"
    return literal(value, kind)


def update(fold: Fold, value: str, index: str, at: str = "") -> list[str]:
    """The statement that lets one element enter a fold; `at` picks one of several results."""
    name, kind = f"{fold.target.name}{at}", carrier(fold.target.dtype)
    if fold.monoid in ("argmax", "argmin"):
        best = f"{fold.target.name}_value{at}"
        test = f"{_better(fold)}({value}, {best}) || ({value} == {best} && {index} < {name})"
        return [f"if ({test}) {{ {best} = {value}; {name} = {index}; }}"]
    return [f"{name} = {combine(fold.monoid, name, value, kind)};"]


def _better(fold: Fold) -> str:
    return "nt_above" if fold.monoid == "argmax" else "nt_below"


def fields(fold: Fold) -> list[str]:
    """The names of a fold's partial state."""
    extreme = fold.monoid in ("argmax", "argmin")
    return [f"{fold.target.name}_value", fold.target.name] if extreme else [fold.target.name]


def declared(fold: Fold, suffix: str = "") -> list[tuple[str, str, str]]:
    """(C++ type, name, identity) of each variable of a fold's partial state."""
    kind = carrier(fold.target.dtype)
    name = f"{fold.target.name}{suffix}"
    if fold.monoid in ("argmax", "argmin"):
        source = carrier(fold.source.dtype)
        best = (CPP[source], f"{fold.target.name}_value{suffix}", start(fold.monoid, source))
        return [best, (CPP[kind], name, "0x7fffffff")]
    return [(CPP[kind], name, start(fold.monoid, kind))]


def state_type(number: int, folds: Sequence[Fold], sizes: Mapping[str, int] | None = None) -> str:
    """The struct that carries a pass' partial states between threads; `sizes` gives the results of
    folds that have several."""
    members = []
    for fold in folds:
        size = (sizes or {}).get(fold.target.name)
        suffix = "" if size is None else f"[{size}]"
        members += [f"{kind} {name};" for kind, name, _ in declared(fold, suffix)]
    return f"struct State{number} {{ {' '.join(members)} }};"


def merge_lines(folds: Sequence[Fold], moves: Mapping[str, Moves], at: str = "") -> list[str]:
    """The body of the merge of states a and b into c; `at` picks one of several results."""
    lines: list[str] = []
    for fold in folds:
        if fold.monoid in ("argmax", "argmin"):
            lines += _merge_extreme(fold, at)
            continue
        name, kind = f"{fold.target.name}{at}", carrier(fold.target.dtype)
        move = moves.get(fold.target.name, Moves())
        left, right = (move.side(n, f"{s}.{name}", kind) for n, s in enumerate("ab"))
        lines += [*move.lines, f"c.{name} = {combine(fold.monoid, left, right, kind)};"]
    return lines


def _merge_extreme(fold: Fold, at: str) -> list[str]:
    name, better, take = f"{fold.target.name}{at}", _better(fold), f"take_{fold.target.name}"
    value = f"{fold.target.name}_value{at}"
    same = f"!{better}(a.{value}, b.{value}) && b.{name} < a.{name}"
    return [
        f"const bool {take} = {better}(b.{value}, a.{value}) || ({same});",
        f"c.{value} = {take} ? b.{value} : a.{value};",
        f"c.{name} = {take} ? b.{name} : a.{name};",
    ]
