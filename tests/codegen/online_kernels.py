"""Online sums built by hand: second moments, affine carriers, carriers that are online themselves,
values at an extreme. Extents are prime to the tiles, so that partial states differ in what they
hold, and some hold nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sample_kernels import INF, ax, columns, kernel, load, op, out

from nautile.extract.kernel import Kernel
from nautile.terms import Axis, Before, Const, Index, Online, Reduce, Running, Term

ONE = Const(1.0)


def moments(x: Term, j: Axis, keep: Term | None = None) -> tuple[Term, Term, Term]:
    """(count, sum, sum of squared distances from the mean) of x along j in one pass by the pairwise
    update of Chan, Golub and LeVeque (1983); only positions where `keep` holds count."""
    one = Const(1) if keep is None else op("where", keep, 1.0, 0.0)
    kept = x if keep is None else op("where", keep, x, 0.0)
    count, total = Reduce("sum", j, one), Reduce("sum", j, kept)
    new = op("div", Running(total), Running(count))
    old = op("div", Before(total), Before(count))
    far = op("sub", old, new)
    moved = op("mul", Before(count), op("mul", far, far))
    offset = op("where", op("eq", Before(count), 0), 0.0, moved)
    d = op("sub", x, new)
    square = op("mul", d, d)
    body = square if keep is None else op("where", keep, square, 0.0)
    return count, total, Online(j, ONE, body, offset)


def mixed_moment(x: Term, y: Term, j: Axis) -> Term:
    """sum[j]((x - mean(x)) * y): an affine carrier."""
    count, total = Reduce("sum", j, Const(1)), Reduce("sum", j, x)
    new = op("div", Running(total), Running(count))
    old = op("div", Before(total), Before(count))
    moved = op("mul", op("sub", old, new), Before(Reduce("sum", j, y)))
    offset = op("where", op("eq", Before(count), 0), 0.0, moved)
    return Online(j, ONE, op("mul", op("sub", x, new), y), offset)


def variance(n: int = 13, c: int = 333, dtype: str = "f32", mean: float = 0.0) -> Kernel:
    i, j = ax("n", n), ax("c", c)
    x = op("add", load("x", i, j, dtype=dtype), mean)
    _, total, squares = moments(x, j)
    outputs = [
        out("mu", (i,), op("div", total, c), "f32"),
        out("var", (i,), op("div", squares, c), "f32"),
    ]
    return kernel("variance", outputs, {i: 2, j: 64}, (j,))


def standardised(n: int = 9, c: int = 201, dtype: str = "bf16") -> Kernel:
    """LayerNorm with its statistics in one pass."""
    i, j = ax("n", n), ax("c", c)
    x = load("x", i, j, dtype=dtype)
    _, total, squares = moments(x, j)
    spread = op("rsqrt", op("add", op("div", squares, c), 1e-5))
    y = op("mul", op("sub", x, op("div", total, c)), spread)
    term = op("add", op("mul", y, load("w", j, dtype=dtype)), load("b", j, dtype=dtype))
    return kernel("standard", [out("y", (i, j), term, dtype)], {i: 2, j: 64}, (j,))


def masked_variance(n: int = 9, c: int = 130) -> Kernel:
    """Row 0 keeps nothing (0/0, as the source has it), row 1 sixteen elements, and so on."""
    i, j = ax("n", n), ax("c", c)
    keep = op("lt", Index(j), op("mul", Index(i), 16))
    count, _, squares = moments(load("x", i, j, dtype="f32"), j, keep)
    return kernel(
        "maskvar", [out("v", (i,), op("div", squares, count), "f32")], {i: 1, j: 32}, (j,)
    )


def covariance(n: int = 7, c: int = 150) -> Kernel:
    i, j = ax("n", n), ax("c", c)
    x, y = load("x", i, j, dtype="f32"), load("y", i, j, dtype="f32")
    outputs = [
        out("cov", (i,), mixed_moment(x, y, j), "f32"),
        out("var", (i,), moments(x, j)[2], "f32"),
    ]
    return kernel("cov", outputs, {i: 2, j: 32}, (j,))


def weighted_moment(n: int = 6, c: int = 170) -> Kernel:
    """sum[j](p (y - mean)^2) with p = exp(x - max) and mean = sum(p y) / sum(p): carriers that are
    online themselves, a repair and an offset in one."""
    i, j = ax("n", n), ax("c", c)
    x, y = load("x", i, j, dtype="f32"), load("y", i, j, dtype="f32")
    m = Reduce("max", j, x)
    p = op("exp", op("sub", x, Running(m)))
    repair = op("exp", op("sub", Before(m), Running(m)))
    weight, first = Online(j, repair, p), Online(j, repair, op("mul", p, y))
    new = op("div", Running(first), Running(weight))
    old = op("div", Before(first), Before(weight))
    far = op("sub", old, new)
    moved = op("mul", op("mul", repair, Before(weight)), op("mul", far, far))
    offset = op("where", op("eq", Before(weight), 0.0), 0.0, moved)
    d = op("sub", y, new)
    second = Online(j, repair, op("mul", p, op("mul", d, d)), offset)
    outputs = [
        out("mean", (i,), op("div", first, weight), "f32"),
        out("spread", (i,), op("div", second, weight), "f32"),
    ]
    return kernel("weighted", outputs, {i: 2, j: 32}, (j,))


def at_extreme(n: int = 6, c: int = 150, monoid: str = "argmax", ties: bool = True) -> Kernel:
    """The extreme, its first position, and another tensor's value there, in one pass."""
    i, j = ax("n", n), ax("c", c)
    x, y = load("x", i, j, dtype="f32"), load("y", i, j, dtype="bf16")
    x = op("round", op("mul", x, 2.0)) if ties else x
    place = Reduce(monoid, j, x)
    same = op("where", op("eq", Before(place), Running(place)), 1.0, 0.0)
    there = op("where", op("eq", Index(j), Running(place)), y, 0.0)
    outputs = [
        out("value", (i,), Reduce("max" if monoid == "argmax" else "min", j, x), "f32"),
        out("place", (i,), place, "i32"),
        out("other", (i,), Online(j, same, there), "f32"),
    ]
    return kernel("extreme", outputs, {i: 2, j: 32}, (j,))


