"""What stands beside split reductions: torch's own ways, and float64 on sampled results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["PEERS", "Peer"]

Sizes = Mapping[str, int]
Function = Callable[..., torch.Tensor]
HEADS = 6  # sampled heads, and rows of each
ROWS = 48


@dataclass(frozen=True, slots=True)
class Peer:
    """`plain` is torch in the program's own types (the yardstick of rounding), `sample` picks some
    of a result, `exact` gives the same in float64; all take the sizes first. `positive` inputs are
    uniform on [0, 1), others normal."""

    plain: Function
    exact: Function
    sample: Callable[[Sizes, torch.Tensor], torch.Tensor]
    others: Mapping[str, Function]
    positive: bool = False


def _places(z: Sizes) -> list[tuple[int, int]]:
    """Some heads of some batches, the last one too."""
    total = z["B"] * z["H"]
    numbers = sorted({(n * 7919 + 13) % total for n in range(HEADS - 1)} | {total - 1})
    return [divmod(n, z["H"]) for n in numbers]


def _rows(z: Sizes) -> torch.Tensor:
    step = max(1, z["T"] // ROWS)
    return torch.arange(z["T"] - 1, -1, -step, device="cuda")


def _heads(z: Sizes, o: torch.Tensor) -> torch.Tensor:
    return torch.stack([o[b, h][_rows(z)] for b, h in _places(z)])


def _exact_heads(causal: bool) -> Function:
    def exact(z: Sizes, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        at = _rows(z)
        hidden = torch.arange(z["S"], device="cuda")[None, :] > at[:, None] + (z["S"] - z["T"])
        found = []
        for b, h in _places(z):
            k, v = (x[b, h // (z["H"] // z["Hk"])].double() for x in (K, V))
            s = Q[b, h][at].double() @ k.T * z["D"] ** -0.5
            s = s.masked_fill(hidden, float("-inf")) if causal else s
            found.append(torch.softmax(s, -1) @ v)
        return torch.stack(found)

    return exact


def _sdpa(which: SDPBackend, causal: bool, folded: bool = False) -> Function:
    """torch's attention; `folded` passes the heads that share a key head as rows of it."""

    def attention(z: Sizes, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        q = Q.view(z["B"], z["Hk"], -1, z["D"]) if folded else Q
        more: dict[str, Any] = {} if folded or z["H"] == z["Hk"] else {"enable_gqa": True}
        with sdpa_kernel(which):
            o = F.scaled_dot_product_attention(q, K, V, is_causal=causal, **more)
        return o.view(Q.shape)

    return attention


def _attention(causal: bool) -> Peer:
    flash, cudnn = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
    others = {"flash_attention": _sdpa(flash, causal), "cudnn": _sdpa(cudnn, causal)}
    if not causal:
        others["flash_attention_folded"] = _sdpa(flash, causal, folded=True)
        others["cudnn_folded"] = _sdpa(cudnn, causal, folded=True)
    return Peer(_first_able(others), _exact_heads(causal), _heads, others)


def _first_able(functions: Mapping[str, Function]) -> Function:
    """The first of the functions that runs here."""

    def run(z: Sizes, **given: torch.Tensor) -> torch.Tensor:
        for function in functions.values():
            try:
                return function(z, **given)
            except RuntimeError:
                continue
        raise RuntimeError("no way of torch runs here")

    return run


def _whole(z: Sizes, result: torch.Tensor) -> torch.Tensor:
    return result


def _product(z: Sizes, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B.T


def _reduction(function: Callable[[torch.Tensor], torch.Tensor], positive: bool = False) -> Peer:
    def plain(z: Sizes, x: torch.Tensor) -> torch.Tensor:
        return function(x)

    def exact(z: Sizes, x: torch.Tensor) -> torch.Tensor:
        return function(x.double())

    return Peer(plain, exact, _whole, {"torch": plain}, positive)


PEERS: Mapping[str, Peer] = {
    "decode": _attention(causal=False),
    "prefill": _attention(causal=True),
    "deep_product": Peer(
        _product,
        lambda z, A, B: A.double() @ B.double().T,
        _whole,
        {"cublas": _product},
    ),
    "long_softmax": _reduction(lambda x: torch.softmax(x, -1)),
    "long_logsumexp": _reduction(lambda x: torch.logsumexp(x, -1)),
    "long_sum": _reduction(lambda x: torch.sum(x, -1), positive=True),
}
