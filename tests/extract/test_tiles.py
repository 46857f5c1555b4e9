"""The tiles that are chosen on the portable path are those that were measured fastest on an H200.

The tables stand in codegen/sm80/limits.py: 128 x 128 for a product, 128 x (64 + 64) for two that
share an operand, 128 x 64 for attention of width 128, steps of 64 positions.
"""

from __future__ import annotations

import pytest

from nautile.extract.device import device
from nautile.extract.roofline import schedules

from .build import PROGRAMS, plan, program

GEMM = """
def f(A: bf16[M,K], B: bf16[K,N], *, M=4096, K=4096, N=4096) -> bf16[M,N]:
    C[m,n] = sum[k](A[m,k] * B[k,n])
    return C
"""
TRANSPOSED = """
def f(A: bf16[M,K], B: bf16[N,K], b: bf16[N], *, M=8192, K=2048, N=8192) -> bf16[M,N]:
    C[p,q] = tanh(sum[z](A[p,z] * B[q,z]) + b[q])
    return C
"""
PAIR = """
def f(A: bf16[M,K], B: bf16[K,N], D: bf16[K,N], *, M=4096, K=4096, N=8192) -> bf16[M,N]:
    g[m,n] = sum[k](A[m,k] * B[k,n])
    u[m,n] = sum[k](A[m,k] * D[k,n])
    C[m,n] = g[m,n] * u[m,n] / (1 + exp(-g[m,n]))
    return C
"""


def tiles(text: str) -> list[int]:
    """The tiles of more than one position of a program that is one kernel of one part."""
    (kernel,) = plan(program(text)).kernels
    ((part, _),) = schedules(kernel.outputs, device("h200"), 1, path="portable")
    return sorted(t for t in part.tiles.values() if t > 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GEMM, [64, 128, 128]),
        (TRANSPOSED, [64, 128, 128]),
        (PAIR, [64, 64, 128]),
        (PROGRAMS["attention"], [64, 128, 128, 128]),
    ],
    ids=["product", "transposed", "pair", "attention"],
)
def test_the_fastest_measured_tiles_are_chosen(text: str, expected: list[int]) -> None:
    assert tiles(text) == expected
