"""Peers that take part where they are installed: Liger, quack, FlashAttention-4, TileLang.

Each maker imports its package when it is called. A package that has changed its interface fails
there, and the record says so. Written for Liger 0.8.5, quack 0.6.5, FlashAttention 4.0.0b36 and
TileLang 0.1.15. What a package wants in another layout (gates interleaved, tokens before heads) is
laid out before the race.
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
    made = []
    if case.program in _QUACK_PRODUCTS:
        plain, tuned = (partial(_quack_product, case.program, t) for t in (False, True))
        made.append(Contestant("quack", "wheel", plain, "quack"))
        made.append(Contestant("quack_tuned", "autotuned", tuned, "quack"))
    if case.program == "gemm" and case.sizes["M"] >= 128:
        made.append(Contestant("tilelang", "wheel", _tilelang_product, "tilelang"))
    return tuple(made)


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


def _liger_loss() -> Function:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    def run(z: torch.Tensor, label: torch.Tensor) -> Any:
        return LigerCrossEntropyFunction.apply(z, label.long(), None, -100, 0.0, 0.0, "none")[0]

    return plainly(run)


_LIGER: Mapping[str, Maker] = {
    "softmax_rows": _liger("softmax", "LigerSoftmaxFunction"),
    "layernorm_rows": _liger("layer_norm", "LigerLayerNormFunction", 1e-5),
    "rmsnorm_rows": _liger("rms_norm", "LigerRMSNormFunction", 1e-6),
    "residual_rows": _liger("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", 1e-6),
    "silu_gate": _liger("swiglu", "LigerSiLUMulFunction"),
    "loss_rows": _liger_loss,
}


def _quack_softmax() -> Function:
    from quack.softmax import softmax_fwd

    return plainly(softmax_fwd)


def _quack_rmsnorm() -> Function:
    from quack.rmsnorm import rmsnorm_fwd

    return plainly(lambda x, g: rmsnorm_fwd(x, g, eps=1e-6)[0])


def _quack_layernorm() -> Function:
    from quack.rmsnorm import layernorm_fwd

    return plainly(lambda x, g, b: layernorm_fwd(x, g.float(), b.float(), eps=1e-5))


def _quack_residual() -> Function:
    from quack.rmsnorm import rmsnorm_fwd

    return plainly(lambda x, r, g: rmsnorm_fwd(x, g, residual=r, eps=1e-6)[:2])


def _quack_loss() -> Function:
    from quack.cross_entropy import cross_entropy_fwd

    return plainly(cross_entropy_fwd)


_QUACK: Mapping[str, Maker] = {
    "softmax_rows": _quack_softmax,
    "layernorm_rows": _quack_layernorm,
    "rmsnorm_rows": _quack_rmsnorm,
    "residual_rows": _quack_residual,
    "loss_rows": _quack_loss,
}
_QUACK_PRODUCTS = ("gemm", "gemm_rows", "gemm_residual", "bias_gelu", "swiglu")


def _quack_product(program: str, tuned: bool) -> Function:
    """quack's product with its default tiles, or with those that its search finds."""
    from quack.gemm_interface import gemm, gemm_act, gemm_add

    if program == "swiglu":
        return _quack_gated(tuned)
    act: dict[str, Any] = {"activation": "gelu_tanh_approx", "store_preact": False}
    makers: Mapping[str, Callable[..., Any]] = {
        "gemm": lambda a, w: gemm(a, w.T, tuned=tuned),
        "gemm_rows": lambda a, b: gemm(a, b, tuned=tuned),
        "gemm_residual": lambda a, w, r: gemm_add(a, w.T, r, tuned=tuned),
        "bias_gelu": lambda a, w, b: gemm_act(a, w.T, bias=b, tuned=tuned, **act)[1],
    }
    return plainly(makers[program])


def _quack_gated(tuned: bool) -> Function:
    from quack.gemm_interface import gemm_act

    laid = _Laid(lambda given: torch.stack((given["W1"], given["W2"]), 1).flatten(0, 1))

    def run(given: Tensors) -> Outputs:
        act: dict[str, Any] = {"activation": "swiglu", "store_preact": False, "tuned": tuned}
        return (gemm_act(given["A"], laid(given).T, **act)[1],)

    return run


class _Laid:
    """Inputs in another layout, made once for each set of them."""

    def __init__(self, make: Callable[[Tensors], Any]) -> None:
        self.make, self.kept = make, dict[int, tuple[Tensors, Any]]()

    def __call__(self, given: Tensors) -> Any:
        if id(given) not in self.kept:  # with the set itself: an id may be given out again
            self.kept[id(given)] = given, self.make(given)
        return self.kept[id(given)][1]


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

    more = dict(_FA4[case.program])
    laid = _Laid(lambda given: [given[n].transpose(1, 2).contiguous() for n in "QKV"])
    sinks = _Laid(lambda given: given["sink"].to(torch.bfloat16))

    def run(given: Tensors) -> Outputs:
        sink = {"learnable_sink": sinks(given)} if "sink" in given else {}
        result = flash_attn_func(*laid(given), **more, **sink)
        return ((result[0] if isinstance(result, tuple) else result).transpose(1, 2),)

    return run