def moved_product(n: int = 20, c: int = 90, d: int = 12) -> Kernel:
    """A contraction with an affine carrier: sum[j]((x - mean(x)) * v[j,e])."""
    i, j, e = ax("n", n), ax("c", c), ax("e", d)
    x, v = load("x", i, j, dtype="f32"), load("v", j, e, dtype="f32")
    return kernel("product", [out("y", (i, e), mixed_moment(x, v, j), "f32")], {i: 8, j: 16}, (j,))


def followed_product(n: int = 12, c: int = 60, d: int = 10) -> Kernel:
    """A contraction whose running value other terms follow. A sum of squared running products has
    no block form, so the tile is one position."""
    i, j, e = ax("n", n), ax("c", c), ax("e", d)
    x, v = load("x", i, j, dtype="f32"), load("v", j, e, dtype="f32")
    product = Running(Reduce("sum", j, op("mul", x, v)))
    term = Online(j, ONE, op("mul", product, product))
    outputs = [
        out("y", (i, e), term, "f32"),
        out("z", (i, e), Reduce("sum", j, op("mul", x, v)), "f32"),
    ]
    return kernel("followed", outputs, {i: 8, j: 1, e: d}, (j,))


def logsumexp_of_rows(n: int = 7, c: int = 140) -> Kernel:
    """A shifted sum over rows that a mask may empty up to one element."""
    i, j = ax("n", n), ax("c", c)
    kept = op("le", Index(j), op("mul", Index(i), 20))
    x = op("where", kept, load("x", i, j, dtype="f32"), -INF)
    m = Reduce("max", j, x)
    s = Online(j, op("exp", op("sub", Before(m), Running(m))), op("exp", op("sub", x, Running(m))))
    return kernel(
        "rowslse", [out("y", (i,), op("add", m, op("log", s)), "f32")], {i: 2, j: 32}, (j,)
    )


def along_middle(n: int, c: int, e: int, dtype: str = "f32", stream: int = 0) -> Kernel:
    """A softmax over the middle axis of a tensor."""
    i, j, v = ax("n", n), ax("c", c), ax("e", e)
    x = load("x", i, j, v, dtype=dtype)
    m = Reduce("max", j, x)
    p = op("exp", op("sub", x, m))
    term = op("div", p, Reduce("sum", j, p))
    tiles = {i: 1, j: stream or c, v: min(e, 32)}
    return kernel("middle", [out("y", (i, j, v), term, dtype)], tiles, (j,) if stream else ())


