"""Narrow operands beside which the source rounds nothing are widened, and only those."""

from __future__ import annotations

import numpy as np

from nautile import lang
from nautile.extract.licence import Licence, widened
from nautile.extract.regions import cut
from nautile.oracle import arrays_fetch, evaluate, run
from nautile.terms import Cast, Online, Program, Reduce, Term, buffers, walk

HEAD = (
    "def f(Q: bf16[N,D], K: bf16[M,D], V: bf16[M,E], g: f32[N,M], w: f32[D], *, N=4, M=6, D=3, E=5)"
)
SCORES = "    a[n: N, m: M] = sum[d](Q[n, d] * K[m, d]) * g[n, m]\n"
SUMS = SCORES + "    s[n: N] = sum[m: M](a[n, m])\n    return s\n"
KEYS = "    u[n: N, d: D] = sum[m: M](K[m, d] * g[n, m])\n    return u\n"


def program(body: str, result: str) -> Program:
    (found,) = lang.parse(f"{HEAD} -> {result}:\n{body}")
    return found


def terms(body: str, result: str) -> list[Term]:
    return [o.term for region in cut(program(body, result)) for o in region.outputs]


def widenings(source: str, result: str, rewritten: str, becomes: str) -> int:
    """Parts of the rewritten sum that are widened under the source's licence."""
    given = Licence(terms(source, result))
    sums = [t for t in walk(*terms(rewritten, becomes)) if isinstance(t, (Reduce, Online))]
    return sum(
        isinstance(c, Cast) and c.dtype == "f32" for t in sums for c in walk(widened(t, given))
    )


def test_a_factor_that_the_source_does_not_round_is_not_rounded_beside_another_operand() -> None:
    assert widenings(SUMS, "f32[N]", KEYS, "f32[N,D]") == 1


def test_operands_that_the_source_rounds_stay_narrow() -> None:
    mixed = SCORES + "    y[n: N, e: E] = sum[m](a[n, m] * V[m, e])\n    return y\n"
    assert widenings(mixed, "f32[N,E]", mixed, "f32[N,E]") == 0


def test_a_chain_may_be_multiplied_in_another_order() -> None:
    """Q (K^T V) rounds the product of keys and values where (Q K^T) V rounds the scores."""
    forth = SCORES.replace(" * g[n, m]", "") + "    y[n: N, e: E] = sum[m](a[n, m] * V[m, e])\n"
    back = "    h[d: D, e: E] = sum[m](K[m, d] * V[m, e])\n"
    back += "    y[n: N, e: E] = sum[d](Q[n, d] * h[d, e])\n    return y\n"
    assert widenings(forth + "    return y\n", "f32[N,E]", back, "f32[N,E]") == 0


def test_another_axis_of_the_same_tensor_is_another_site() -> None:
    source = "    y[n: N, m: M] = sum[d](Q[n, d] * w[d] * K[m, d])\n    return y\n"
    assert widenings(source, "f32[N,M]", source, "f32[N,M]") == 0
    assert widenings(source, "f32[N,M]", KEYS, "f32[N,D]") == 1


def test_casts_are_sites_of_their_own() -> None:
    rounded = "    u[n: N, d: D] = sum[m: M](K[m, d] * {}(g[n, m]))\n    return u\n"
    assert widenings(rounded.format("bf16"), "f32[N,D]", KEYS, "f32[N,D]") == 1


def test_a_widened_sum_loses_no_digits() -> None:
    """With bf16's 8 bits of g an element errs about 1e-3."""
    made = program(KEYS, "f32[N,D]")
    (output,) = (o for region in cut(made) for o in region.outputs)
    rng = np.random.default_rng(3)
    arrays = {b.name: np.rint(rng.standard_normal(b.shape) * 64) / 16 for b in made.inputs}
    arrays["g"] = rng.standard_normal(arrays["g"].shape)
    at = {a: np.arange(a.extent) for a in output.axes}
    exact = run(made, arrays, precision="f64")["u"]

    def error(term: Term) -> float:
        found = evaluate(term, arrays_fetch(arrays), at, precision="mma")
        return float(np.abs(found - exact).max())

    given = Licence(terms(SUMS, "f32[N]"))
    assert error(widened(output.term, given)) < 1e-5 < 1e-3 < error(output.term)


def test_of_two_narrow_types_the_one_of_more_range_is_rounded_to() -> None:
    body = "    u[n: N, d: D] = sum[m: M](x[n, m] * g[n, m] * K[m, d])\n    return u\n"
    text = "def f(K: bf16[M,D], x: f16[N,M], g: f32[N,M], *, N=4, M=6, D=3) -> f32[N,D]:\n" + body
    (made,) = lang.parse(text)
    (output,) = (o for region in cut(made) for o in region.outputs)
    wide = widened(output.term, Licence([output.term]))
    cast = [c.argument for c in walk(wide) if isinstance(c, Cast) and c.dtype == "f32"]
    assert [b.name for b in buffers(*cast)] == ["x"]


F16 = "def f(x: f16[N,M], w: f16[M], K: f16[M,D], *, N=4, M=6, D=3) -> f32[N,D]:\n"


def guarded(body: str) -> list[Term]:
    """What a guarded licence of the program itself widens."""
    (made,) = lang.parse(F16 + body)
    roots = [o.term for region in cut(made) for o in region.outputs]
    given = Licence(roots, guarded=True)
    assert all(widened(t, Licence(roots)) is t for t in walk(*roots))
    sums = [t for t in walk(*roots) if isinstance(t, (Reduce, Online))]
    return [c.argument for t in sums for c in walk(widened(t, given)) if isinstance(c, Cast)]


def test_a_guarded_licence_rounds_only_what_fits() -> None:
    product = "    u[n: N, d: D] = sum[m: M](x[n, m] * w[m] * K[m, d])\n    return u\n"
    assert {b.name for b in buffers(*guarded(product))} == {"x", "w", "K"}
    part = "    p[n: N, m: M] = softmax[m](x[n, m])\n"
    mixed = part + "    u[n: N, d: D] = sum[m: M](p[n, m] * K[m, d])\n    return u\n"
    assert guarded(mixed) == []
    halved = "    u[n: N, d: D] = sum[m: M](x[n, m] * 0.5 * K[m, d])\n    return u\n"
    assert guarded(halved) == []
    divided = "    u[n: N, d: D] = sum[m: M](x[n, m] / w[m] * K[m, d])\n    return u\n"
    assert {"K"} <= {b.name for b in buffers(*guarded(divided))}
