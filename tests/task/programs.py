"""Pairs of programs that differ in names alone: sizes, tensors, indices, definitions, results."""

PAIRS = {
    "attention": (
        """def attention(Q: f16[H,T,D], K: f16[H,S,D], V: f16[H,S,D], *, H=2, T=128, S=128, D=32
              ) -> f16[H,T,D]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    m[h,t,s] = where(s <= t, x[h,t,s], -inf)
    p[h,t,s] = softmax[s](m[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
""",
        """def look_back(wanted: f16[G,R,W], known: f16[G,C,W], told: f16[G,C,W], *,
              G=2, R=128, C=128, W=32) -> f16[G,R,W]:
    near[g,r,c] = sum[w](wanted[g,r,w] * known[g,c,w]) * W**-0.5
    past[g,r,c] = where(c <= r, near[g,r,c], -inf)
    share[g,r,c] = softmax[c](past[g,r,c])
    answer[g,r,u] = sum[c](share[g,r,c] * told[g,c,u])
    return answer
""",
    ),
    "norm and product": (
        """def norm_product(x: bf16[N,C], g: bf16[C], w: bf16[A,C], *, N=128, C=256, A=64
              ) -> bf16[N,A]:
    r[n] = rsqrt(mean[c](x[n,c] * x[n,c]) + 1e-5)
    y[n,a] = sum[c](x[n,c] * r[n] * g[c] * w[a,c])
    return y
""",
        """def scaled(page: bf16[L,M], gain: bf16[M], book: bf16[K,M], *, L=128, M=256, K=64
              ) -> bf16[L,K]:
    size[l] = rsqrt(mean[m](page[l,m] * page[l,m]) + 1e-5)
    seen[l,k] = sum[m](page[l,m] * size[l] * gain[m] * book[k,m])
    return seen
""",
    ),
    "two results and a scalar": (
        """def moments(x: f32[N,C], eps: f32 = 1e-6, *, N=300, C=500) -> (f32[N], f32[N,C]):
    a[n] = mean[c](x[n,c])
    b[n,c] = (x[n,c] - a[n]) * eps
    return a, b
""",
        """def parts(a: f32[P,Q], b: f32 = 1e-6, *, P=300, Q=500) -> (f32[P], f32[P,Q]):
    x[p] = mean[q](a[p,q])
    eps[p,q] = (a[p,q] - x[p]) * b
    return x, eps
""",
    ),
    "few long rows": (
        """def long_rows(X: f32[B,N], *, B=1, N=262144) -> f32[B,N]:
    Y[b,n] = softmax[n](X[b,n])
    return Y
""",
        """def stretched(line: f32[R,K], *, R=1, K=262144) -> f32[R,K]:
    flat[r,k] = softmax[k](line[r,k])
    return flat
""",
    ),
}
