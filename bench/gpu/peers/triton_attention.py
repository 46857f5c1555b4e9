"""Attention in Triton: tensor descriptors (TMA), one block of queries a program, online softmax.

The scheme is that of Triton's tutorial 06 (fused attention): keys that all queries of a block see
come first, those that the causal mask cuts after them. A few tiles are tried at the first call.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .contestant import Function, Outputs, Tensors
from .triton_choice import Choice, fastest

__all__ = ["CHOICES", "attend", "attention"]

CHOICES = (
    Choice({"BM": 128, "BN": 128}, warps=8, stages=2),
    Choice({"BM": 128, "BN": 64}, warps=8, stages=3),
    Choice({"BM": 128, "BN": 64}, warps=4, stages=3),
)


@triton.jit
def _blocks(
    o, total, top, q, k_map, v_map, keys, row, first, last, scale,
    CUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The online softmax over the keys from first to last."""
    for start in tl.range(first, last, BN):
        k = k_map.load([keys + start, 0])
        v = v_map.load([keys + start, 0])
        x = tl.dot(q, k.T) * scale
        if CUT:
            seen = (row + tl.arange(0, BM))[:, None] >= (start + tl.arange(0, BN))[None, :]
            x = tl.where(seen, x, -1.0e6)
        higher = tl.maximum(top, tl.max(x, 1))
        weights = tl.exp2(x - higher[:, None])
        repair = tl.exp2(top - higher)
        total = total * repair + tl.sum(weights, 1)
        o = tl.dot(weights.to(v.dtype), v, o * repair[:, None])
        top = higher
    return o, total, top


@triton.jit
def _attend(
    q_map, k_map, v_map, o_map, scale, T, S, H, GROUP,
    CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(1), tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(1) - 1 - block  # the long ones first
    row = block * BM
    keys = (head // H * (H // GROUP) + head % H // GROUP) * S
    q = q_map.load([head * T + row, 0])
    o = tl.zeros((BM, D), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    top = tl.full((BM,), -1.0e6, dtype=tl.float32)
    whole = row // BN * BN if CAUSAL else S
    o, total, top = _blocks(
        o, total, top, q, k_map, v_map, keys, row, 0, whole, scale, False, BM, BN
    )
    if CAUSAL:
        o, total, top = _blocks(
            o, total, top, q, k_map, v_map, keys, row, whole, row + BM, scale, True, BM, BN
        )
    o_map.store([head * T + row, 0], (o / total[:, None]).to(o_map.dtype))


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, choice: Choice
) -> torch.Tensor:
    """Attention of (batch, heads, tokens, width), tokens a multiple of the tiles; heads may share
    key heads."""
    o = torch.empty_like(q)
    width, (bm, bn) = q.shape[-1], (choice.tiles["BM"], choice.tiles["BN"])
    flat = [x.reshape(-1, width) for x in (q, k, v, o)]
    maps = [
        TensorDescriptor.from_tensor(x, [rows, width])
        for x, rows in zip(flat, (bm, bn, bn, bm), strict=True)
    ]
    heads, tokens = q.shape[1], q.shape[2]
    launch: Any = _attend[(q.shape[0] * heads, triton.cdiv(tokens, bm))]
    launch(
        *maps, width**-0.5 * 1.4426950408889634, tokens, k.shape[2], heads, heads // k.shape[1],
        CAUSAL=causal, D=width, **choice.tiles,
        num_warps=choice.warps, num_stages=choice.stages,
    )  # fmt: skip
    return o


def attention(causal: bool) -> Function:
    """Attention with the fastest choice, which the first call finds."""
    kept: list[Choice] = []

    def run(given: Tensors) -> Outputs:
        q, k, v = (given[n] for n in "QKV")
        if not kept:
            kept.append(fastest(CHOICES, lambda c: attend(q, k, v, causal, c)))
        return (attend(q, k, v, causal, kept[0]),)

    return run