def middle_moments(n: int, c: int, e: int, dtype: str = "bf16") -> Kernel:
    """Mean and variance over the middle axis, as a batch normalisation has them."""
    i, j, v = ax("n", n), ax("c", c), ax("e", e)
    _, total, squares = moments(load("x", i, j, v, dtype=dtype), j)
    outputs = [
        out("mu", (i, v), op("div", total, c), "f32"),
        out("var", (v, i), op("div", squares, c), "f32"),
    ]
    return kernel("middlevar", outputs, {i: 1, j: 16, v: min(e, 32)}, (j,))


def merged_attention(n: int = 5, p: int = 9, e: int = 32, dtype: str = "bf16") -> Kernel:
    """Partial states of a split attention, the chunk before the contiguous axis, merged."""
    i, c, v = ax("n", n), ax("p", p), ax("e", e)
    top, weight = load("top", i, c, dtype="f32"), load("weight", i, c, dtype="f32")
    m = Reduce("max", c, top)
    r = op("exp", op("sub", top, m))

    def merged(state: Term) -> Term:
        return Reduce("sum", c, op("where", op("eq", r, 0.0), 0.0, op("mul", state, r)))

    term = op("div", merged(load("part", i, c, v, dtype="f32")), merged(weight))
    outputs = [
        out("o", (i, v), term, dtype),
        out("lse", (i,), op("add", m, op("log", merged(weight))), "f32"),
    ]
    return kernel("merged", outputs, {i: 1, c: p, v: e})


def merged_places(n: int = 5, p: int = 9, e: int = 40) -> Kernel:
    """Partial states of a split argmax: the place in the first chunk that holds the extreme."""
    i, c, v = ax("n", n), ax("p", p), ax("e", e)
    best = load("best", i, c, v, dtype="f32")
    first = Reduce("argmax", c, op("round", best))
    here = op("eq", Index(c), first)
    term = Reduce("sum", c, op("where", here, load("place", i, c, v, dtype="i32"), 0))
    return kernel("places", [out("y", (i, v), term, "i32")], {i: 1, c: p, v: e})


def middle_product(n: int = 4, c: int = 50, e: int = 24) -> Kernel:
    """An affine carrier whose weights do not vary along the lanes."""
    i, j, v = ax("n", n), ax("c", c), ax("e", e)
    x, w = load("x", i, j, v, dtype="f32"), load("w", i, j, dtype="f32")
    biased = op("add", op("mul", x, load("s", v, dtype="f32")), load("b", i, dtype="f32"))
    return kernel(
        "lanes", [out("y", (i, v), mixed_moment(w, biased, j), "f32")], {i: 1, j: 16, v: 8}, (j,)
    )


LANES: dict[str, Callable[[], Kernel]] = {
    "middle": lambda: along_middle(3, 20, 48),
    "middle_odd": lambda: along_middle(3, 37, 35, "bf16"),
    "middle_three": lambda: along_middle(5, 66, 3),
    "middle_wide": lambda: along_middle(2, 9, 512, "bf16"),
    "middle_streamed": lambda: along_middle(2, 700, 64, "bf16", stream=64),
    "moments": lambda: middle_moments(2, 150, 64),
    "moments_odd": lambda: middle_moments(3, 37, 21, "f16"),
    "moments_long": lambda: middle_moments(1, 9000, 6, "f32"),
    "moments_one": lambda: middle_moments(1, 1, 40, "f32"),
    "moments_filled": lambda: middle_moments(2, 60, 160),
    "middle_filled": lambda: along_middle(3, 40, 96, "f16", stream=16),
    "merged_filled": lambda: merged_attention(40, 12, 32),
    "merged": merged_attention,
    "merged_two": lambda: merged_attention(30, 2, 128),
    "merged_many": lambda: merged_attention(2, 256, 128, "f32"),
    "places": merged_places,
    "lanes": middle_product,
    "columns": lambda: columns(300, 130),
}


