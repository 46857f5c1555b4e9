"""Terms of the programs that saturation is measured on, built by hand."""

from __future__ import annotations

from nautile.terms import Axis, Buffer, Const, Index, Load, Output, Term, apply, reduce_

B, H, T, S = (Axis(n, 0, e) for n, e in (("b", 2), ("h", 8), ("t", 64), ("s", 64)))
D, E, C, N = (Axis(n, 0, e) for n, e in (("d", 16), ("e", 16), ("c", 32), ("n", 64)))


def load(name: str, *axes: Axis, dtype: str = "f32") -> Load:
    """`name[axes]`."""
    buffer = Buffer(name, tuple(a.extent for a in axes), dtype)
    return Load(buffer, tuple(Index(a) for a in axes))


def output(name: str, term: Term, *axes: Axis) -> tuple[Output, ...]:
    """A single output of a region."""
    return (Output(Buffer(name, tuple(a.extent for a in axes), "f32"), axes, term),)


def add(a: Term, b: Term) -> Term:
    return apply("add", a, b)


def sub(a: Term, b: Term) -> Term:
    return apply("sub", a, b)


def mul(a: Term, b: Term) -> Term:
    return apply("mul", a, b)


def div(a: Term, b: Term) -> Term:
    return apply("div", a, b)


def total(axis: Axis, body: Term) -> Term:
    return reduce_("sum", axis, body)


def softmax(x: Term, axis: Axis) -> Term:
    """exp(x - max) / sum(exp(x - max)) over the axis."""
    e = apply("exp", sub(x, reduce_("max", axis, x)))
    return div(e, total(axis, e))


def logsumexp(x: Term, axis: Axis) -> Term:
    m = reduce_("max", axis, x)
    return add(apply("log", total(axis, apply("exp", sub(x, m)))), m)


def scores(scale: float = 0.25, groups: int = 1) -> Term:
    """Q K^T with grouped heads."""
    head: Term = Index(H) if groups == 1 else apply("floordiv", Index(H), Const(groups))
    keys = Load(
        Buffer("K", (B.extent, H.extent // groups, S.extent, D.extent), "bf16"),
        (Index(B), head, Index(S), Index(D)),
    )
    return mul(total(D, mul(load("Q", B, H, T, D, dtype="bf16"), keys)), Const(scale))


def attention(x: Term, groups: int = 1) -> Term:
    head: Term = Index(H) if groups == 1 else apply("floordiv", Index(H), Const(groups))
    values = Load(
        Buffer("V", (B.extent, H.extent // groups, S.extent, E.extent), "bf16"),
        (Index(B), head, Index(S), Index(E)),
    )
    return total(S, mul(softmax(x, S), values))


def softcap(x: Term, cap: float = 50.0) -> Term:
    return mul(Const(cap), apply("tanh", div(x, Const(cap))))


def alibi(x: Term) -> Term:
    distance = sub(Index(S), Index(T))
    return add(x, mul(load("slope", H), distance))


def causal(x: Term) -> Term:
    return apply("where", apply("le", Index(S), Index(T)), x, Const(float("-inf")))


def window(x: Term, width: int = 16) -> Term:
    near = apply("lt", sub(Index(T), Index(S)), Const(width))
    return apply("where", near, x, Const(float("-inf")))


def all_together() -> Term:
    """Grouped heads, softcap, ALiBi, causal mask and window in one."""
    return attention(window(causal(alibi(softcap(scores(groups=4))))), groups=4)
