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

__all__ = ["Moves", "combine", "fields", "merge_lines", "moved", "start", "state_type", "update"]

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


def update(fold: Fold, value: str, index: str) -> list[str]:
    """The statement that lets one element enter a fold."""
    name, kind = fold.target.name, carrier(fold.target.dtype)
    if fold.monoid in ("argmax", "argmin"):
        test = f"{_better(fold)}({value}, {name}_value) || ({value} == {name}_value"
        return [f"if ({test} && {index} < {name})) {{ {name}_value = {value}; {name} = {index}; }}"]
    return [f"{name} = {combine(fold.monoid, name, value, kind)};"]


def _better(fold: Fold) -> str:
    return "nt_above" if fold.monoid == "argmax" else "nt_below"


def fields(fold: Fold) -> list[str]:
    """The names of a fold's partial state."""
    extreme = fold.monoid in ("argmax", "argmin")
    return [f"{fold.target.name}_value", fold.target.name] if extreme else [fold.target.name]


def state_type(number: int, folds: Sequence[Fold]) -> list[str]:
    """The struct that carries a pass' partial states between threads."""
    members = []
    for fold in folds:
        if fold.monoid in ("argmax", "argmin"):
            members.append(f"{CPP[carrier(fold.source.dtype)]} {fold.target.name}_value;")
        members.append(f"{CPP[carrier(fold.target.dtype)]} {fold.target.name};")
    return [f"struct State{number} {{ {' '.join(members)} }};"]


def merge_lines(folds: Sequence[Fold], moves: Mapping[str, Moves]) -> list[str]:
    """The body of the merge of states a and b into c."""
    lines: list[str] = []
    for fold in folds:
        name, kind = fold.target.name, carrier(fold.target.dtype)
        if fold.monoid in ("argmax", "argmin"):
            lines += _merge_extreme(fold)
            continue
        move = moves.get(name, Moves())
        lines += [f"  {line}" for line in move.lines]
        sides = (move.side(n, f"{s}.{name}", kind) for n, s in enumerate("ab"))
        lines.append(f"  c.{name} = {combine(fold.monoid, *sides, kind)};")
    return lines


def _merge_extreme(fold: Fold) -> list[str]:
    name, better = fold.target.name, _better(fold)
    value = f"{name}_value"
    same = f"!{better}(a.{value}, b.{value}) && b.{name} < a.{name}"
    return [
        f"  const bool take_{name} = {better}(b.{value}, a.{value}) || ({same});",
        f"  c.{value} = take_{name} ? b.{value} : a.{value};",
        f"  c.{name} = take_{name} ? b.{name} : a.{name};",
    ]
