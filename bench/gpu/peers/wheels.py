"""Peers that take part where they are installed: Liger, quack, FlashAttention-4, TileLang.

Each maker imports its package when it is called. A package that has changed its interface fails
there, and the record says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ..case import Case
from .contestant import Contestant, Function, Outputs, Tensors, plainly

__all__ = ["of_attention", "of_products", "of_rows"]

WINDOW = 1024  # as in programs/attention.nau
Maker = Callable[[], Function]


def of_rows(case: Case) -> tuple[Contestant, ...]:
    """Liger's and quack's kernels for a program of rows.nau."""
    tables = (("liger", "liger_kernel", _LIGER), ("quack", "quack", _QUACK))
    return tuple(
        Contestant(name, "wheel", table[case.program], package)
        for name, package, table in tables
        if case.program in table
    )


def of_products(case: Case) -> tuple[Contestant, ...]:
    """quack's and TileLang's products for a program of products.nau."""
    made = [Contestant("quack", "wheel", partial(_quack_product, case.program), "quack")]
    if case.program == "gemm" and case.sizes["M"] >= 128:
        made.append(Contestant("tilelang", "wheel", _tilelang_product, "tilelang"))
    return tuple(made) if case.program in _QUACK_PRODUCTS else ()


def of_attention(case: Case) -> tuple[Contestant, ...]:
    """FlashAttention-4, and TileLang where heads do not share key heads."""
    z = case.sizes
    made = []
    if case.program in _FA4 and z["T"] == z["S"]:
        made.append(Contestant("fa4", "wheel", partial(_fa4, case), "flash_attn"))
    square = z["T"] == z["S"] and z["H"] == z["Hk"] and z["D"] in (64, 128)
    if square and case.program in ("full", "causal"):
        make = partial(_tilelang_attention, case.program == "causal")
        made.append(Contestant("tilelang", "wheel", make, "tilelang"))
    return tuple(made)


def _liger(path: str, name: str, *more: Any) -> Maker:
    """One of Liger's autograd functions, forward alone; `more` are its last arguments."""

    def make() -> Function:
        import importlib

        function = getattr(importlib.import_module(f"liger_kernel.ops.{path}"), name)
        return plainly(lambda *tensors: function.apply(*tensors, *more))

    return make


_LIGER: Mapping[str, Maker] = {
    "softmax_rows": _liger("softmax", "LigerSoftmaxFunction"),
    "layernorm_rows": _liger("layer_norm", "LigerLayerNormFunction", 1e-5),
    "rmsnorm_rows": _liger("rms_norm", "LigerRMSNormFunction", 1e-6),
    "silu_gate": _liger("swiglu", "LigerSiLUMulFunction"),
}


def _quack_softmax() -> Function:
    from quack.softmax import softmax_fwd

    return plainly(softmax_fwd)


def _quack_rmsnorm() -> Function:
    from quack.rmsnorm import rmsnorm_fwd

    return plainly(lambda x, g: rmsnorm_fwd(x, g, eps=1e-6)[0])


def _quack_residual() -> Function:
    from quack.rmsnorm import rmsnorm_fwd

    return plainly(lambda x, r, g: rmsnorm_fwd(x, g, residual=r, eps=1e-6)[:2])


def _quack_loss() -> Function:
    from quack.cross_entropy import cross_entropy_fwd

    return plainly(cross_entropy_fwd)


_QUACK: Mapping[str, Maker] = {
    "softmax_rows": _quack_softmax,
    "rmsnorm_rows": _quack_rmsnorm,
    "residual_rows": _quack_residual,
    "loss_rows": _quack_loss,
}
_QUACK_PRODUCTS = ("gemm", "gemm_rows", "gemm_residual")


def _quack_product(program: str) -> Function:
    from quack.gemm_interface import gemm, gemm_add

    makers: Mapping[str, Callable[..., Any]] = {
        "gemm": lambda a, w: gemm(a, w.T),
        "gemm_rows": gemm,
        "gemm_residual": lambda a, w, r: gemm_add(a, w.T, r),
    }
    return plainly(makers[program])


def _tilelang_product() -> Function:
    from .tilelang_kernels import matmul

    return matmul()


def _tilelang_attention(causal: bool) -> Function:
    from .tilelang_kernels import attention

    return attention(causal)


_FA4: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "softcap": {"softcap": 30.0},
    "window": {"causal": True, "window_size": (WINDOW - 1, 0)},
    "sinks": {"causal": True},
}


def _fa4(case: Case) -> Function:
    from flash_attn.cute.interface import flash_attn_func

    more, kept = dict(_FA4[case.program]), {}

    def run(given: Tensors) -> Outputs:
        if id(given) not in kept:  # its layout has tokens before heads
            kept[id(given)] = [given[n].transpose(1, 2).contiguous() for n in "QKV"]
        if "sink" in given:
            more["learnable_sink"] = given["sink"].to(torch.bfloat16)
        result = flash_attn_func(*kept[id(given)], **more)
        return ((result[0] if isinstance(result, tuple) else result).transpose(1, 2),)

    return run
