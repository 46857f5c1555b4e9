"""What a case must do, counted from its mathematics: pairs that a mask keeps, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .case import Case

__all__ = ["flops", "kept_pairs"]

Sizes = Mapping[str, int]

_CAUSAL = ("causal", "alibi", "sinks", "ripple")
_WINDOW = ("window", "together")
PREFIX, WINDOW = 512, 1024  # defaults of programs/attention.nau


def kept_pairs(program: str, z: Sizes) -> int:
    """(query, key) pairs of one head that a program of attention.nau keeps."""
    queries, keys = z["T"], z["S"]
    if program in _CAUSAL:
        return sum(min(keys, t + 1 + keys - queries) for t in range(queries))
    if program in _WINDOW:
        return sum(min(t + 1, z.get("W", WINDOW)) for t in range(queries))
    if program == "prefix":
        return sum(min(keys, max(z.get("P", PREFIX), t + 1)) for t in range(queries))
    return queries * keys


def flops(case: Case) -> float:
    """Operations of the contractions, a multiplication and an addition counted as two; 0 for what
    moves bytes alone, and where nobody counted."""
    count = _FLOPS.get(case.program)
    if case.file == "attention":
        return _attention(case.sizes, kept_pairs(case.program, case.sizes))
    return count(case.sizes) if count else 0.0


def _attention(z: Sizes, pairs: int) -> float:
    return 4.0 * z["B"] * z["H"] * z["D"] * pairs


def _product(z: Sizes) -> float:
    return 2.0 * z["M"] * z["N"] * z["K"]


def _lora(z: Sizes) -> float:
    rank = z.get("R", 16)
    return _product(z) + 2.0 * rank * z["M"] * (z["N"] + z["K"])


def _block(z: Sizes) -> float:
    """The defaults of programs/block.nau: hidden, keys, feed-forward, heads."""
    hidden, keys, wide, heads, width = 4096, 1024, 14336, 32, 128
    products = 2.0 * z["T"] * hidden * (2 * hidden + 2 * keys + 3 * wide)
    pairs = kept_pairs("causal", {"T": z["T"], "S": z["T"]})
    return products + _attention({"B": 1, "H": heads, "D": width}, pairs)


_FLOPS: Mapping[str, Callable[[Sizes], float]] = {
    **dict.fromkeys(("gemm", "gemm_rows", "bias_gelu", "norm_gemm", "gemm_residual"), _product),
    "swiglu": lambda z: 2.0 * _product(z),
    "lora": _lora,
    "gemm8": _product,
    "transformer_block": _block,
    "attention8": lambda z: _attention(z, z["T"] * z["S"]),
}
