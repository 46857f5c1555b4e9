"""Which terms stay of ordinary size where the source does, as egglog text.

Those of the source are tame, and what is made of tame terms, but for two things. The exponential of
something that may be positive may overflow. And the running value of a maximum (or minimum) is
infinite before its first finite term, where the source's is not: it is tame only in what stays
ordinary then, or is 0: a difference that is never positive, a step between two running values, a
quotient by the largest magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautile.rules.egglog import number
from nautile.terms import MONOIDS

from .masks import MOMENTS

__all__ = ["tame"]

_MOST, _LEAST = MONOIDS.index("max"), MONOIDS.index("min")
_ENDS = {"max": number(float("-inf")), "min": number(float("inf"))}


def tame(constructors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The rules of `is_tame`, given the sorts of all constructors' arguments."""
    rules = [_rule("(= b (bounded e))")]
    for name, sorts in constructors.items():
        if name not in ("Running", "Before"):
            rules.append(_composed(name, sorts))
    for moment in MOMENTS[:2]:
        query = f"(= e ({moment} m i a)) (is_tame a) (!= m {_MOST}) (!= m {_LEAST})"
        rules.append(_rule(query))
    return [*rules, *_differences(), *_steps(), *_masked(), *_scaled()]


def _rule(query: str) -> str:
    return f"(rule ({query}) ((is_tame e)) :ruleset analysis)"


def _composed(name: str, sorts: tuple[str, ...]) -> str:
    places = [f"{'t' if sort == 'T' else 'i'}{k}" for k, sort in enumerate(sorts)]
    parts = [f"(is_tame {p})" for p in places if p[0] == "t"]
    if name in ("op_exp", "op_exp2"):
        parts.append("(is_nonpos t0)")
    if name in ("op_eq", "op_ne", "op_lt", "op_le", "op_gt", "op_ge"):
        parts = []
    return _rule(" ".join([f"(= e ({name} {' '.join(places)}))", *parts]))


def _differences() -> list[str]:
    """a - mu <= 0 with a tame (or mu - a, of a minimum): where mu is infinite, so is a."""
    return [_rule(f"(= e (op_sub a b)) (is_nonpos e) (is_tame {side})") for side in "ab"]


def _steps() -> list[str]:
    """Steps between a carrier's values before and at the position, where there was a value."""
    rules = []
    for monoid, code in (("max", _MOST), ("min", _LEAST)):
        old, new = (f"({moment} {code} i a)" for moment in ("Before", "Running"))
        compare = "op_gt" if monoid == "max" else "op_lt"
        guard = f"({compare} {old} {_ENDS[monoid]})"
        rules.append(_rule(f"(= e (op_where {guard} (op_sub {new} {old}) (Num 0.0)))"))
        rules.append(_rule(f"(= e (op_sub {old} {new}))"))
    return rules


def _masked() -> list[str]:
    """A masked term that exceeds the maximum of the others is dropped by its mask."""
    over = f"(Running {_MOST} i (op_where c a (Num -inf)))"
    masked = (f"(op_where c (op_{f} (op_sub a {over})) (Num 0.0))" for f in ("exp", "exp2"))
    return [_rule(f"(= e {form}) (is_tame a)") for form in masked]


def _scaled() -> list[str]:
    """a / max|a|: while the maximum is 0, so is a."""
    top = f"(Running {_MOST} i (op_abs a))"
    return [_rule(f"(= e (op_div {part} {top})) (is_tame a)") for part in ("a", "(op_abs a)")]
