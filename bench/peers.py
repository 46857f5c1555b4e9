"""What stands beside the generated kernels: torch's own ways to compute the same thing.

A `Peer` draws inputs, gives the float64 reference, and names the contestants. Inputs are in the
order of the program's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["PEERS", "Peer"]

Tensors = Sequence[torch.Tensor]
Function = Callable[..., Any]
CAP = 30.0


@dataclass(frozen=True, slots=True)
class Peer:
    """`eager` is torch's plain way (also the yardstick of rounding); `others` are made when they
    are needed, since compiling takes long; `flops` a repetition, 0 for what moves bytes."""

    eager: Function
    exact: Function
    others: Callable[[], Mapping[str, Function]]
    flops: Callable[[Mapping[str, int]], float] = lambda sizes: 0.0
    scales: Mapping[str, float] = field(default_factory=dict)  # of the normal inputs drawn
    eager_name: str | None = "eager"  # as a contestant; None where it would be no match


def _compiled(function: Function) -> Callable[[], Mapping[str, Function]]:
    return lambda: {"torch.compile": torch.compile(function, dynamic=False)}


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _layernorm(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), g, b, 1e-5)


def _rmsnorm(
    x: torch.Tensor, r: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + r
    return F.rms_norm(h, (h.shape[-1],), g, 1e-6), h


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


def _by_head(score: Function) -> Function:
    """Attention in the inputs' own type, head by head (the scores of all would not fit)."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        flat = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
        rows = [torch.softmax(score(_scores(a, b)), -1) @ c for a, b, c in zip(*flat, strict=True)]
        return torch.stack(rows).reshape(q.shape)

    return attention


def _causal(s: torch.Tensor) -> torch.Tensor:
    t, n = s.shape[-2:]
    keep = torch.ones(t, n, dtype=torch.bool, device=s.device).tril(n - t)
    return s.masked_fill(~keep, float("-inf"))


def _softcap(s: torch.Tensor) -> torch.Tensor:
    return CAP * torch.tanh(s / CAP)


def _sdpa(causal: bool) -> Callable[[], Mapping[str, Function]]:
    def backend(which: SDPBackend) -> Function:
        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return attention

    return lambda: {
        "flash_attention": backend(SDPBackend.FLASH_ATTENTION),
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION),
    }


def _flex() -> Mapping[str, Function]:
    from torch.nn.attention.flex_attention import flex_attention

    def score(s: torch.Tensor, b: Any, h: Any, t: Any, n: Any) -> torch.Tensor:
        return CAP * torch.tanh(s / CAP)

    compiled = torch.compile(flex_attention, dynamic=False)
    return {"flex_attention": lambda q, k, v: compiled(q, k, v, score_mod=score)}


def _cross_entropy(z: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    wide = z if z.dtype == torch.float64 else z.float()
    return F.cross_entropy(wide, label.long(), reduction="none")


def _mean_cross_entropy(z: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = _cross_entropy(z, label)
    return loss, loss.mean()


def _block(
    x: torch.Tensor, g1: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor, wv: torch.Tensor,
    wo: torch.Tensor, g2: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor,
    eps: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    def heads(y: torch.Tensor) -> torch.Tensor:
        return y.view(1, len(x), -1, 128).transpose(1, 2)

    n = F.rms_norm(x, x.shape[-1:], g1, 1e-5)
    q, k, v = heads(n @ wq.T), heads(n @ wk.T), heads(n @ wv.T)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    r = x + o.transpose(1, 2).reshape(len(x), -1) @ wo.T
    u = F.rms_norm(r, x.shape[-1:], g2, 1e-5)
    return r + (F.silu(u @ w1.T) * (u @ w2.T)) @ w3.T


def _attention_flops(share: float) -> Callable[[Mapping[str, int]], float]:
    return lambda z: 4.0 * share * z["B"] * z["H"] * z["T"] * z["S"] * z["D"]


def _wide(function: Function) -> Function:
    """The same in float64."""
    return lambda *tensors: function(*(t.double() for t in tensors))


def _peer(function: Function, others: Callable[[], Mapping[str, Function]], **more: Any) -> Peer:
    return Peer(function, _wide(function), others, **more)


def _attention(score: Function, others: Callable[[], Mapping[str, Function]], share: float) -> Peer:
    flops = _attention_flops(share)
    return _peer(_by_head(score), others, flops=flops, eager_name=None)


PEERS: Mapping[str, Peer] = {
    "softmax_rows": _peer(_softmax, _compiled(_softmax)),
    "softmax_rows_f32": _peer(_softmax, _compiled(_softmax)),
    "layernorm_rows": _peer(_layernorm, _compiled(_layernorm)),
    "rmsnorm_residual_rows": _peer(_rmsnorm, _compiled(_rmsnorm)),
    "gemm_square": _peer(
        torch.matmul,
        dict,
        flops=lambda z: 2.0 * z["M"] * z["N"] * z["K"],
        eager_name="cublas",
    ),
    "attention_full": _attention(lambda s: s, _sdpa(False), 1.0),
    "attention_causal": _attention(_causal, _sdpa(True), 0.5),
    "cross_entropy": _peer(_cross_entropy, _compiled(_cross_entropy)),
    "mean_cross_entropy": _peer(_mean_cross_entropy, dict),
    "transformer_block": _peer(
        _block,
        _compiled(_block),
        scales=dict.fromkeys(("Wq", "Wk", "Wv", "Wo", "W1", "W2"), 4096 ** (-0.5))
        | {"W3": 14336**-0.5},
    ),
    "attention_softcap": _attention(_softcap, _flex, 1.0),
}
