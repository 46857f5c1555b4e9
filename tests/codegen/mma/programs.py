"""Tile programs written by hand: what the tensor-core path must cover."""

from __future__ import annotations

from collections.abc import Callable

from nautile.codegen.tile import Bounds, Fold, Loop, Map, Mma, Read, Ref, Tile, TileProgram, Write
from nautile.terms import Apply, Axis, Buffer, Const, Index, Term, apply

NEG_INF = Const(float("-inf"))


def mul(a: Term, b: Term | float) -> Term:
    return apply("mul", a, b if isinstance(b, Term) else Const(b))


def add(a: Term, b: Term | float | int) -> Term:
    return apply("add", a, b if isinstance(b, Term) else Const(b))


def gelu(x: Term) -> Term:
    cube = mul(mul(x, x), x)
    inner = mul(add(x, mul(cube, 0.044715)), 1.5957691216057308)
    return mul(x, apply("sigmoid", inner))


def gemm(
    m: int = 256,
    n: int = 256,
    k: int = 256,
    tile: tuple[int, int, int] = (128, 128, 64),
    *,
    layout: str = "mk,nk",
    dtype: str = "bf16",
    operand: str = "",
    out: str = "bf16",
    stored: str = "",
    right: str = "",
    epilogue: Callable[[Term], Term] | None = None,
    bias: bool = False,
    residual: bool = False,
    prologue: bool = False,
    out_axes: str = "mn",
    batch: int = 0,
    group: int = 1,
) -> TileProgram:
    """C = epilogue(sum over k of A B); `layout` gives the storage order of A and B, `stored` and
    `right` their types where these are not the operands'."""
    extents = {"m": m, "n": n, "k": k, "h": batch}
    axes = {name: Axis(name, 0, extent) for name, extent in extents.items()}
    stored = stored or dtype
    operand = operand or dtype
    extra = "h" if batch else ""

    def read(name: str, order: str, kind: str, g: int = 1) -> tuple[Read, Tile]:
        order = (extra if name in "ABC" else "") + order
        shape = [axes[c].extent // (g if c == "h" else 1) for c in order]
        where: list[Term] = [
            apply("floordiv", Index(axes[c]), Const(g)) if c == "h" and g > 1 else Index(axes[c])
            for c in order
        ]
        tile_ = Tile(name.lower(), tuple(axes[c] for c in order), kind)
        return Read(tile_, Buffer(name, tuple(shape), kind), tuple(where)), tile_

    left_order, right_order = layout.split(",")
    read_a, a = read("A", left_order, stored)
    read_b, b = read("B", right_order, right or stored, group)
    inner: list[object] = [read_a, read_b]
    if prologue:
        read_r, r = read("R", "m", "f32")
        read_g, g = read("G", "k", "bf16")
        scaled = Tile("scaled", a.axes, "f32")
        inner += [read_r, read_g, Map(scaled, mul(mul(Ref(a), Ref(r)), Ref(g)))]
        a = scaled
    out_order = extra + out_axes
    kind_axes = tuple(axes[c] for c in extra + "mn")
    acc = Tile("acc", kind_axes)
    inner.append(Mma(acc, a, b, (axes["k"],), operand))
    body: list[object] = [Loop(axes["k"], tuple(inner))]
    value: Term = Ref(acc)
    if bias:
        read_bias, t = read("bias", "n", "bf16")
        body.append(read_bias)
        value = add(value, Ref(t))
    if epilogue:
        value = epilogue(value)
    if residual:
        read_x, t = read("X", "mn", "bf16")
        body.append(read_x)
        value = add(value, Ref(t))
    y = Tile("y", kind_axes)
    target = Buffer("C", tuple(axes[c].extent for c in out_order), out)
    body += [Map(y, value), Write(target, tuple(Index(axes[c]) for c in out_order), y)]
    tiles = {axes["m"]: tile[0], axes["n"]: tile[1], axes["k"]: tile[2]}
    grid = (axes["m"], axes["n"])
    if batch:
        tiles[axes["h"]] = 1
        grid = (axes["h"], *grid)
    return TileProgram("gemm", tiles, grid, tuple(body))  # type: ignore[arg-type]


def gated(
    m: int = 256, n: int = 256, k: int = 256, tile: tuple[int, int, int] = (128, 64, 64)
) -> TileProgram:
    """silu(A B1) * (A B2): two contractions that share their left operand."""
    am, an, ak = Axis("m", 0, m), Axis("n", 0, n), Axis("k", 0, k)
    a = Tile("a", (am, ak), "bf16")
    body: list[object] = [Read(a, Buffer("A", (m, k), "bf16"), (Index(am), Index(ak)))]
    accumulators = []
    for name in ("B1", "B2"):
        b = Tile(name.lower(), (an, ak), "bf16")
        acc = Tile(f"acc_{name}", (am, an))
        body.append(Read(b, Buffer(name, (n, k), "bf16"), (Index(an), Index(ak))))
        body.append(Mma(acc, a, b, (ak,), "bf16"))
        accumulators.append(acc)
    x, y = (Ref(t) for t in accumulators)
    out = Tile("y", (am, an))
    return TileProgram(
        "gated",
        {am: tile[0], an: tile[1], ak: tile[2]},
        (am, an),
        (
            Loop(ak, tuple(body)),  # type: ignore[arg-type]
            Map(out, mul(mul(x, apply("sigmoid", x)), y)),
            Write(Buffer("C", (m, n), "bf16"), (Index(am), Index(an)), out),
        ),
    )


def beside(
    m: int = 256, n: int = 136, k: int = 200, r: int = 16, tile: tuple[int, int] = (128, 128)
) -> TileProgram:
    """A B + 2 U V: a walked product, and a short one of another depth beside it."""
    am, an, ak, ar = Axis("m", 0, m), Axis("n", 0, n), Axis("k", 0, k), Axis("r", 0, r)
    sums = []
    bodies: list[list[object]] = []
    for x, y, depth in (("A", "B", ak), ("U", "V", ar)):
        a, b = Tile(x.lower(), (am, depth), "bf16"), Tile(y.lower(), (an, depth), "bf16")
        acc = Tile(f"acc_{x}", (am, an))
        read = Read(a, Buffer(x, (m, depth.extent), "bf16"), (Index(am), Index(depth)))
        other = Read(b, Buffer(y, (n, depth.extent), "bf16"), (Index(an), Index(depth)))
        bodies.append([read, other, Mma(acc, a, b, (depth,), "bf16")])
        sums.append(Ref(acc))
    out = Tile("c", (am, an))
    return TileProgram(
        "beside",
        {am: tile[0], an: tile[1], ak: 64, ar: 16},
        (am, an),
        (
            Loop(ak, tuple(bodies[0])),  # type: ignore[arg-type]
            *bodies[1],  # type: ignore[arg-type]
            Map(out, add(sums[0], mul(sums[1], 2.0))),
            Write(Buffer("C", (m, n), "bf16"), (Index(am), Index(an)), out),
        ),
    )


Score = Callable[[Term, Term, Term, Term], Term]


def scaled(d: int) -> Score:
    return lambda s, q, t, h: mul(s, d**-0.5)


def causal(q: Term, t: Term) -> Term:
    return apply("le", t, q)


def window(size: int) -> Callable[[Term, Term], Term]:
    def inside(q: Term, t: Term) -> Term:
        return apply("and", causal(q, t), apply("lt", apply("sub", q, t), Const(size)))

    return inside


def attention(
    q: int = 256,
    t: int = 256,
    d: int = 64,
    e: int = 0,
    heads: int = 2,
    group: int = 1,
    tile: tuple[int, int] = (64, 64),
    *,
    score: Score | None = None,
    mask: Callable[[Term, Term], Term] | None = None,
    bounds: bool = True,
    window_size: int = 0,
    dtype: str = "bf16",
    operand: str = "",
    out: str = "",
    activation: Callable[[Term], Term] | None = None,
    logsumexp: bool = False,
) -> TileProgram:
    """Streamed softmax attention of any score (or a plain activation instead of the softmax)."""
    e = e or d
    ah, aq, at = Axis("h", 0, heads), Axis("q", 0, q), Axis("t", 0, t)
    ad, ae = Axis("d", 0, d), Axis("e", 0, e)
    operand = operand or dtype
    hk: Term = Index(ah) if group == 1 else apply("floordiv", Index(ah), Const(group))
    qt, kt, vt = (
        Tile("qt", (ah, aq, ad), dtype),
        Tile("kt", (ah, at, ad), dtype),
        Tile("vt", (ah, at, ae), dtype),
    )
    read_q = Read(qt, Buffer("Q", (heads, q, d), dtype), (Index(ah), Index(aq), Index(ad)))
    kv = heads // group
    read_k = Read(kt, Buffer("K", (kv, t, d), dtype), (hk, Index(at), Index(ad)))
    read_v = Read(vt, Buffer("V", (kv, t, e), dtype), (hk, Index(at), Index(ae)))
    square, row, result = (ah, aq, at), (ah, aq), (ah, aq, ae)
    s, x, m, p = (Tile(n, square) for n in "sxmp")
    low, low_before, r, total = (Tile(n, row) for n in ("mu", "mu_before", "r", "l"))
    o, y = Tile("o", result), Tile("y", result)
    body: list[object] = [read_k, Mma(s, qt, kt, (ad,), operand)]
    body.append(Map(x, (score or scaled(d))(Ref(s), Index(aq), Index(at), Index(ah))))
    zero: Term = Const(0.0) if activation else NEG_INF
    masked: dict[str, Term] = {}
    last = x
    if mask and not activation:
        body.append(Map(m, apply("where", mask(Index(aq), Index(at)), Ref(x), zero)))
        masked["m"] = Ref(x)
        last = m
    repair = None
    if activation:
        value = activation(Ref(x))
        if mask:
            masked["p"] = value
            value = apply("where", mask(Index(aq), Index(at)), value, zero)
        body.append(Map(p, value))
    else:
        body += [
            Fold(low, "max", at, last, None, low_before),
            Map(r, apply("exp", apply("sub", Ref(low_before), Ref(low)))),
            Map(p, apply("exp", apply("sub", Ref(last), Ref(low)))),
            Fold(total, "sum", at, p, r),
        ]
        repair = r
    body += [read_v, Mma(o, p, vt, (at,), operand, repair)]
    limits = Bounds()
    if mask and bounds:
        block = Const(tile[1])
        stop = apply("floordiv", add(Index(aq), tile[0] - 1 + tile[1]), block)
        whole_stop = apply("floordiv", add(Index(aq), 1), block)
        first: Term | None = None
        whole_first: Term = Const(0)
        if window_size:
            first = apply("floordiv", add(Index(aq), 1 - window_size), block)
            edge = add(Index(aq), tile[0] - window_size + tile[1] - 1)
            whole_first = apply("floordiv", edge, block)
        limits = Bounds(first, stop, whole_first, whole_stop)
    final = Ref(o) if activation else apply("div", Ref(o), Ref(total))
    where = (Index(ah), Index(aq), Index(ae))
    tail: list[object] = [Map(y, final), Write(Buffer("O", (heads, q, e), out or dtype), where, y)]
    if logsumexp:
        lse = Tile("lse", row)
        tail.append(Map(lse, add(Ref(low), apply("log", Ref(total)))))
        tail.append(Write(Buffer("L", (heads, q), "f32"), (Index(ah), Index(aq)), lse))
    tiles = {ah: 1, aq: tile[0], at: tile[1], ad: d, ae: e}
    program = (read_q, Loop(at, tuple(body), limits), *tail)  # type: ignore[arg-type]
    return TileProgram("attention", tiles, (ah, aq), program, masked)  # type: ignore[arg-type]


def apply_all(operation: str, terms: list[Term]) -> Term:
    result = terms[0]
    for term in terms[1:]:
        result = Apply(operation, (result, term))
    return result
