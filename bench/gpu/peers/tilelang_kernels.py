"""A matrix product and attention in TileLang, after the examples of its documentation.

TileLang reads the annotations of the functions that it compiles: no postponed evaluation here.
"""

from functools import cache
from typing import Any

import tilelang
import tilelang.language as T

from .contestant import Function, Outputs, Tensors

__all__ = ["attention", "attention_program", "matmul", "product_program"]

BF16, F32 = "bfloat16", "float32"
LOG2E = 1.4426950408889634


def product_program(M: int, N: int, K: int, tiles: tuple[int, int, int], stages: int) -> Any:
    """C = A @ W.T of a tile of C a block."""
    BM, BN, BK = tiles

    @T.prim_func
    def product(
        A: T.Tensor((M, K), BF16),  # type: ignore[valid-type]
        W: T.Tensor((N, K), BF16),  # type: ignore[valid-type]
        C: T.Tensor((M, N), BF16),  # type: ignore[valid-type]
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=256) as (bx, by):
            a = T.alloc_shared((BM, BK), BF16)
            w = T.alloc_shared((BN, BK), BF16)
            c = T.alloc_fragment((BM, BN), F32)
            T.use_swizzle(panel_size=10)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(A[by * BM, k * BK], a)
                T.copy(W[bx * BN, k * BK], w)
                T.gemm(a, w, c, transpose_B=True)
            T.copy(c, C[by * BM, bx * BN])

    return product


def attention_program(
    shape: tuple[int, int, int, int], causal: bool, tiles: tuple[int, int], stages: int
) -> Any:
    """Attention of (batch, heads, tokens, width), a block of queries of a head a block."""
    B, H, S, D = shape
    BM, BN = tiles
    scale = D**-0.5 * LOG2E

    @T.prim_func
    def attend(
        Q: T.Tensor(shape, BF16),  # type: ignore[valid-type]
        K: T.Tensor(shape, BF16),  # type: ignore[valid-type]
        V: T.Tensor(shape, BF16),  # type: ignore[valid-type]
        O: T.Tensor(shape, BF16),  # type: ignore[valid-type]  # noqa: E741
    ):
        with T.Kernel(T.ceildiv(S, BM), H, B, threads=256) as (bx, by, bz):
            q = T.alloc_shared([BM, D], BF16)
            k = T.alloc_shared([BN, D], BF16)
            v = T.alloc_shared([BN, D], BF16)
            x = T.alloc_fragment([BM, BN], F32)
            p = T.alloc_fragment([BM, BN], BF16)
            o = T.alloc_fragment([BM, D], F32)
            top = T.alloc_fragment([BM], F32)
            before = T.alloc_fragment([BM], F32)
            repair = T.alloc_fragment([BM], F32)
            part = T.alloc_fragment([BM], F32)
            total = T.alloc_fragment([BM], F32)
            T.copy(Q[bz, by, bx * BM : (bx + 1) * BM, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity(F32))
            blocks = T.ceildiv((bx + 1) * BM, BN) if causal else T.ceildiv(S, BN)
            for j in T.Pipelined(blocks, num_stages=stages):
                T.copy(K[bz, by, j * BN : (j + 1) * BN, :], k)
                if causal:
                    for m, n in T.Parallel(BM, BN):
                        x[m, n] = T.if_then_else(bx * BM + m >= j * BN + n, 0, -T.infinity(F32))
                else:
                    T.clear(x)
                T.gemm(q, k, x, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.fill(top, -T.infinity(F32))
                T.reduce_max(x, top, dim=1, clear=False)
                for m in T.Parallel(BM):
                    top[m] = T.max(top[m], before[m])
                    repair[m] = T.exp2(before[m] * scale - top[m] * scale)
                for m, n in T.Parallel(BM, BN):
                    x[m, n] = T.exp2(x[m, n] * scale - top[m] * scale)
                T.reduce_sum(x, part, dim=1)
                for m in T.Parallel(BM):
                    total[m] = total[m] * repair[m] + part[m]
                T.copy(x, p)
                for m, d in T.Parallel(BM, D):
                    o[m, d] = o[m, d] * repair[m]
                T.copy(V[bz, by, j * BN : (j + 1) * BN, :], v)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for m, d in T.Parallel(BM, D):
                o[m, d] = o[m, d] / total[m]
            T.copy(o, O[bz, by, bx * BM : (bx + 1) * BM, :])

    return attend


@cache
def _compiled(make: Any, *arguments: Any) -> Any:
    return tilelang.compile(make(*arguments), out_idx=[-1])


def matmul() -> Function:
    def run(given: Tensors) -> Outputs:
        a, w = given.values()
        kernel = _compiled(product_program, *a.shape[:1], *w.shape, (128, 256, 64), 3)
        return (kernel(a, w),)

    return run


def attention(causal: bool) -> Function:
    def run(given: Tensors) -> Outputs:
        q, k, v = (given[n] for n in "QKV")
        kernel = _compiled(attention_program, tuple(q.shape), causal, (128, 128), 2)
        return (kernel(q, k, v),)

    return run
