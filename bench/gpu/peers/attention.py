"""Attention: the float64 truth on sampled rows, SDPA's backends, flex_attention, Triton.

A score is a function of the scaled product and of head, query and key numbers, the same one for the
truth and for flex_attention; so is a mask. Numbers come as tensors that broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..case import Case
from .contestant import Contestant, Function, Outputs, Tensors, Work
from .wheels import of_attention

__all__ = ["SCORES", "Score", "work"]

CAP, WINDOW, PREFIX = 30.0, 1024, 512  # as in programs/attention.nau
SAMPLED = 1 << 26  # scores of the truth
HEADS = 6
Numbers = Any


@dataclass(frozen=True, slots=True)
class Score:
    """What is done to scaled scores, and which pairs stay (None: all). `sink`: an input holds one
    more logit for each head, which has no value."""

    change: Callable[..., torch.Tensor] | None = None  # (x, h, t, s, heads)
    keep: Callable[[Numbers, Numbers], Any] | None = None  # (t, s)
    sink: bool = False


def _slope(h: Numbers, heads: int) -> Any:
    return torch.exp2(-(h + 1) * (8.0 / heads))


def _causal(t: Numbers, s: Numbers) -> Any:
    return s <= t


def _window(t: Numbers, s: Numbers) -> Any:
    return (s <= t) & (t - s < WINDOW)


def _softcap(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return CAP * torch.tanh(x / CAP)


def _alibi(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return x + _slope(h, heads) * (s - t)


def _together(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return CAP * torch.tanh(x / CAP) + _slope(h, heads) * (s - t)


def _powerlaw(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return x - 0.75 * torch.log(1.0 + torch.abs(t - s))


def _ripple(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return x * (1.0 + 0.2 * torch.cos(0.05 * (t - s))) + x / (1.0 + x * x)


def _gated(x: Any, h: Numbers, t: Numbers, s: Numbers, heads: int) -> Any:
    return x * torch.sigmoid(2.0 * x)


SCORES: Mapping[str, Score] = {
    "full": Score(),
    "causal": Score(keep=_causal),
    "softcap": Score(_softcap),
    "alibi": Score(_alibi, _causal),
    "window": Score(keep=_window),
    "prefix": Score(keep=lambda t, s: (s < PREFIX) | (s <= t)),
    "sinks": Score(keep=_causal, sink=True),
    "together": Score(_together, _window),
    "powerlaw": Score(_powerlaw),
    "ripple": Score(_ripple, _causal),
    "gated": Score(_gated),
}


def work(case: Case) -> Work:
    """The work of a program of attention.nau."""
    score = SCORES[case.program]
    at = _Places(case.sizes)
    return Work(
        exact=partial(_rows, score, at, True),
        plain=partial(_rows, score, at, False),
        contestants=_contestants(case, score),
        sample=at.take,
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Sampled heads, the last one too, and rows of each from the last one up."""

    sizes: Mapping[str, int]

    def heads(self) -> list[tuple[int, int]]:
        z = self.sizes
        total = z["B"] * z["H"]
        numbers = sorted({(n * 7919 + 13) % total for n in range(HEADS - 1)} | {total - 1})
        return [divmod(n, z["H"]) for n in numbers]

    def rows(self, device: Any) -> torch.Tensor:
        z = self.sizes
        most = max(64, SAMPLED // (HEADS * z["S"]))
        step = -(-z["T"] // most)
        return torch.arange(z["T"] - 1, -1, -step, device=device)

    def take(self, outputs: Outputs) -> Outputs:
        (o,) = outputs
        rows = self.rows(o.device)
        return (torch.stack([o[b, h][rows] for b, h in self.heads()]),)


def _rows(score: Score, at: _Places, exact: bool, given: Tensors) -> Outputs:
    """Sampled rows in float64, or in f32 with probabilities and results rounded as inputs are."""
    q, k, v = (given[n] for n in "QKV")
    kind = torch.float64 if exact else torch.float32
    group = q.shape[1] // k.shape[1]
    rows, found = at.rows(q.device), []
    for b, h in at.heads():
        keys, values = (x[b, h // group].to(kind) for x in (k, v))
        x = (q[b, h][rows].to(kind) @ keys.T) * q.shape[-1] ** -0.5
        y = _scored(score, x, torch.full((), h, device=q.device), rows, q.shape[1], k.shape[2])
        sink = given["sink"][h].to(kind) if score.sink else None
        found.append(_mixed(y, values, sink, None if exact else q.dtype))
    return (torch.stack(found),)


def _scored(
    score: Score, x: torch.Tensor, h: torch.Tensor, rows: torch.Tensor, heads: int, keys: int
) -> torch.Tensor:
    t, s = rows[:, None].to(x.dtype), torch.arange(keys, device=x.device)[None, :].to(x.dtype)
    y = score.change(x, h.to(x.dtype), t, s, heads) if score.change else x
    return y.masked_fill(~score.keep(t, s), -math.inf) if score.keep else y


def _mixed(
    y: torch.Tensor, values: torch.Tensor, sink: torch.Tensor | None, rounded: Any
) -> torch.Tensor:
    """softmax(y) @ values; probabilities and the result pass through the type `rounded`."""
    top = y.amax(-1, keepdim=True)
    weights = torch.exp(y - top)
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - top)
    if rounded is None:
        return weights @ values / total
    return (weights.to(rounded).to(y.dtype) @ values / total).to(rounded)


def _contestants(case: Case, score: Score) -> tuple[Contestant, ...]:
    z = case.sizes
    made = [Contestant("flex_attention", "compiled", partial(_flex, case, score))]
    if score.change is None and not score.sink and (score.keep is None or score.keep is _causal):
        made = [*_libraries(case, score.keep is not None), *made]
        if z["T"] > 1 and z["D"] in (64, 128):
            made.append(Contestant("triton", "triton", partial(_triton, case), "triton"))
    return (*made, *of_attention(case))


def _libraries(case: Case, causal: bool) -> list[Contestant]:
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash_attention": SDPBackend.FLASH_ATTENTION}
    z = case.sizes
    folds = (False, True) if z["T"] == 1 and z["H"] != z["Hk"] else (False,)
    return [
        Contestant(f"{name}_folded" if f else name, "library", partial(_sdpa, which, causal, f))
        for f in folds
        for name, which in backends.items()
    ]


def _sdpa(which: SDPBackend, causal: bool, folded: bool) -> Function:
    """torch's attention; `folded` passes the heads that share a key head as rows of it."""

    def run(given: Tensors) -> Outputs:
        q, k, v = (given[n] for n in "QKV")
        rows = q.view(*k.shape[:2], -1, q.shape[-1]) if folded else q
        more: dict[str, Any] = {} if rows.shape[1] == k.shape[1] else {"enable_gqa": True}
        with sdpa_kernel(which):
            o = F.scaled_dot_product_attention(rows, k, v, is_causal=causal, **more)
        return (o.view(q.shape) if folded else o,)

    return run


def _flex(case: Case, score: Score) -> Function:
    """flex_attention compiled for these shapes, with an explicit block mask where there is one."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    z, change, keep = case.sizes, score.change, score.keep
    more: dict[str, Any] = {} if z["H"] == z["Hk"] else {"enable_gqa": True}
    if change:
        more["score_mod"] = lambda x, b, h, t, s: change(x, h, t, s, z["H"])
    if keep:
        more["block_mask"] = create_block_mask(
            lambda b, h, t, s: keep(t, s), None, None, z["T"], z["S"], device="cuda"
        )
    call: Any = torch.compile(flex_attention, dynamic=False)

    def run(given: Tensors) -> Outputs:
        q, k, v = (given[n] for n in "QKV")
        if not score.sink:
            return (call(q, k, v, **more),)
        o, logs = call(q, k, v, return_lse=True, **more)
        return (o * torch.sigmoid(logs - given["sink"][None, :, None])[..., None].to(o.dtype),)

    return run


def _triton(case: Case) -> Function:
    from .triton_attention import attention

    return attention(causal=case.program == "causal")
