"""A transformer block as one writes it in torch; in float64 the same function is the truth."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor as T

from ..case import Case
from .contestant import Contestant, Outputs, Tensors, Work, compiled, plainly

__all__ = ["work"]

EPS = 1e-5
WIDTH = 128  # of a head, in programs/block.nau


def _heads(x: T, width: int) -> T:
    """tokens x (heads * width) as one sequence of heads."""
    return x.unflatten(-1, (-1, width)).transpose(0, 1)[None]


def _block(
    width: int, x: T, g1: T, wq: T, wk: T, wv: T, wo: T, g2: T, w1: T, w2: T, w3: T
) -> T:  # fmt: skip
    n = F.rms_norm(x, (x.shape[-1],), g1, EPS)
    q, k, v = (_heads(n @ w.T, width) for w in (wq, wk, wv))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    r = x + o[0].transpose(0, 1).flatten(1) @ wo.T
    u = F.rms_norm(r, (x.shape[-1],), g2, EPS)
    return r + (F.silu(u @ w1.T) * (u @ w2.T)) @ w3.T


def work(case: Case) -> Work:
    """The work of block.nau: weights have deviation one over the root of their inputs."""
    z = {"C": 4096, "H": 32, "D": WIDTH, "F": 14336, **case.sizes}
    function = partial(_block, z["D"])
    plain = plainly(function)
    scales = dict.fromkeys(("Wq", "Wk", "Wv", "W1", "W2"), z["C"] ** -0.5)
    scales |= {"Wo": (z["H"] * z["D"]) ** -0.5, "W3": z["F"] ** -0.5}
    made = (Contestant("eager", "library", partial(plainly, function)), *compiled(function))
    return Work(partial(_exact, function), plain, made, scales=scales)


def _exact(function: partial[T], given: Tensors) -> Outputs:
    return (function(*(x.double() for x in given.values())),)
