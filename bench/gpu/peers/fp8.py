"""Eight-bit operands: cuBLAS' scaled product beside ours; no attention in torch takes them."""

from __future__ import annotations

import torch

from ..case import Case
from .contestant import Contestant, Function, Outputs, Tensors, Work

__all__ = ["work"]

EIGHT = torch.float8_e4m3fn


def work(case: Case) -> Work:
    """The work of a program of fp8.nau."""
    if case.program == "gemm8":
        weight = case.sizes["K"] ** -0.5
        scales = {"sa": (0.5, 1.5), "sw": (0.5 * weight, 1.5 * weight)}
        return Work(
            _exact_product, _product, (Contestant("cublas", "library", _scaled),), scales=scales
        )
    return Work(_exact_attention, _attention, (), sample=_first_heads)


def _exact_product(given: Tensors) -> Outputs:
    a, w, sa, sw = (x.double() for x in given.values())
    return (a @ w.T * sa[:, None] * sw,)


def _product(given: Tensors) -> Outputs:
    a, w, sa, sw = (x.float() for x in given.values())
    return ((a @ w.T * sa[:, None] * sw).bfloat16(),)


def _scaled() -> Function:
    """One scale a row of either operand, as the program has them."""

    def run(given: Tensors) -> Outputs:
        a, w, sa, sw = given.values()
        c = torch._scaled_mm(
            a, w.T, scale_a=sa[:, None], scale_b=sw[None, :], out_dtype=torch.bfloat16
        )
        return (c,)

    return run


def _first_heads(outputs: Outputs) -> Outputs:
    """One head of the first and of the last sequence."""
    (o,) = outputs
    return (torch.stack([o[0, 0], o[-1, -1]]),)


def _exact_attention(given: Tensors) -> Outputs:
    return _heads(given, torch.float64)


def _attention(given: Tensors) -> Outputs:
    """Probabilities rounded to eight bits as well: what the types allow."""
    (o,) = _heads(given, torch.float32)
    return (o.bfloat16(),)


def _heads(given: Tensors, kind: torch.dtype) -> Outputs:
    found = []
    for place in (0, -1):
        q, k, v = (given[n][place, place].to(kind) for n in "QKV")
        x = q @ k.T * q.shape[-1] ** -0.5
        weights = torch.exp(x - x.amax(-1, keepdim=True))
        total = weights.sum(-1, keepdim=True)
        rounded = weights if kind == torch.float64 else weights.to(EIGHT).to(kind)
        found.append(rounded @ v / total)
    return (torch.stack(found),)
