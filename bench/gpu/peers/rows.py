"""Rows and pointwise chains: eager torch, torch.compile, Liger and quack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor as T

from ..case import Case
from .contestant import Contestant, Outputs, Tensors, Work, compiled, plainly
from .wheels import of_rows

__all__ = ["FUNCTIONS", "work"]


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
        *of_rows(case),
    )
    exact = partial(_exact, plainly(function))
    return Work(exact, plainly(function), made, scales=scales, copies=True)


def _exact(function: Callable[[Tensors], Outputs], given: Tensors) -> Outputs:
    return function({n: x.double() if x.is_floating_point() else x for n, x in given.items()})
