"""Products and attentions of any size as terms, for the tests of the warpgroup path."""

from __future__ import annotations

import math
from collections.abc import Callable

from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
    apply,
)

__all__ = ["attention", "beside", "gelu", "product", "softcap"]

Outputs = tuple[Output, ...]


def product(
    m: int,
    n: int,
    k: int,
    dtype: str = "bf16",
    epilogue: Callable[[Term, Axis], Term] = lambda x, n: x,
    gated: bool = False,
) -> Outputs:
    """C[m, n] = epilogue(sum[k](A[m, k] * B[n, k])), or silu of one product times another."""
    rows, columns, depth = Axis("m", 0, m), Axis("n", 0, n), Axis("k", 0, k)
    a = Load(Buffer("A", (m, k), dtype), (Index(rows), Index(depth)))

    def once(name: str) -> Term:
        b = Load(Buffer(name, (n, k), dtype), (Index(columns), Index(depth)))
        return Reduce("sum", depth, apply("mul", a, b))

    term = epilogue(once("B"), columns)
    if gated:
        term = apply("mul", apply("mul", term, apply("sigmoid", term)), once("U"))
    return (Output(Buffer("C", (m, n), "bf16"), (rows, columns), term),)


def beside(m: int, n: int, k: int, r: int) -> Outputs:
    """C[m, n] = sum[k](A[m, k] * B[n, k]) + 2 sum[r](U[m, r] * V[n, r])."""
    rows, columns = Axis("m", 0, m), Axis("n", 0, n)

    def once(left: str, right: str, depth: Axis) -> Term:
        a = Load(Buffer(left, (m, depth.extent), "bf16"), (Index(rows), Index(depth)))
        b = Load(Buffer(right, (n, depth.extent), "bf16"), (Index(columns), Index(depth)))
        return Reduce("sum", depth, apply("mul", a, b))

    short = apply("mul", Const(2.0), once("U", "V", Axis("r", 0, r)))
    term = apply("add", once("A", "B", Axis("k", 0, k)), short)
    return (Output(Buffer("C", (m, n), "bf16"), (rows, columns), term),)


def gelu(x: Term, columns: Axis) -> Term:
    """The tanh form, after a bias for each column."""
    x = apply("add", x, Load(Buffer("c", (columns.extent,), "bf16"), (Index(columns),)))
    cubic = apply(
        "mul", x, apply("add", Const(0.79788), apply("mul", Const(0.0357), apply("mul", x, x)))
    )
    return apply("mul", apply("mul", Const(0.5), x), apply("add", Const(1.0), apply("tanh", cubic)))


def softcap(x: Term) -> Term:
    """30 tanh(x / 30)."""
    return apply("mul", Const(30.0), apply("tanh", apply("div", x, Const(30.0))))


def attention(
    tokens: int,
    width: int,
    *,
    batch: int = 1,
    heads: int = 1,
    group: int = 1,
    queries: int = 0,
    causal: bool = False,
    window: int = 0,
    score: Callable[[Term], Term] = lambda x: x,
    dtype: str = "bf16",
    normed: bool = False,
) -> Outputs:
    """Online softmax attention over `tokens` keys; as many queries, if not given. `normed` queries
    are scaled for each depth, and their scores by the norm of the queries."""
    b, h, t = Axis("b", 0, batch), Axis("h", 0, heads), Axis("t", 0, queries or tokens)
    s, d, e = Axis("s", 0, tokens), Axis("d", 0, width), Axis("e", 0, width)
    own = Index(h) if group == 1 else apply("floordiv", Index(h), Const(group))
    shape = (batch, heads // group, tokens, width)
    like = (batch, heads, t.extent, width)
    q = Load(Buffer("Q", like, dtype), (Index(b), Index(h), Index(t), Index(d)))
    k = Load(Buffer("K", shape, dtype), (Index(b), own, Index(s), Index(d)))
    v = Load(Buffer("V", shape, dtype), (Index(b), own, Index(s), Index(e)))
    left: Term = q
    if normed:
        left = apply("mul", q, Load(Buffer("g", (width,), "bf16"), (Index(d),)))
    x = score(apply("mul", Reduce("sum", d, apply("mul", left, k)), Const(width**-0.5)))
    if normed:
        x = apply("mul", x, apply("rsqrt", Reduce("sum", d, apply("mul", q, q))))
    if causal:
        x = apply("where", apply("le", Index(s), Index(t)), x, Const(-math.inf))
    if window:
        near = apply("lt", apply("sub", Index(t), Index(s)), Const(window))
        x = apply("where", near, x, Const(-math.inf))
    top = Reduce("max", s, x)
    repair = apply("exp", apply("sub", Before(top), Running(top)))
    weight = apply("exp", apply("sub", x, Running(top)))
    values = Online(s, repair, apply("mul", weight, v))
    result = apply("div", values, Online(s, repair, weight))
    return (Output(Buffer("O", like, "bf16"), (b, h, t, e), result),)
