"""Small terms for the tests: indexing sugar over the contract's constructors."""

from __future__ import annotations

from nautile.terms import (
    Apply,
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Reduce,
    Running,
    Term,
    apply,
    reduce_,
)


def axis(family: str, extent: int, number: int = 0) -> Axis:
    return Axis(family, number, extent)


def load(name: str, *axes: Axis, dtype: str = "f32") -> Load:
    buffer = Buffer(name, tuple(a.extent for a in axes), dtype)
    return Load(buffer, tuple(Index(a) for a in axes))


def sum_(a: Axis, body: Term) -> Reduce:
    return reduce_("sum", a, body)


def max_(a: Axis, body: Term) -> Reduce:
    return reduce_("max", a, body)


def mul(*terms: Term) -> Term:
    result = terms[0]
    for t in terms[1:]:
        result = apply("mul", result, t)
    return result


def softmax(x: Term, s: Axis) -> Term:
    e = apply("exp", apply("sub", x, max_(s, x)))
    return apply("div", e, sum_(s, e))


def online_softmax_sum(x: Term, s: Axis, weight: Term | None = None, sign: float = 1.0) -> Online:
    """sum[s](exp(x - max x) * weight) in one pass over s, the repair guarded at -inf - -inf."""
    m = max_(s, x)
    change = apply("sub", Before(m), Running(m))
    start = apply("eq", Before(m), Const(float("-inf")))
    repair = apply("where", start, Const(0.0), apply("exp", mul(Const(sign), change)))
    body: Term = apply("exp", apply("sub", x, Running(m)))
    return Online(s, repair, body if weight is None else mul(body, weight))


__all__ = ["Apply", "axis", "load", "max_", "mul", "online_softmax_sum", "softmax", "sum_"]