def grouped(
    n: int = 3, g: int = 4, c: int = 5, s: int = 14, dtype: str = "bf16", stream: bool = False
) -> Kernel:
    """A group normalisation: statistics over two axes, a scale for each position of one."""
    i, k, a, b = ax("n", n), ax("g", g), ax("c", c), ax("s", s)
    x = load("x", i, k, a, b, dtype=dtype)
    size = float(c * s)
    mean = op("div", Reduce("sum", a, Reduce("sum", b, x)), size)
    d = op("sub", x, mean)
    var = op("div", Reduce("sum", a, Reduce("sum", b, op("mul", d, d))), size)
    y = op("mul", d, op("rsqrt", op("add", var, 1e-5)))
    term = op("add", op("mul", y, load("w", k, a, dtype=dtype)), load("b", k, a, dtype=dtype))
    tiles = {i: 1, k: 1, a: 2 if stream else c, b: s}
    return kernel("grouped", [out("y", (i, k, a, b), term, dtype)], tiles, (a,) if stream else ())


def nested_moments(
    n: int = 3, c: int = 6, s: int = 50, dtype: str = "bf16", counted: bool = False
) -> Kernel:
    """Variance over two axes in one pass over the outer one."""
    i, a, b = ax("n", n), ax("c", c), ax("s", s)
    x = load("x", i, a, b, dtype=dtype)
    ones: Term = Reduce("sum", b, Const(1)) if counted else Const(s)
    count, total = Reduce("sum", a, ones), Reduce("sum", a, Reduce("sum", b, x))
    new = op("div", Running(total), Running(count))
    old = op("div", Before(total), Before(count))
    far = op("sub", old, new)
    moved = op("mul", Before(count), op("mul", far, far))
    offset = op("where", op("eq", Before(count), 0), 0.0, moved)
    d = op("sub", x, new)
    squares = Online(a, ONE, Reduce("sum", b, op("mul", d, d)), offset)
    outputs = [
        out("mu", (i,), op("div", total, c * s), "f32"),
        out("var", (i,), op("div", squares, c * s), "f32"),
    ]
    return kernel("nestedvar", outputs, {i: 1, a: 2, b: s}, (a,))


def nested_softmax(n: int = 4, c: int = 7, s: int = 24, stream: bool = True) -> Kernel:
    """exp(x - max) / sum over two axes."""
    i, a, b = ax("n", n), ax("c", c), ax("s", s)
    x = load("x", i, a, b)
    m = Reduce("max", a, Reduce("max", b, x))
    repair = op("exp", op("sub", Before(m), Running(m)))
    total = Online(a, repair, Reduce("sum", b, op("exp", op("sub", x, Running(m)))))
    term = op("div", op("exp", op("sub", x, m)), total)
    return kernel("nestedsoft", [out("y", (i, a, b), term)], {i: 1, a: 2, b: s}, (a,))


def channels(
    n: int = 5, c: int = 6, h: int = 4, w: int = 8, dtype: str = "bf16", last: bool = False
) -> Kernel:
    """Mean and spread of each channel over a batch of images: three axes, one of them before the
    channel's; or the channel's is the last one."""
    i, k, a, b = ax("n", n), ax("c", c), ax("h", h), ax("w", w)
    x = load("x", i, a, b, k, dtype=dtype) if last else load("x", i, k, a, b, dtype=dtype)

    def mean(y: Term) -> Term:
        total = Reduce("sum", i, Reduce("sum", a, Reduce("sum", b, y)))
        return op("div", total, float(n * h * w))

    mu = mean(x)
    d = op("sub", x, mu)
    outputs = [out("mu", (k,), mu, "f32"), out("var", (k,), mean(op("mul", d, d)), "f32")]
    return kernel("channels", outputs, {i: n, k: 1, a: h, b: w})


JOINED: dict[str, Callable[[], Kernel]] = {
    "grouped": grouped,
    "grouped_aligned": lambda: grouped(s=16),
    "grouped_f32": lambda: grouped(c=3, s=64, dtype="f32", stream=True),
    "grouped_odd": lambda: grouped(c=3, s=7, dtype="f16"),
    "moments": nested_moments,
    "moments_counted": lambda: nested_moments(s=64, counted=True),
    "softmax": nested_softmax,
    "channels": channels,
    "channels_odd": lambda: channels(3, 5, 3, 5, "f32"),
    "channels_last": lambda: channels(last=True),
}


