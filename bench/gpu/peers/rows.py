"""Rows and pointwise chains: eager torch, torch.compile, Liger and quack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Case
from .contestant import Contestant, Outputs, Tensors, Work, compiled, plainly

__all__ = ["FUNCTIONS", "work"]

T = torch.Tensor


def _softmax(x: T) -> T:
    return torch.softmax(x, -1)


def _layernorm(x: T, g: T, b: T) -> T:
    return F.layer_norm(x, (x.shape[-1],), g, b, 1e-5)


def _rmsnorm(x: T, g: T) -> T:
    return F.rms_norm(x, (x.shape[-1],), g, 1e-6)


def _residual(x: T, r: T, g: T) -> tuple[T, T]:
    h = x + r
    return _rmsnorm(h, g), h


def _loss(z: T, label: T) -> T:
    wide = z if z.dtype == torch.float64 else z.float()
    return F.cross_entropy(wide, label.long(), reduction="none")


def _gelu_gate(x: T, b: T, y: T) -> T:
    return F.gelu(x + b, approximate="tanh") * y


def _silu_gate(x: T, y: T) -> T:
    return F.silu(x) * y


def _chain(x: T, y: T, c: T) -> T:
    a = torch.tanh(x * c[:, None]) + y
    return a * torch.sigmoid(y) + 0.5 * F.relu(a)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "softmax_rows": _softmax,
    "layernorm_rows": _layernorm,
    "rmsnorm_rows": _rmsnorm,
    "residual_rows": _residual,
    "loss_rows": _loss,
    "gelu_gate": _gelu_gate,
    "silu_gate": _silu_gate,
    "chain": _chain,
}


def work(case: Case) -> Work:
    """The work of a program of rows.nau."""
    function = FUNCTIONS[case.program]
    scales = {"label": (0.0, float(case.sizes["N"]))}
    made = (
        Contestant("eager", "library", partial(plainly, function)),
        *compiled(function),
        *_wheels(case),
    )
    exact = partial(_exact, plainly(function))
    return Work(exact, plainly(function), made, scales=scales, copies=True)


def _exact(function: Callable[[Tensors], Outputs], given: Tensors) -> Outputs:
    return function({n: x.double() if x.is_floating_point() else x for n, x in given.items()})


def _wheels(case: Case) -> tuple[Contestant, ...]:
    """The optional packages' kernels for this program, made when they are wanted."""
    made = {
        name: {p: f for p, f in table.items() if p == case.program}
        for name, table in (("liger", _LIGER), ("quack", _QUACK))
    }
    packages = {"liger": "liger_kernel", "quack": "quack"}
    return tuple(
        Contestant(name, "wheel", make, packages[name])
        for name, able in made.items()
        for make in able.values()
    )


def _liger_softmax() -> Any:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction  # type: ignore[import-not-found]

    return plainly(LigerSoftmaxFunction.apply)


def _liger_layernorm() -> Any:
    from liger_kernel.ops.layer_norm import (  # type: ignore[import-not-found]
        LigerLayerNormFunction,
    )

    return plainly(lambda x, g, b: LigerLayerNormFunction.apply(x, g, b, 1e-5))


def _liger_rmsnorm() -> Any:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # type: ignore[import-not-found]

    return plainly(lambda x, g: LigerRMSNormFunction.apply(x, g, 1e-6))


def _liger_silu() -> Any:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction  # type: ignore[import-not-found]

    return plainly(LigerSiLUMulFunction.apply)


def _quack_softmax() -> Any:
    from quack.softmax import softmax  # type: ignore[import-not-found]

    return plainly(softmax)


def _quack_rmsnorm() -> Any:
    from quack.rmsnorm import rmsnorm  # type: ignore[import-not-found]

    return plainly(lambda x, g: rmsnorm(x, g, eps=1e-6))


def _quack_loss() -> Any:
    from quack.cross_entropy import cross_entropy  # type: ignore[import-not-found]

    return plainly(lambda z, label: cross_entropy(z, label.long(), reduction="none"))


_LIGER: Mapping[str, Callable[[], Any]] = {
    "softmax_rows": _liger_softmax,
    "layernorm_rows": _liger_layernorm,
    "rmsnorm_rows": _liger_rmsnorm,
    "silu_gate": _liger_silu,
}
_QUACK: Mapping[str, Callable[[], Any]] = {
    "softmax_rows": _quack_softmax,
    "rmsnorm_rows": _quack_rmsnorm,
    "loss_rows": _quack_loss,
}
