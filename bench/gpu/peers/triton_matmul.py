"""A persistent matrix product in Triton: tensor descriptors (TMA), tiles of C in groups of rows.

The scheme is that of Triton's tutorial 09 (persistent matmul); a few tiles are tried at the first
call and the fastest is kept.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .contestant import Function, Outputs, Tensors
from .triton_choice import Choice, fastest

__all__ = ["CHOICES", "matmul", "product"]

CHOICES = (
    Choice({"BM": 128, "BN": 256, "BK": 64}, warps=8, stages=3),
    Choice({"BM": 128, "BN": 128, "BK": 64}, warps=8, stages=4),
    Choice({"BM": 128, "BN": 128, "BK": 64}, warps=4, stages=3),
)


@triton.jit
def _place(tile, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile: down GROUP rows, then to the next column."""
    band = GROUP * columns
    first = (tile // band) * GROUP
    height = min(rows - first, GROUP)
    return first + (tile % height), (tile % band) // height


@triton.jit
def _product(
    a_map, b_map, c_map, M, N, K, PROGRAMS: tl.constexpr, BY_ROWS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows, columns, depth = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=True):
        row, column = _place(tile, rows, columns, 8)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(depth):
            a = a_map.load([row * BM, step * BK])
            if BY_ROWS:
                total = tl.dot(a, b_map.load([step * BK, column * BN]), total)
            else:
                total = tl.dot(a, b_map.load([column * BN, step * BK]).T, total)
        c_map.store([row * BM, column * BN], total.to(c_map.dtype))


def product(a: torch.Tensor, b: torch.Tensor, by_rows: bool, choice: Choice) -> torch.Tensor:
    """a @ b where b is stored by rows (K x N), else a @ b.T (N x K)."""
    m, k = a.shape
    n = b.shape[1] if by_rows else b.shape[0]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    bm, bn, bk = (choice.tiles[x] for x in ("BM", "BN", "BK"))
    maps = (
        TensorDescriptor.from_tensor(a, [bm, bk]),
        TensorDescriptor.from_tensor(b, [bk, bn] if by_rows else [bn, bk]),
        TensorDescriptor.from_tensor(c, [bm, bn]),
    )
    programs = min(_processors(a), triton.cdiv(m, bm) * triton.cdiv(n, bn))
    launch: Any = _product[(programs,)]
    launch(
        *maps, m, n, k, PROGRAMS=programs, BY_ROWS=by_rows, **choice.tiles,
        num_warps=choice.warps, num_stages=choice.stages,
    )  # fmt: skip
    return c


def _processors(a: torch.Tensor) -> int:
    if a.device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(a.device).multi_processor_count)


def matmul(by_rows: bool) -> Function:
    """The product with the fastest choice, which the first call finds."""
    kept: list[Choice] = []

    def run(given: Tensors) -> Outputs:
        a, b = given.values()
        if not kept:
            kept.append(fastest(CHOICES, lambda c: product(a, b, by_rows, c)))
        return (product(a, b, by_rows, kept[0]),)

    return run