def merged_softmax(n: int = 3, p: int = 9, c: int = 301, dtype: str = "bf16") -> Kernel:
    """The second launch of a split softmax: states are merged, then elements follow."""
    i, k, j = ax("n", n), ax("p", p), ax("c", c)
    top, part = load("top", i, k, dtype="f32"), load("part", i, k, dtype="f32")
    m = Reduce("max", k, top)
    total = Reduce("sum", k, op("mul", part, op("exp", op("sub", top, m))))
    x = load("x", i, j, dtype=dtype)
    term = op("div", op("exp", op("sub", x, m)), total)
    outputs = [
        out("y", (i, j), term, dtype),
        out("lse", (i,), op("add", m, op("log", total)), "f32"),
    ]
    return kernel("second", outputs, {i: 1, j: 64, k: p})


def merged_moments(n: int = 40, p: int = 5, c: int = 30) -> Kernel:
    """States of a variance merged by the pairwise update, then the elements standardised."""
    i, k, j = ax("n", n), ax("p", p), ax("c", c)
    count, total = load("count", i, k, dtype="i32"), load("total", i, k, dtype="f32")
    mean = op("div", total, op("max", count, 1))
    whole, every = Reduce("sum", k, total), Reduce("sum", k, count)
    far = op("sub", mean, op("div", whole, every))
    moved = op("mul", count, op("mul", far, far))
    squares = Reduce("sum", k, op("add", op("abs", load("m2", i, k, dtype="f32")), moved))
    spread = op("rsqrt", op("add", op("div", squares, every), 1e-5))
    x = load("x", j, i, dtype="f32")
    term = op("mul", op("sub", x, op("div", whole, every)), spread)
    return kernel("states", [out("y", (i, j), term, "f32")], {i: 8, j: 16, k: p})


def merged_beside(n: int = 7, p: int = 9, c: int = 301, stream: bool = False) -> Kernel:
    """States of a logsumexp are merged, and the picked logit is a product over another axis."""
    i, k, j = ax("n", n), ax("p", p), ax("c", c)
    top, part = load("top", i, k, dtype="f32"), load("part", i, k, dtype="f32")
    m = Reduce("max", k, top)
    total = Reduce("sum", k, op("mul", op("abs", part), op("exp", op("sub", top, m))))
    target = load("t", i, dtype="i32")
    w = load("w", target, j, shape=(9, c))
    picked = Reduce("sum", j, op("mul", load("x", i, j), w))
    lse = op("add", m, op("log", total))
    outputs = [out("y", (i,), op("sub", lse, picked), "f32"), out("z", (i,), lse, "f32")]
    tiles = {i: 4, j: 64 if stream else c, k: p}
    return kernel("beside", outputs, tiles, (j,) if stream else ())


SHARED: dict[str, Callable[[], Kernel]] = {
    "softmax": merged_softmax,
    "softmax_aligned": lambda: merged_softmax(2, 128, 4096, "f32"),
    "softmax_long": lambda: merged_softmax(1, 300, 20000),
    "softmax_short": lambda: merged_softmax(70, 2, 3, "f32"),
    "moments": merged_moments,
}
BESIDE: dict[str, Callable[[], Kernel]] = {
    "picked": merged_beside,
    "picked_aligned": lambda: merged_beside(3, 128, 1024),
    "picked_streamed": lambda: merged_beside(2, 20, 40000, True),
}

ONLINE: dict[str, Callable[[], Kernel]] = {
    "variance": variance,
    "variance_far": lambda: variance(mean=1000.0),
    "variance_short": lambda: variance(n=40, c=5),
    "variance_one": lambda: variance(n=40, c=1),
    "variance_wide": lambda: variance(n=3, c=5000, dtype="bf16"),
    "variance_long": lambda: variance(n=2, c=30000),
    "standardised": standardised,
    "standardised_f32": lambda: standardised(c=2048, dtype="f32"),
    "standardised_long": lambda: standardised(n=2, c=40960, dtype="f32"),
    "masked_variance": masked_variance,
    "covariance": covariance,
    "covariance_long": lambda: covariance(n=1, c=16004),
    "weighted_moment": weighted_moment,
    "weighted_moment_long": lambda: weighted_moment(n=1, c=16004),
    "at_maximum": at_extreme,
    "at_minimum": lambda: at_extreme(monoid="argmin"),
    "at_maximum_long": lambda: at_extreme(n=1, c=33000, ties=False),
    "moved_product": moved_product,
    "followed_product": followed_product,
    "logsumexp_of_rows": logsumexp_of_rows,
}
