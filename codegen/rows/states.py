"""Partial states of folds: how an element enters them and how two of them merge.

Two partial states of a fold with a repair are brought to the reference that they reach together:
each side's sum is multiplied by the repair whose "before" is that side's own carrier and whose
running value is the combined one; a factor of 0 drops the side, NaN included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautile.codegen.folding import identity
from nautile.codegen.tile import Fold
from nautile.codegen.types import CPP, carrier, literal

__all__ = ["combine", "merge_lines", "start", "state_type", "update"]

_SUFFIX = {"f32": "", "f64": "_f64", "i32": "_int", "i64": "_int", "bool": "_int"}


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


def state_type(number: int, folds: Sequence[Fold]) -> list[str]:
    """The struct that carries a pass' partial states between threads."""
    fields = []
    for fold in folds:
        if fold.monoid in ("argmax", "argmin"):
            fields.append(f"{CPP[carrier(fold.source.dtype)]} {fold.target.name}_value;")
        fields.append(f"{CPP[carrier(fold.target.dtype)]} {fold.target.name};")
    return [f"struct State{number} {{ {' '.join(fields)} }};"]


def merge_lines(
    folds: Sequence[Fold], factors: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
) -> list[str]:
    """The body of the merge of states a and b into c."""
    lines: list[str] = []
    for fold in folds:
        name, kind = fold.target.name, carrier(fold.target.dtype)
        if fold.monoid in ("argmax", "argmin"):
            lines += _merge_extreme(fold)
        elif name in factors:
            before, (left, right) = factors[name]
            call = "nt_repair_f64" if kind == "f64" else "nt_repair"
            lines += [f"  {line}" for line in before]
            lines.append(f"  c.{name} = {call}(a.{name}, {left}) + {call}(b.{name}, {right});")
        else:
            lines.append(f"  c.{name} = {combine(fold.monoid, f'a.{name}', f'b.{name}', kind)};")
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
