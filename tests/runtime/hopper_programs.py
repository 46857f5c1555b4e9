"""Programs at sizes that no tile divides, and their bundles: `python hopper_programs.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["BUNDLES", "PROGRAMS", "build"]

BUNDLES = "NAUTILE_HOPPER_BUNDLES"
CANDIDATES = 3

PROGRAMS = {
    "gemm": """def f(x: bf16[M,K], w: bf16[K,N], *, M=1000, N=520, K=776) -> bf16[M,N]:
        y[m,n] = sum[k](x[m,k] * w[k,n])
        return y""",
    "gemm_transposed": """def f(x: f16[M,K], w: f16[N,K], *, M=1333, N=1032, K=1032) -> f32[M,N]:
        y[m,n] = sum[k](x[m,k] * w[n,k])
        return y""",
    "epilogue": """def f(x: bf16[M,K], w: bf16[K,N], b: f32[N], r: bf16[M,N], *,
                         M=520, N=1000, K=520) -> bf16[M,N]:
        y[m,n] = gelu(sum[k](x[m,k] * w[k,n]) + b[n]) + r[m,n]
        return y""",
    "gated": """def f(x: bf16[M,K], u: bf16[K,N], v: bf16[K,N], *,
                      M=1300, N=712, K=520) -> bf16[M,N]:
        g[m,n] = sum[k](x[m,k] * u[k,n])
        y[m,n] = g[m,n] * sigmoid(g[m,n]) * sum[k](x[m,k] * v[k,n])
        return y""",
    "attention": """def f(Q: bf16[B,H,T,D], K: bf16[B,H,S,D], V: bf16[B,H,S,E], *,
                          B=2, H=9, T=1333, S=1457, D=128, E=128) -> bf16[B,H,T,E]:
        x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h,s,d]) * D**-0.5
        p[b,h,t,s] = softmax[s](x[b,h,t,s])
        O[b,h,t,e] = sum[s](p[b,h,t,s] * V[b,h,s,e])
        return O""",
    "causal": """def f(Q: bf16[B,H,T,D], K: bf16[B,Hk,T,D], V: bf16[B,Hk,T,D], *,
                       B=2, H=24, Hk=6, T=1111, D=64) -> bf16[B,H,T,D]:
        x[b,h,t,s] = sum[d](Q[b,h,t,d] * K[b,h//(H//Hk),s,d]) * D**-0.5
        m[b,h,t,s] = where(s <= t, 20 * tanh(x[b,h,t,s] / 20), -inf)
        p[b,h,t,s] = softmax[s](m[b,h,t,s])
        O[b,h,t,d] = sum[s](p[b,h,t,s] * V[b,h//(H//Hk),s,d])
        return O""",
    "heads_inside": """def f(Q: bf16[B,T,H,D], K: bf16[B,T,H,D], V: bf16[B,T,H,D], *,
                             B=2, T=1700, H=12, D=128) -> bf16[B,T,H,D]:
        x[b,h,t,s] = sum[d](Q[b,t,h,d] * K[b,s,h,d]) * D**-0.5
        m[b,h,t,s] = where(s <= t and t - s < 200, x[b,h,t,s], -inf)
        p[b,h,t,s] = softmax[s](m[b,h,t,s])
        O[b,t,h,d] = sum[s](p[b,h,t,s] * V[b,s,h,d])
        return O""",
    "batched": """def f(x: bf16[B,M,K], w: bf16[B,K,N], *,
                        B=15, M=600, N=328, K=520) -> bf16[B,M,N]:
        y[b,m,n] = sum[k](x[b,m,k] * w[b,k,n])
        return y""",
    "few_rows": """def f(x: bf16[M,K], w: bf16[N,K], b: f32[N], *,
                         M=23, N=1000, K=9000) -> bf16[M,N]:
        y[m,n] = silu(sum[k](x[m,k] * w[n,k]) + b[n])
        return y""",
    "few_rows_wide": """def f(x: f16[M,K], w: f16[N,K], r: f16[M,N], *,
                              M=72, N=328, K=16392) -> f32[M,N]:
        y[m,n] = sum[k](x[m,k] * w[n,k]) + r[m,n]
        return y""",
    "fp8": """def f(x: f8e4m3[M,K], w: f8e4m3[N,K], *, M=1200, N=784, K=2064) -> bf16[M,N]:
        y[m,n] = sum[k](x[m,k] * w[n,k])
        return y""",
}


def build(root: Path) -> dict[str, Path]:
    """A bundle of each program for the H200, with several implementations of its kernel."""
    from nautile.bundle import write_bundle
    from nautile.stages import Options, optimize
    from nautile.worker import Worker

    options = Options(target="h200", compile=True, candidates=CANDIDATES)
    with Worker() as worker:
        return {
            name: write_bundle(root / name, optimize(text, options, worker=worker))
            for name, text in PROGRAMS.items()
        }


if __name__ == "__main__":
    for made in build(Path(sys.argv[1])).values():
        print(made)
