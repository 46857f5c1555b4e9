"""Axes taken apart: the same numbers in the same memory, and only where a product needs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautile import lang
from nautile.extract.apart import apart, joined
from nautile.extract.body import analyse
from nautile.extract.regions import cut
from nautile.oracle import run
from nautile.stages import Options, optimize
from nautile.terms import Program

EXAMPLES = Path(lang.__file__).parents[1] / "examples"
SCORES = """
    x[b,h: H,t,s: T] = sum[d: D](Q[b,t,h*D + d] * K[b,s,h*D + d]) * D**-0.5
    p[b,h,t,s] = softmax[s](x[b,h,t,s])
"""
HEAD = (
    "Q: f32[B,T,H*D], K: f32[B,T,H*D], V: f32[B,T,H*D], W: f32[N,H*D], *, B=2, T=5, H=3, D=4, N=6"
)
MERGED = {
    "a result": f"""def f({HEAD}) -> f32[B,T,H*D]:{SCORES}
    O[b,t,c] = sum[s](p[b,c//D,t,s] * V[b,s,c])
    return O""",
    "read by a sum, and a result": f"""def f({HEAD}) -> (f32[B,T,N], f32[B,T,H*D]):{SCORES}
    O[b,t,c] = sum[s](p[b,c//D,t,s] * V[b,s,c])
    y[b,t,n] = sum[c](O[b,t,c] * W[n,c])
    return y, O""",
    "read by others, and at other places": f"""def f({HEAD}) -> (f32[B,T,H*D], f32[B,T]):{SCORES}
    O[b,t,c] = sum[s](p[b,c//D,t,s] * V[b,s,c])
    m[b,t] = max[c](O[b,t,c])
    y[b,t,c] = O[b,t,c] - m[b,t] + O[b,t,(c + 5) % (H*D)] + V[b,t,c]
    return y, m""",
    "remainders, too": f"""def f({HEAD}) -> f32[B,T,H*D]:{SCORES}
    O[b,t,c] = sum[s](p[b,c//D,t,s] * V[b,s,c]) * (c % D + 1) + W[0,c]
    return O""",
    "heads that share keys": """def f(Q: f32[T,H*D], K: f32[T,G*D], V: f32[T,G*D], *,
      H=4, G=2, T=5, D=3) -> f32[T,H*D]:
    x[h: H,t,s: T] = sum[d: D](Q[t,h*D + d] * K[s,h//(H//G)*D + d])
    p[h,t,s] = softmax[s](x[h,t,s])
    O[t,c: H*D] = sum[s](p[c//D,t,s] * V[s,c//(D*(H//G))*D + c % D])
    return O""",
    "places in two dimensions": """def f(X: f32[B,R,R], Z: f32[E,P,P], W: f32[G*G,E], *,
      B=2, R=6, G=3, P=2, E=4) -> f32[B,G*G,E]:
    y[q,n,e] = sum[i](sum[j](X[q,P*(n//G) + i,P*(n % G) + j] * Z[e,i,j])) + W[n,e]
    return y""",
    "sums over four dimensions": """def f(X: f32[B,C,M,M], Z: f32[E,A,C,P,P], *,
      B=2, C=3, M=6, P=2, E=4, A=2) -> f32[B,E,M-P,M-P]:
    y[b,e,u: M-P,v: M-P] = sum[a](sum[c](sum[i](sum[j](X[b,c,u + i,v + j] * Z[e,a,c,i,j]))))
    return y""",
}
KEPT = {
    "queries that share keys": """def f(Q: f32[H,T,D], K: f32[G,T,D], *,
      H=4, G=2, T=5, D=3) -> f32[H,T,T]:
    x[h,t,s: T] = sum[d](Q[h,t,d] * K[h//(H//G),s,d])
    return x""",
    "rows of its own": """def f(Q: f32[C,T], K: f32[T,C], *, C=8, T=5) -> f32[C,T]:
    m[g: C//4,s: T] = max[t](Q[4*g,t] * s)
    y[c,t] = sum[s: T](m[c//4,s] * K[s,c] * Q[c,t])
    return y""",
    "two divisors": """def f(Q: f32[C,T], K: f32[T,C], *, C=8, T=5) -> f32[C]:
    m[g: C//4,s: T] = max[t](Q[4*g,t] * s)
    y[c] = sum[s: T](m[c//4,s] * K[s,c]) + c // 3
    return y""",
}


def program(text: str) -> Program:
    (found,) = lang.parse(text)
    return found


def drawn(p: Program) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(7)
    return {b.name: rng.standard_normal(b.shape) for b in p.inputs}


@pytest.mark.parametrize("name", MERGED)
def test_results_are_the_same_numbers_in_the_same_memory(name: str) -> None:
    p = program(MERGED[name])
    q = apart(p)
    assert q is not p
    arrays = drawn(p)
    for own, other in zip(run(p, arrays).values(), run(q, arrays).values(), strict=True):
        np.testing.assert_allclose(np.ravel(other), np.ravel(own), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MERGED)
def test_every_product_is_a_contraction_afterwards(name: str) -> None:
    outputs = [o for region in cut(apart(program(MERGED[name]))) for o in region.outputs]
    found = analyse(tuple(outputs)).contractions.values()
    assert len(found) >= (2 if "softmax" in MERGED[name] else 1)
    assert all(c.rows and c.columns for c in found)


@pytest.mark.parametrize("name", KEPT)
def test_nothing_else_is_taken_apart(name: str) -> None:
    p = program(KEPT[name])
    assert apart(p) is p


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.nau")), ids=lambda p: p.stem)
def test_no_example_needs_it(path: Path) -> None:
    for p in lang.parse_file(path):
        assert apart(p) is p


def test_positions_of_halves_are_joined() -> None:
    grid = [[0, 2], [1], [0, 3]]
    assert joined(grid, (3, 2, 4), (3, 8)) == [[0, 2], [4, 7]]
    assert joined(grid, (3, 2, 4), (6, 4)) == [[1, 5], [0, 3]]
    assert joined(grid, (3, 2, 4), (3, 2, 4)) == grid
    assert joined([[0], [0, 1], [2]], (1, 2, 3), (1, 6)) == [[0], [2, 5]]


def test_a_merged_attention_is_one_kernel_of_two_contractions() -> None:
    text = f"""def f({HEAD.replace("f32", "bf16")}) -> bf16[B,T,H*D]:{SCORES}
    O[b,t,c] = sum[s](p[b,c//D,t,s] * V[b,s,c])
    return O"""
    (p,) = lang.parse(text, dims={"T": 256, "D": 64})
    result = optimize(p, Options())
    assert result.passed
    assert result.plan is not None
    (kernel,) = result.plan.kernels
    found = analyse(kernel.outputs).contractions
    assert [c.operand for c in found.values()] == ["bf16", "bf16"]
