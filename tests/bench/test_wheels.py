"""The adapters of optional peers against stand-ins that compute the same with torch: what is passed
in which place, and that what comes back is the program's result. Run where torch is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import torch.nn.functional as F  # noqa: E402
from gpu.case import Case  # noqa: E402
from gpu.peers import work_of  # noqa: E402

ATTENTION = {"B": 2, "H": 3, "Hk": 3, "T": 1100, "S": 1100, "D": 64}
PRODUCT = {"M": 6, "N": 8, "K": 4}
ROWS = {"M": 4, "N": 12}


def function(run: Any) -> Any:
    return SimpleNamespace(apply=run)


def norm(x: Any, w: Any = None, eps: float = 1e-6, residual: Any = None) -> Any:
    h = x if residual is None else x + residual
    return F.rms_norm(h, h.shape[-1:], w, eps), h, None


def gemm_act(
    a: Any, b: Any, bias: Any = None, activation: str = "", store_preact: bool = True,
    tuned: bool = True,
) -> Any:  # fmt: skip
    z = a @ b if bias is None else a @ b + bias
    if activation == "swiglu":  # gates and values in turn
        return None, F.silu(z[:, 0::2]) * z[:, 1::2]
    assert activation == "gelu_tanh_approx"
    return None, F.gelu(z, approximate="tanh")


def flash(q: Any, k: Any, v: Any, causal: bool = False, window_size: Any = (None, None),
          learnable_sink: Any = None, softcap: float = 0.0) -> Any:  # fmt: skip
    x = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    x = softcap * torch.tanh(x / softcap) if softcap else x
    t, s = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])[None, :]
    left = window_size[0]
    keep = (s <= t) if causal else s >= 0
    keep = keep & (s >= t - left) if left is not None else keep
    x = x.masked_fill(~keep, -torch.inf)
    if learnable_sink is not None:
        sink = learnable_sink.to(x.dtype)[None, :, None, None].expand(*x.shape[:3], 1)
        x = torch.cat((x, sink), -1)
    p = torch.softmax(x, -1)[..., : k.shape[1]]
    return torch.einsum("bhts,bshd->bthd", p, v), None


def loss(
    z: Any, label: Any, weight: Any, ignored: int, square: float, smooth: float, how: str
) -> Any:
    assert (weight, ignored, square, smooth) == (None, -100, 0.0, 0.0)
    return F.cross_entropy(z, label, reduction=how), None, None, None


PACKAGES = {
    "liger_kernel.ops.softmax": {"LigerSoftmaxFunction": function(lambda x: torch.softmax(x, -1))},
    "liger_kernel.ops.layer_norm": {
        "LigerLayerNormFunction": function(lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps))
    },
    "liger_kernel.ops.rms_norm": {
        "LigerRMSNormFunction": function(lambda x, w, eps: norm(x, w, eps)[0])
    },
    "liger_kernel.ops.fused_add_rms_norm": {
        "LigerFusedAddRMSNormFunction": function(lambda x, r, w, eps: norm(x, w, eps, r)[:2])
    },
    "liger_kernel.ops.swiglu": {"LigerSiLUMulFunction": function(lambda a, b: F.silu(a) * b)},
    "liger_kernel.ops.cross_entropy": {"LigerCrossEntropyFunction": function(loss)},
    "quack.softmax": {"softmax_fwd": lambda x: torch.softmax(x, -1)},
    "quack.rmsnorm": {
        "rmsnorm_fwd": norm,
        "layernorm_fwd": lambda x, w, b, eps: F.layer_norm(x, w.shape, w.to(x), b.to(x), eps),
    },
    "quack.cross_entropy": {
        "cross_entropy_fwd": lambda z, label: F.cross_entropy(z, label.long(), reduction="none")
    },
    "quack.gemm_interface": {
        "gemm": lambda a, b, tuned: a @ b,
        "gemm_add": lambda a, b, c, tuned: a @ b + c,
        "gemm_act": gemm_act,
    },
    "flash_attn.cute.interface": {"flash_attn_func": flash},
}
SHAPES = {
    "attention": {"Q": "BHTD", "K": "BkSD", "V": "BkSD", "sink": "H"},
    "products": {
        "A": "MK", "W": "NK", "W1": "NK", "W2": "NK", "B": "KN", "b": "N", "R": "MN",
    },
    "rows": {"x": "MN", "r": "MN", "y": "MN", "z": "MN", "g": "N", "b": "N", "label": "M"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in PACKAGES.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


def given(case: Case, names: list[str]) -> dict[str, Any]:
    dice = torch.Generator().manual_seed(5)
    sizes = {n[0]: z for n, z in case.sizes.items() if n != "Hk"} | {"k": case.sizes.get("Hk", 0)}
    made = {}
    for name in names:
        shape = [sizes[n] for n in SHAPES[case.file][name]]
        made[name] = torch.randn(shape, generator=dice, dtype=torch.float64)
        if name == "label":
            made[name] = torch.randint(0, case.sizes["N"], shape, generator=dice).int()
    return made


CASES = [
    *((Case("g", "rows", p, ROWS), n) for p, n in (
        ("softmax_rows", "x"), ("layernorm_rows", "x g b"), ("rmsnorm_rows", "x g"),
        ("residual_rows", "x r g"), ("silu_gate", "x y"), ("loss_rows", "z label"),
    )),
    *((Case("g", "products", p, PRODUCT), n) for p, n in (
        ("gemm", "A W"), ("gemm_rows", "A B"), ("gemm_residual", "A W R"), ("bias_gelu", "A W b"),
        ("swiglu", "A W1 W2"),
    )),
    *((Case("g", "attention", p, ATTENTION), "Q K V sink" if p == "sinks" else "Q K V")
      for p in ("full", "causal", "softcap", "window", "sinks")),
]  # fmt: skip


@pytest.mark.parametrize(("case", "names"), CASES, ids=lambda x: getattr(x, "program", ""))
def test_every_adapter_gives_the_programs_result(case: Case, names: str) -> None:
    work, tensors = work_of(case), given(case, names.split())
    exact = work.exact(tensors)
    peers = [c for c in work.contestants if c.needs in ("liger_kernel", "quack", "flash_attn")]
    assert peers
    for peer in peers:
        made = peer.make()
        for actual, true in zip(work.sample(made(tensors)), exact, strict=True):
            error = torch.linalg.norm(actual.double() - true) / torch.linalg.norm(true)
            assert error < (3e-3 if "sink" in tensors else 1e-6), peer.name


def test_another_set_of_inputs_is_laid_out_anew() -> None:
    case = Case("g", "attention", "full", ATTENTION)
    (peer,) = (c for c in work_of(case).contestants if c.name == "fa4")
    run, one = peer.make(), given(case, ["Q", "K", "V"])
    other = {n: x + 1 for n, x in one.items()}
    first = run(one)[0].clone()
    assert not torch.equal(run(other)[0], first)
    assert torch.equal(run(one)[0], first)
