"""What saturation must find, in terms built by hand, so that nothing but the e-graph is tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nautile import rules
from nautile.egraph import Limits, saturate
from nautile.snapshot import Node, Snapshot
from nautile.terms import Axis, Const, Output, Term, apply, reduce_

from .programs import (
    B,
    C,
    D,
    E,
    H,
    N,
    S,
    T,
    add,
    alibi,
    all_together,
    attention,
    causal,
    div,
    load,
    logsumexp,
    mul,
    output,
    scores,
    softcap,
    softmax,
    sub,
    total,
    window,
)

REAL = rules.load(classes=("exact", "real"))
EXACT = rules.load(classes=("exact",))


def run(outputs: tuple[Output, ...], chosen: tuple[rules.Rule, ...] = REAL) -> Snapshot:
    return saturate(outputs, chosen, in_process=True)


def nodes(snapshot: Snapshot, kind: str) -> Iterator[tuple[int, Node]]:
    return ((c, n) for c, ns in snapshot.classes.items() for n in ns if n.kind == kind)


def holds(snapshot: Snapshot, where: int, *names: str) -> list[Node]:
    """The nodes of a class that apply one of the operations."""
    return [n for n in snapshot.classes[where] if n.payload in names]


def reads(snapshot: Snapshot, where: int, allowed: set[int]) -> bool:
    """True when a class can be computed without any reduction outside `allowed`."""
    done: set[int] = set()
    changed = True
    while changed:
        changed = False
        for c, ns in snapshot.classes.items():
            ready = any(
                (n.kind not in ("reduce", "online") or c in allowed)
                and (n.kind in ("reduce", "online", "running", "before") or done >= {*n.children})
                for n in ns
            )
            if ready and c not in done:
                done.add(c)
                changed = True
    return where in done


def single_pass(snapshot: Snapshot, axis: Axis) -> bool:
    """True when the first root is made from online sums and maxima over `axis` whose bodies hold no
    finished reduction over it, and from nothing else over it."""
    streamed = {c for c, n in nodes(snapshot, "online") if n.payload == axis}
    streamed |= {c for c, n in nodes(snapshot, "reduce") if n.payload == ("max", axis)}
    other = {c for c, n in nodes(snapshot, "reduce") if n.payload[1] != axis}
    bodies = [n.children[1] for _, n in nodes(snapshot, "online") if n.payload == axis]
    inner = any(reads(snapshot, b, other) for b in bodies)
    return inner and reads(snapshot, snapshot.roots[0], streamed | other)


X = scores()
SCORES: dict[str, Term] = {
    "plain": X,
    "causal": causal(X),
    "softcap": softcap(X),
    "alibi": alibi(X),
    "window": window(causal(X)),
    "grouped": scores(groups=4),
}
ATTENTION = {name: attention(x, 4 if name == "grouped" else 1) for name, x in SCORES.items()}
ATTENTION["all"] = all_together()


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_becomes_one_pass(name: str) -> None:
    snapshot = run(output("o", ATTENTION[name], B, H, T, E))
    assert single_pass(snapshot, S)
    assert not single_pass(run(output("o", ATTENTION[name], B, H, T, E), EXACT), S)
    assert snapshot.report.stop == "saturated"
    assert snapshot.report.rows <= 200
    assert snapshot.report.iterations <= 10


def test_attention_divides_two_online_sums_at_the_end() -> None:
    """sum[s](p / l * V) is online(e * V) / online(e), both after one maximum."""
    snapshot = run(output("o", attention(X), B, H, T, E))
    online = dict(nodes(snapshot, "online"))
    (division,) = holds(snapshot, snapshot.roots[0], "div")
    above, below = (online[c] for c in division.children)
    assert above.children[0] == below.children[0]  # one repair
    repair = snapshot.classes[above.children[0]]
    assert [n.payload for n in repair] == ["exp"]
    carriers = {n.children[0] for _, n in nodes(snapshot, "running")}
    assert carriers == {n.children[0] for _, n in nodes(snapshot, "before")}
    assert [n.payload for c in carriers for n in snapshot.classes[c]] == [("max", S)]


def test_the_running_maximum_is_never_the_final_one() -> None:
    snapshot = run(output("o", attention(X), B, H, T, E))
    running = {c for c, _ in nodes(snapshot, "running")}
    assert running
    for c in running:
        assert {n.kind for n in snapshot.classes[c]} == {"running"}
        assert S in snapshot.axes_of(snapshot.free[c])


def _cross_entropy() -> Term:
    logits = total(D, mul(load("A", N, D), load("W", D, C)))
    return sub(logsumexp(logits, C), load("picked", N))


ROWS: dict[str, tuple[Term, Axis, tuple[Axis, ...]]] = {
    "logsumexp": (logsumexp(load("x", N, C), C), C, (N,)),
    "cross entropy": (_cross_entropy(), C, (N,)),
    "softmax of a product": (total(C, mul(softmax(load("x", N, C), C), load("y", C))), C, (N,)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_become_one_pass(name: str) -> None:
    term, axis, axes = ROWS[name]
    assert single_pass(run(output("o", term, *axes)), axis)


def test_softmax_sums_online_and_writes_afterwards() -> None:
    snapshot = run(output("o", softmax(load("x", N, C), C), N, C))
    assert [n.payload for _, n in nodes(snapshot, "online")] == [C]


def test_a_softmax_without_shift_gains_one() -> None:
    x = scores()
    e = apply("exp", x)
    weights = div(e, total(S, e))
    snapshot = run(output("o", total(S, mul(weights, load("V", B, H, S, E))), B, H, T, E))
    assert single_pass(snapshot, S)


def test_a_shifted_softmax_never_loses_its_shift() -> None:
    """No exponential of the bare scores under real; under fast there is one."""
    x = load("x", N, C)
    outputs = output("o", softmax(x, C), N, C)

    def bare(snapshot: Snapshot) -> bool:
        leaf = next(c for c, n in nodes(snapshot, "load"))
        return any(
            n.payload == "exp" and n.children == (leaf,) for _, n in nodes(snapshot, "apply")
        )

    assert not bare(run(outputs))
    assert bare(run(outputs, rules.load(classes=("exact", "real", "fast"))))


def test_a_factor_is_hoisted() -> None:
    snapshot = run(output("o", total(C, mul(load("x", N, C), load("c", N))), N))
    sums = {c for c, n in nodes(snapshot, "reduce")}
    assert any(set(n.children) & sums for n in holds(snapshot, snapshot.roots[0], "mul"))


def test_a_row_scale_leaves_the_product_of_matrices() -> None:
    """sum[c](x * r * g * W) with r free of c is r * sum[c](x * g * W)."""
    x = load("x", N, C)
    squares = div(total(C, mul(x, x)), Const(float(C.extent)))
    r = apply("rsqrt", add(squares, Const(1e-6)))
    normed = mul(mul(x, r), load("g", C))
    snapshot = run(output("o", total(C, mul(normed, load("W", C, D))), N, D))
    scales = {c for c, n in nodes(snapshot, "apply") if n.payload == "rsqrt"}
    assert any(set(n.children) & scales for n in holds(snapshot, snapshot.roots[0], "mul"))


ROW, J, K = (Axis(n, 0, e) for n, e in (("i", 8), ("j", 16), ("k", 32)))


def _bodies(snapshot: Snapshot, where: int) -> dict[Axis, list[tuple[Axis, ...]]]:
    """For each sum in a class: its axis, and the axes of the reductions below its product."""
    found: dict[Axis, list[tuple[Axis, ...]]] = {}
    for n in snapshot.classes[where]:
        if n.kind == "reduce":
            for product in holds(snapshot, n.children[0], "mul"):
                for c in product.children:
                    inner = [m.payload[1] for m in snapshot.classes[c] if m.kind == "reduce"]
                    found.setdefault(n.payload[1], []).append(tuple(inner))
    return found


def test_a_chain_is_held_in_every_order() -> None:
    """A (B v) and (A B) v, and three factors in all their orders."""
    bv = total(K, mul(load("B", J, K), load("v", K)))
    snapshot = run(output("o", total(J, mul(load("A", ROW, J), bv)), ROW))
    bodies = _bodies(snapshot, snapshot.roots[0])
    assert (K,) in bodies[J]
    assert (J,) in bodies[K]


def test_linear_attention_is_held_in_both_orders() -> None:
    qk = total(D, mul(load("Q", T, D), load("K", S, D)))
    scaled = mul(qk, Const(0.25))
    snapshot = run(output("o", total(S, mul(scaled, load("V", S, E))), T, E))
    sums = {n.payload[1] for _, n in nodes(snapshot, "reduce")}
    assert sums == {S, D}
    free = {frozenset(snapshot.axes_of(snapshot.free[c])) for c, _ in nodes(snapshot, "reduce")}
    assert frozenset({D, E}) in free  # K^T V
    assert frozenset({T, S}) in free  # Q K^T


def test_a_block_of_projections_and_heads_stays_within_its_budget() -> None:
    def normed(axis: Axis) -> Term:
        x = load("x", B, axis, C)
        squares = div(total(C, mul(x, x)), Const(float(C.extent)))
        return mul(mul(x, apply("rsqrt", add(squares, Const(1e-6)))), load("g", C))

    q = total(C, mul(normed(T), load("Wq", H, C, D)))
    k = total(C, mul(normed(S), load("Wk", H, C, D)))
    v = total(C, mul(normed(S), load("Wv", H, C, E)))
    x = causal(mul(total(D, mul(q, k)), Const(0.25)))
    o = total(S, mul(softmax(x, S), v))
    wide = Axis("o", 0, 32)
    y = add(total(H, total(E, mul(o, load("Wo", H, E, wide)))), load("r", B, T, wide))
    snapshot = saturate(
        output("y", y, B, T, wide), REAL, limits=Limits(rows=20_000), in_process=True
    )
    assert snapshot.report.rows <= 20_000
    assert max(snapshot.report.growth) <= 20_000
    assert any(n.payload == S for _, n in nodes(snapshot, "online"))


def test_integers_are_not_real_numbers() -> None:
    """(i // 2) * (j * 4) keeps its brackets: it may be overflow that the source means."""
    i = load("i", N, C, dtype="i32")
    product = mul(mul(i, load("k", N, dtype="i32")), load("l", C, dtype="i32"))
    snapshot = run(output("o", total(C, product), N))
    assert all(len(ns) == 1 for ns in snapshot.classes.values())


def test_a_rounding_stays() -> None:
    from nautile.terms import Cast

    x = load("x", N, C)
    rounded = Cast("bf16", mul(x, load("c", N)))
    snapshot = run(output("o", total(C, rounded), N))
    bodies = [n.children[0] for _, n in nodes(snapshot, "reduce")]
    assert [[n.kind for n in snapshot.classes[b]] for b in bodies] == [["cast"]]


def test_a_mask_after_the_exponential_is_followed() -> None:
    """p = where(mask, exp(x - m), 0), m the maximum of the masked scores."""
    x, keep = load("x", N, C), load("keep", N, C, dtype="bool")
    m = reduce_("max", C, apply("where", keep, x, Const(float("-inf"))))
    p = apply("where", keep, apply("exp", sub(x, m)), Const(0.0))
    weighted = div(total(C, mul(p, load("v", C))), total(C, p))
    assert single_pass(run(output("o", weighted, N)), C)
