"""Kernels for tests, built by hand: terms and schedules of every kind that lowering must take.

Extents are small and prime to the tiles. Nothing here is a name that the compiler knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.terms import (
    Apply,
    Axis,
    Before,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Online,
    Output,
    Reduce,
    Running,
    Term,
)

NONE = Prediction(0.0, "dram", 0, 0, 0, 0, 0, 0, 0, 0)
INF = float("inf")


def ax(family: str, extent: int, number: int = 0) -> Axis:
    return Axis(family, number, extent)


def op(name: str, *arguments: Term | float | int) -> Term:
    wrapped = tuple(a if isinstance(a, Term) else Const(a) for a in arguments)
    return Apply(name, wrapped)


def load(name: str, *axes: Axis | Term, dtype: str = "bf16", shape: Sequence[int] = ()) -> Load:
    coordinates = tuple(a if isinstance(a, Term) else Index(a) for a in axes)
    sizes = shape or tuple(a.extent for a in axes if isinstance(a, Axis))
    return Load(Buffer(name, tuple(sizes), dtype), coordinates)


def out(name: str, axes: Sequence[Axis], term: Term, dtype: str = "bf16") -> Output:
    return Output(Buffer(name, tuple(a.extent for a in axes), dtype), tuple(axes), term)


def kernel(
    name: str, outputs: Sequence[Output], tiles: Mapping[Axis, int], streams: Sequence[Axis] = ()
) -> Kernel:
    return Kernel(name, (Part(tuple(outputs), dict(tiles), tuple(streams)),), NONE)


def _softmax(x: Term, j: Axis) -> Term:
    m = Reduce("max", j, x)
    e = op("exp", op("sub", x, m))
    return op("div", e, Reduce("sum", j, e))


def _online(x: Term, j: Axis, factor: Term | None = None) -> Term:
    """sum[j](exp(x - max[j](x)) * factor), with the running maximum."""
    m = Reduce("max", j, x)
    body = op("exp", op("sub", x, Running(m)))
    repair = op("exp", op("sub", Before(m), Running(m)))
    return Online(j, repair, op("mul", body, factor) if factor is not None else body)


def softmax(dtype: str = "bf16", stream: bool = False, n: int = 37, c: int = 201) -> Kernel:
    i, j = ax("n", n), ax("c", c)
    term = _softmax(load("x", i, j, dtype=dtype), j)
    tiles = {i: 4, j: 64 if stream else max(c, 256)}
    return kernel("soft", [out("y", (i, j), term, dtype)], tiles, (j,) if stream else ())


def softmax_online(n: int = 37, c: int = 201, dtype: str = "bf16") -> Kernel:
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j, dtype=dtype)
    m = Reduce("max", j, x)
    term = op("div", op("exp", op("sub", x, m)), _online(x, j))
    return kernel("softonline", [out("y", (i, j), term, dtype)], {i: 4, j: 64}, (j,))


def logsumexp(n: int = 19, c: int = 333) -> Kernel:
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j)
    term = op("add", Reduce("max", j, x), op("log", _online(x, j)))
    return kernel("lse", [out("y", (i,), term, "f32")], {i: 2, j: 128}, (j,))


def cross_entropy(n: int = 21, c: int = 500) -> Kernel:
    i, j = ax("n", n), ax("v", c)
    x = load("x", i, j)
    target = load("t", i, dtype="i64")
    picked = load("x", i, target, shape=(n, c))
    term = op("sub", op("add", Reduce("max", j, x), op("log", _online(x, j))), picked)
    return kernel("ce", [out("loss", (i,), term, "f32")], {i: 1, j: 128}, (j,))


def layernorm(n: int = 23, c: int = 300, dtype: str = "bf16", stream: bool = False) -> Kernel:
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j, dtype=dtype)
    mean = op("div", Reduce("sum", j, x), c)
    d = op("sub", x, mean)
    var = op("div", Reduce("sum", j, op("mul", d, d)), c)
    y = op("mul", d, op("rsqrt", op("add", var, 1e-5)))
    term = op("add", op("mul", y, load("w", j, dtype=dtype)), load("b", j, dtype=dtype))
    tiles = {i: 4, j: 128 if stream else max(c, 512)}
    return kernel("ln", [out("y", (i, j), term, dtype)], tiles, (j,) if stream else ())


def rms_residual(n: int = 23, c: int = 304, dtype: str = "bf16") -> Kernel:
    i, j = ax("n", n), ax("c", c)
    h = Cast(dtype, op("add", load("x", i, j, dtype=dtype), load("r", i, j, dtype=dtype)))
    r = op("rsqrt", op("add", op("div", Reduce("sum", j, op("mul", h, h)), c), 1e-6))
    y = op("mul", op("mul", h, r), load("w", j, dtype=dtype))
    outputs = [out("h", (i, j), h, dtype), out("y", (i, j), y, dtype)]
    return kernel("rms", outputs, {i: 2, j: max(c, 512)})


def pointwise(n: int = 45, m: int = 70) -> Kernel:
    """Five operations with a broadcast and a transpose."""
    i, j = ax("n", n), ax("m", m)
    x, y = load("x", i, j), load("y", j, i)
    v = op("mul", op("sigmoid", op("add", x, load("b", j))), op("tanh", y))
    return kernel("pw", [out("z", (i, j), v)], {i: 32, j: 32})


def indexed(n: int = 45, m: int = 70) -> Kernel:
    """Affine maps with // and %, an offset that leaves the tensor, and a gather."""
    i, j = ax("n", n), ax("m", m)
    shifted = load("x", i, op("sub", Index(j), 3), shape=(n, m), dtype="f32")
    a = op("where", op("ge", Index(j), 3), shifted, 0.0)
    b = load("y", op("floordiv", Index(i), 4), op("mod", Index(j), 7), shape=(12, 7), dtype="f32")
    g = load("e", load("tok", i, dtype="i32"), j, shape=(9, m), dtype="f32")
    return kernel("ix", [out("z", (i, j), op("add", op("add", a, b), g), "f32")], {i: 8, j: 64})


