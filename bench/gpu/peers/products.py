"""Matrix products and what stands around them: torch over cuBLAS, torch.compile, Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor as T

from ..case import Case
from .contestant import Contestant, Function, Outputs, Tensors, Work, compiled, plainly
from .wheels import of_products

__all__ = ["FUNCTIONS", "work"]


def _gemm(a: T, w: T) -> T:
    return a @ w.T


def _gemm_rows(a: T, b: T) -> T:
    return a @ b


def _bias_gelu(a: T, w: T, b: T) -> T:
    return F.gelu(F.linear(a, w, b), approximate="tanh")


def _swiglu(a: T, w1: T, w2: T) -> T:
    return F.silu(a @ w1.T) * (a @ w2.T)


def _norm_gemm(a: T, g: T, w: T) -> T:
    return F.rms_norm(a, (a.shape[-1],), g, 1e-6) @ w.T


def _gemm_residual(a: T, w: T, r: T) -> T:
    return torch.addmm(r, a, w.T)


def _lora(a: T, w: T, l1: T, l2: T) -> T:
    return torch.addmm(a @ w.T, a @ l1.T, l2.T, alpha=2.0)


FUNCTIONS: Mapping[str, Callable[..., T]] = {
    "gemm": _gemm,
    "gemm_rows": _gemm_rows,
    "bias_gelu": _bias_gelu,
    "swiglu": _swiglu,
    "norm_gemm": _norm_gemm,
    "gemm_residual": _gemm_residual,
    "lora": _lora,
}


def work(case: Case) -> Work:
    """The work of a program of products.nau; weights have deviation one over the root of their
    inputs, so that results are about 1."""
    function = FUNCTIONS[case.program]
    plain = plainly(function)
    weight = case.sizes["K"] ** -0.5
    scales = dict.fromkeys(("W", "W1", "W2", "B", "L1"), weight) | {"L2": 0.25}
    return Work(partial(_exact, function), plain, _contestants(case, function), scales=scales)


def _exact(function: Callable[..., T], given: Tensors) -> Outputs:
    return (function(*(x.double() for x in given.values())),)


def _contestants(case: Case, function: Callable[..., T]) -> tuple[Contestant, ...]:
    bare = case.program in ("gemm", "gemm_rows")
    first = Contestant("cublas" if bare else "eager", "library", partial(plainly, function))
    if not bare:
        return (first, *of_products(case), *compiled(function))
    made = [first]
    if min(case.sizes["M"], case.sizes["N"]) >= 128:
        made.append(Contestant("triton", "triton", partial(_triton, case), "triton"))
    return (*made, *of_products(case), compiled(function)[1])


def _triton(case: Case) -> Function:
    from .triton_matmul import matmul

    return matmul(by_rows=case.program == "gemm_rows")
