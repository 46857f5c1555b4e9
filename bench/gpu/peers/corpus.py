"""The corpus' subgraphs as one writes them in torch; in float64 the same functions are the truth.

Tables that depend on sizes alone (rotary angles, masks) are made once, as users of torch do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor as T

from ..case import Case
from .contestant import Contestant, Outputs, Tensors, Work, compiled, plainly

__all__ = ["FUNCTIONS", "work"]


def _rms(x: T, gain: T, eps: float) -> T:
    return F.rms_norm(x, (x.shape[-1],), gain, eps)


@cache
def _rotary(tokens: int, width: int, base: float, device: Any, kind: Any) -> tuple[T, T]:
    """Cosine and signed sine of the angles, tokens x width; the sine's first half is negative."""
    half = torch.arange(width, device=device, dtype=torch.float64) % (width // 2)
    angle = torch.outer(
        torch.arange(tokens, device=device, dtype=torch.float64), base ** (-half * 2.0 / width)
    )
    sign = torch.where(torch.arange(width, device=device) < width // 2, -1.0, 1.0)
    return angle.cos().to(kind), (sign * angle.sin()).to(kind)


def _rotated(x: T, base: float) -> T:
    """Rotary embedding of (.., tokens, width) in the form that rotates halves."""
    wide = torch.promote_types(x.dtype, torch.float32)
    cosine, sine = _rotary(x.shape[-2], x.shape[-1], base, x.device, wide)
    return (x * cosine + x.roll(x.shape[-1] // 2, -1) * sine).to(x.dtype)


@cache
def _window(tokens: int, width: int, device: Any) -> T:
    at = torch.arange(tokens, device=device)
    distance = at[:, None] - at[None, :]
    return (distance >= 0) & (distance < width)


def _lengths(n: T, keys: int) -> T:
    """Which keys each sequence of a batch has: (batch, 1, 1, keys)."""
    return torch.arange(keys, device=n.device)[None, None, None, :] < n[:, None, None, None]


def _attend(q: T, k: T, v: T, mask: T | None, scale: float) -> T:
    more = {} if q.shape[1] == k.shape[1] else {"enable_gqa": True}
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, **more)


def _rmsnorm_qkv(x: T, g: T, wq: T, wk: T, wv: T) -> tuple[T, T, T]:
    n = _rms(x, g, 1e-5)
    return n @ wq.T, n @ wk.T, n @ wv.T


def _rope(q: T) -> T:
    return _rotated(q, 500000.0)


def _qk_norm_rope(q: T, g: T) -> T:
    return _rotated(_rms(q, g, 1e-6).transpose(1, 2), 1000000.0).contiguous()


def _softcap_attention(q: T, k: T, v: T) -> T:
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    x = 50.0 * torch.tanh(q @ k.transpose(-1, -2) * 256.0**-0.5 / 50.0)
    x = x.masked_fill(~_window(q.shape[2], 4096, q.device), -math.inf)
    return torch.softmax(x, -1) @ v


def _local_attention(q: T, k: T, v: T, gq: T, gk: T) -> T:
    q, k = _rms(q, 1.0 + gq, 1e-6), _rms(k, 1.0 + gk, 1e-6)
    return _attend(q, k, v, _window(q.shape[2], 1024, q.device), 256.0**-0.5)


def _gqa_decode(q: T, k: T, v: T, n: T) -> T:
    o = _attend(q[:, :, None], k, v, _lengths(n, k.shape[2]), q.shape[-1] ** -0.5)
    return o[:, :, 0]


def _geglu_mlp(x: T, wg: T, wu: T, wd: T) -> T:
    return (F.gelu(x @ wg.T, approximate="tanh") * (x @ wu.T)) @ wd.T


def _sandwich_norm(x: T, y: T, g1: T, g2: T) -> tuple[T, T]:
    h = x + _rms(y, 1.0 + g1, 1e-6)
    return h, _rms(h, 1.0 + g2, 1e-6)


def _residual_layernorm(x: T, y: T, g: T, b: T) -> tuple[T, T]:
    h = x + y
    return h, F.layer_norm(h, (h.shape[-1],), g, b, 1e-5)


def _output_layernorm(x: T, r: T, w: T, b: T, g: T, o: T) -> T:
    return F.layer_norm(F.linear(x, w, b) + r, (r.shape[-1],), g, o, 1e-12)


def _mlp(x: T, w1: T, b1: T, w2: T, b2: T) -> T:
    return F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2)


def _padded_attention(q: T, k: T, v: T, n: T) -> T:
    return _attend(q, k, v, _lengths(n, k.shape[2]), q.shape[-1] ** -0.5)


def _router(x: T, w: T) -> T:
    z = x @ w.T
    p = torch.softmax(z if z.dtype == torch.float64 else z.float(), -1)
    best, places = p.topk(2, -1)
    return torch.zeros_like(p).scatter(-1, places, best / best.sum(-1, keepdim=True))


def _experts(x: T, w: T, wg: T, wu: T, wd: T) -> T:
    a, u = x @ wg.transpose(1, 2), x @ wu.transpose(1, 2)
    y = (F.silu(a) * u) @ wd.transpose(1, 2)
    return torch.einsum("ne,enc->nc", w.to(y.dtype), y)


def _capped_loss(x: T, w: T, y: T) -> T:
    z = 30.0 * torch.tanh(x @ w.T / 30.0)
    return F.cross_entropy(z if z.dtype == torch.float64 else z.float(), y.long())


def _patches(x: T, w: T, b: T, pos: T) -> T:
    return F.conv2d(x, w, b, stride=w.shape[-1]).flatten(2).transpose(1, 2) + pos


def _vit_attention(q: T, k: T, v: T) -> T:
    q, k, v = (x.unflatten(-1, (-1, 64)).transpose(1, 2) for x in (q, k, v))
    return _attend(q, k, v, None, 64**-0.5).transpose(1, 2).flatten(2)


def _dynamic_int8(x: T, g: T) -> tuple[T, T]:
    y = _rms(x, g, 1e-5)
    y = y if y.dtype == torch.float64 else y.float()
    s = y.abs().amax(-1) / 127.0
    return torch.round(y / s[:, None]).to(torch.int8), s


def _latent_decode(qc: T, qr: T, c: T, kr: T, n: T) -> T:
    x = (qc @ c.transpose(1, 2) + qr @ kr.transpose(1, 2)) * 192.0**-0.5
    x = x.masked_fill(~_lengths(n, c.shape[1])[:, 0], -math.inf)
    return torch.softmax(x, -1) @ c


def _output_residual(x: T, o: T, w: T) -> T:
    return x + o.transpose(1, 2).flatten(2) @ w.T


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "llama3_rmsnorm_qkv": _rmsnorm_qkv,
    "llama3_rope": _rope,
    "qwen3_qk_norm_rope": _qk_norm_rope,
    "gemma2_local_softcap_attention": _softcap_attention,
    "gemma3_local_attention": _local_attention,
    "llama3_gqa_decode": _gqa_decode,
    "gemma2_geglu_mlp": _geglu_mlp,
    "gemma2_sandwich_norm": _sandwich_norm,
    "gpt2_residual_layernorm": _residual_layernorm,
    "bert_output_layernorm": _output_layernorm,
    "gpt2_mlp": _mlp,
    "bert_padded_attention": _padded_attention,
    "mixtral_router": _router,
    "mixtral_expert_combine": _experts,
    "gemma2_capped_cross_entropy": _capped_loss,
    "vit_patch_embedding": _patches,
    "vit_attention": _vit_attention,
    "rmsnorm_dynamic_int8": _dynamic_int8,
    "deepseek_mla_decode": _latent_decode,
    "attention_output_residual": _output_residual,
}
# Deviations that keep results about 1, and bounds of whole numbers.
SCALES: Mapping[str, Mapping[str, float | tuple[float, float]]] = {
    "llama3_rmsnorm_qkv": dict.fromkeys(("Wq", "Wk", "Wv"), 4096**-0.5),
    "gemma3_local_attention": {"gq": 0.1, "gk": 0.1},
    "llama3_gqa_decode": {"n": (1, 8193)},
    "gemma2_geglu_mlp": {"Wg": 3584**-0.5, "Wu": 3584**-0.5, "Wd": 14336**-0.5},
    "gemma2_sandwich_norm": {"g1": 0.1, "g2": 0.1},
    "bert_output_layernorm": {"W": 3072**-0.5},
    "gpt2_mlp": {"W1": 768**-0.5, "W2": 3072**-0.5},
    "bert_padded_attention": {"n": (1, 513)},
    "mixtral_router": {"Wr": 4096**-0.5},
    "mixtral_expert_combine": {
        "w": (0.0, 0.5), "Wg": 4096**-0.5, "Wu": 4096**-0.5, "Wd": 14336**-0.5,
    },
    "gemma2_capped_cross_entropy": {"W": 3584**-0.5, "y": (0, 256000)},
    "vit_patch_embedding": {"W": 768**-0.5},
    "deepseek_mla_decode": {"n": (1, 8193)},
    "attention_output_residual": {"W": 4096**-0.5},
}  # fmt: skip


def work(case: Case) -> Work:
    """The work of a program of corpus.nau."""
    function = FUNCTIONS[case.program]
    plain = plainly(function)
    made = (Contestant("eager", "library", partial(plainly, function)), *compiled(function))
    return Work(partial(_exact, plain), plain, made, scales=SCALES.get(case.program, {}))


def _exact(function: Callable[[Tensors], Outputs], given: Tensors) -> Outputs:
    wide = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    return tuple(x.double() for x in function(wide))