def matmul(
    n: int = 70, m: int = 50, k: int = 100, dtype: str = "bf16", store: str = "f32"
) -> Kernel:
    i, j, d = ax("n", n), ax("m", m), ax("k", k)
    product = op("mul", load("a", i, d, dtype=dtype), load("b", d, j, dtype=dtype))
    term = Reduce("sum", d, product)
    return kernel("mm", [out("c", (i, j), term, store)], {i: 32, j: 32, d: 16}, (d,))


def gated(n: int = 40, m: int = 48, k: int = 64) -> Kernel:
    i, j, d = ax("n", n), ax("m", m), ax("k", k)
    x = load("x", i, d)
    g = Reduce("sum", d, op("mul", x, load("wg", d, j)))
    u = Reduce("sum", d, op("mul", x, load("wu", d, j)))
    term = op("mul", op("mul", g, op("sigmoid", g)), u)
    return kernel("gate", [out("y", (i, j), term)], {i: 32, j: 32, d: 32}, (d,))


def attention(
    t: int = 50,
    s: int = 70,
    d: int = 24,
    h: int = 4,
    group: int = 2,
    score: Callable[[Term, Axis, Axis], Term] | None = None,
    mask: Callable[[Term, Term], Term] | None = None,
    tile: int = 16,
) -> Kernel:
    hh, tt, ss, dd, ee = ax("h", h), ax("t", t), ax("s", s), ax("d", d), ax("e", d)
    hk = op("floordiv", Index(hh), group)
    k = load("k", hk, ss, dd, shape=(h // group, s, d))
    v = load("v", hk, ss, ee, shape=(h // group, s, d))
    x = op("mul", Reduce("sum", dd, op("mul", load("q", hh, tt, dd), k)), d**-0.5)
    if score:
        x = score(x, tt, ss)
    if mask:
        x = op("where", mask(Index(tt), Index(ss)), x, -INF)
    term = op("div", _online(x, ss, v), _online(x, ss))
    tiles = {hh: 1, tt: tile, ss: tile, dd: 32, ee: 32}
    return kernel("att", [out("o", (hh, tt, ee), term)], tiles, (ss,))


def arguments(n: int = 30, c: int = 77) -> Kernel:
    """Every monoid in one pass."""
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j, dtype="f32")
    outputs = [
        out("amax", (i,), Reduce("argmax", j, x), "i32"),
        out("amin", (i,), Reduce("argmin", j, x), "i64"),
        out("high", (i,), Reduce("any", j, op("gt", x, 2.0)), "bool"),
        out("low", (i,), Reduce("all", j, op("lt", x, 2.0)), "bool"),
        out("p", (i,), Reduce("prod", j, op("add", op("mul", x, 0.01), 1.0)), "f32"),
        out("lo", (i,), Reduce("min", j, x), "f32"),
        out("count", (i,), Reduce("sum", j, op("where", op("gt", x, 0.0), 1, 0)), "i32"),
    ]
    return kernel("arg", outputs, {i: 4, j: 32}, (j,))


def chain(n: int = 40, m: int = 36, k: int = 28, p: int = 20) -> Kernel:
    """(a b) c with the middle axis streamed and the first product inside."""
    i, j, d, q = ax("n", n), ax("m", m), ax("k", k), ax("p", p)
    ab = Reduce("sum", d, op("mul", load("a", i, d), load("b", d, j)))
    term = Reduce("sum", j, op("mul", op("tanh", ab), load("c", j, q)))
    return kernel("chain", [out("y", (i, q), term)], {i: 16, j: 16, d: 32, q: 32}, (j,))


def nested(n: int = 12, m: int = 20, k: int = 45) -> Kernel:
    """A loop in a loop: sum over j of exp(max over k of a[i,j,k])."""
    i, j, d = ax("n", n), ax("m", m), ax("k", k)
    inner = Reduce("max", d, load("a", i, j, d, dtype="f32"))
    term = Reduce("sum", j, op("exp", inner))
    return kernel("nest", [out("y", (i,), term, "f32")], {i: 4, j: 8, d: 16}, (j, d))


def columns(n: int = 75, c: int = 40) -> Kernel:
    """Folds along an axis that memory does not run along."""
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j, dtype="f32")
    outputs = [
        out("total", (j,), Reduce("sum", i, x), "f32"),
        out("place", (j,), Reduce("argmax", i, x), "i32"),
        out("most", (j,), Reduce("max", i, op("mul", x, load("b", j, dtype="f32"))), "f32"),
    ]
    return kernel("columns", outputs, {i: 16, j: 32}, (i,))


def causal(t: Term, s: Term) -> Term:
    return op("le", s, t)


def offset_causal(t: Term, s: Term) -> Term:
    return op("le", s, op("add", t, 20))


def window(t: Term, s: Term) -> Term:
    return op("and", op("le", s, t), op("lt", op("sub", t, s), 9))


def prefix(t: Term, s: Term) -> Term:
    return op("or", op("lt", s, 5), op("le", s, t))


def softcap(x: Term, t: Axis, s: Axis) -> Term:
    return op("mul", op("tanh", op("div", x, 5.0)), 5.0)


def slope(x: Term, t: Axis, s: Axis) -> Term:
    return op("add", x, op("mul", op("sub", Index(s), Index(t)), 0.03))


CASES: dict[str, Callable[[], Kernel]] = {
    "softmax": softmax,
    "softmax_f32": lambda: softmax("f32"),
    "softmax_streamed": lambda: softmax(stream=True),
    "softmax_online": softmax_online,
    "logsumexp": logsumexp,
    "cross_entropy": cross_entropy,
    "layernorm": layernorm,
    "layernorm_streamed": lambda: layernorm(stream=True),
    "rms_residual": rms_residual,
    "pointwise": pointwise,
    "indexed": indexed,
    "matmul": matmul,
    "matmul_f32": lambda: matmul(dtype="f32"),
    "matmul_f64": lambda: matmul(dtype="f64", store="f64"),
    "gated": gated,
    "attention": attention,
    "attention_causal": lambda: attention(mask=causal),
    "attention_offset": lambda: attention(mask=offset_causal),
    "attention_window": lambda: attention(t=70, mask=window),
    "attention_prefix": lambda: attention(t=70, mask=prefix),
    "attention_softcap_slope": lambda: attention(
        mask=causal, score=lambda x, t, s: slope(softcap(x, t, s), t, s)
    ),
    "monoids": arguments,
    "chain": chain,
    "nested": nested,
    "columns": columns,
}


def masked_softmax(n: int = 9, c: int = 130) -> Kernel:
    """Row 0 has nothing left; a partial state may hold nothing but masked elements."""
    i, j = ax("n", n), ax("c", c)
    kept = op("lt", Index(j), op("mul", Index(i), 16))
    x = op("where", kept, load("x", i, j, dtype="f32"), -INF)
    m = Reduce("max", j, x)
    term = op("div", op("exp", op("sub", x, m)), _online(x, j))
    return kernel("masked", [out("y", (i, j), term, "f32")], {i: 1, j: 64}, (j,))


def mixed_types(n: int = 11, c: int = 96) -> Kernel:
    """Buffers of every type side by side, in and out."""
    i, j = ax("n", n), ax("c", c)
    terms = {d: load(f"x{d}", i, j, dtype=d) for d in TYPES}
    total: Term = Const(0.0)
    for d in ("f32", "bf16", "f16", "f8e4m3", "f8e5m2", "tf32"):
        total = op("add", total, terms[d])
    whole = op("add", terms["i32"], op("add", terms["i8"], terms["i64"]))
    mixed = op("where", terms["bool"], total, op("mul", total, 2.0))
    outputs = [
        *(out(f"y{d}", (i, j), mixed, d) for d in ("f32", "bf16", "f16", "f8e4m3", "f8e5m2")),
        *(out(f"y{d}", (i, j), whole, d) for d in ("i32", "i64", "i8")),
        out("yf64", (i, j), op("mul", terms["f64"], terms["f64"]), "f64"),
        out("ybool", (i, j), op("gt", total, 0.0), "bool"),
    ]
    return kernel("types", outputs, {i: 4, j: 96})


TYPES = ("f64", "f32", "tf32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i8", "bool")

ROW_CASES: dict[str, Callable[[], Kernel]] = {
    "masked": masked_softmax,
    "types": mixed_types,
    "wide": lambda: softmax(n=3, c=4096),
    "warps_f32": lambda: layernorm(n=3, c=2048, dtype="f32"),
    "streamed_online": lambda: softmax_online(n=2, c=70000),
    "streamed_two_reads": lambda: rms_residual(n=2, c=40960),
    "narrow": lambda: softmax(n=70, c=6),
    "one_column": lambda: softmax(n=70, c=1),
    "long_elementwise": lambda: pointwise(n=3, m=9000),
    "transpose_aligned": lambda: pointwise(n=96, m=160),
    "transpose_odd": lambda: pointwise(n=67, m=33),
}
