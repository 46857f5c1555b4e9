"""The groups of cases that the goals speak of, those that matter most first in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .case import Case

__all__ = ["GROUPS", "MODELS", "cases"]

TOKENS, HIDDEN = 16384, 2048  # of a batch of attention, whatever the length of its sequences
LENGTHS = (4096, 16384, 1024, 512, 2048, 8192)
VARIANTS = (
    *("softcap", "alibi", "window", "prefix", "sinks", "together"),
    *("powerlaw", "ripple", "gated"),
)
# Query heads, key heads, width of a head, program: the model grid of the corpus' attention.json.
MODELS: Mapping[str, tuple[int, int, int, str]] = {
    "Qwen3-8B": (32, 8, 128, "causal"),
    "Qwen2-7B": (28, 4, 128, "causal"),
    "GLM-4-9B": (32, 2, 128, "causal"),
    "Llama2-7B": (32, 32, 128, "causal"),
    "ViT-L class encoder": (16, 16, 64, "full"),
    "ViT-H class encoder": (16, 16, 80, "full"),
}
GRID_LENGTHS = (4096, 1024, 2048, 8192, 16384, 32768)
SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096))  # M, N, K
CORPUS = (
    *("llama3_rmsnorm_qkv", "llama3_rope", "qwen3_qk_norm_rope", "gemma2_local_softcap_attention"),
    *("gemma3_local_attention", "llama3_gqa_decode", "gemma2_geglu_mlp", "gemma2_sandwich_norm"),
    *("gpt2_residual_layernorm", "bert_output_layernorm", "gpt2_mlp", "bert_padded_attention"),
    *("mixtral_router", "mixtral_expert_combine", "gemma2_capped_cross_entropy"),
    *("vit_patch_embedding", "vit_attention", "rmsnorm_dynamic_int8", "deepseek_mla_decode"),
    "attention_output_residual",
)


def cases(groups: Iterable[str], only: str = "") -> list[Case]:
    """The cases of some groups whose names hold a text, or one of several between commas. KeyError
    for an unknown group."""
    found = [case for group in groups for case in GROUPS[group]()]
    unique = {(c.group, c.name): c for c in found}
    return [c for c in unique.values() if any(text in c.name for text in only.split(","))]


def _heads(
    batch: int, heads: int, keys: int, queries: int, length: int, width: int
) -> dict[str, int]:
    return {"B": batch, "H": heads, "Hk": keys, "T": queries, "S": length, "D": width}


def _square(program: str, length: int, width: int, group: str) -> Case:
    heads = HIDDEN // width
    sizes = _heads(TOKENS // length, heads, heads, length, length, width)
    return Case(group, "attention", program, sizes)


def _attention() -> list[Case]:
    return [
        _square(program, length, width, "attention")
        for length in LENGTHS
        for width in (128, 64)
        for program in ("full", "causal")
    ]


def _variants() -> list[Case]:
    """Plain attention too: rates are compared within a run."""
    programs = ("full", "causal", *VARIANTS)
    return [_square(program, n, 128, "variants") for n in (4096, 16384) for program in programs]


def _grouped() -> list[Case]:
    return [
        Case("grouped", "attention", program, _heads(batch, heads, keys, length, length, width))
        for batch in (1, 8)
        for length in GRID_LENGTHS
        for heads, keys, width, program in MODELS.values()
    ]


def _decode() -> list[Case]:
    return [
        Case("decode", "attention", "full", _heads(batch, 64, 8, 1, length, 128))
        for length in (32768, 131072)
        for batch in (1, 16, 4, 2, 8)
    ]


def _product(group: str, program: str, m: int, n: int, k: int) -> Case:
    return Case(group, "products", program, {"M": m, "N": n, "K": k})


def _gemm() -> list[Case]:
    plain = [_product("gemm", "gemm", *shape) for shape in SHAPES]
    return [*plain, _product("gemm", "gemm_rows", *SHAPES[0])]


def _fused() -> list[Case]:
    square, wide, deep = SHAPES[0], SHAPES[2], (4096, 4096, 14336)
    rows = (
        *(("bias_gelu", wide), ("swiglu", wide), ("norm_gemm", square), ("gemm_residual", deep)),
        *(("lora", square), ("bias_gelu", square), ("norm_gemm", wide), ("gemm_residual", square)),
    )
    return [_product("fused", program, *shape) for program, shape in rows]


def _skinny() -> list[Case]:
    sides = ((4096, 4096), (14336, 4096), (4096, 14336))  # N, K
    return [_product("skinny", "gemm", rows, n, k) for n, k in sides for rows in (16, 64)]


def _rows() -> list[Case]:
    wide = (4096, 16384, 65536)
    norms = ("softmax_rows", "layernorm_rows", "rmsnorm_rows", "residual_rows")
    chains = ("gelu_gate", "silu_gate", "chain")
    grid = [(p, n, t) for t in ("bf16", "f32") for n in wide for p in (*norms, *chains)]
    losses = [("loss_rows", 128256, t) for t in ("bf16", "f32")]
    return [Case("rows", "rows", p, {"M": 4096, "N": n}, t) for p, n, t in (*losses, *grid)]


def _fp8() -> list[Case]:
    """The bf16 products too: times are compared within a run."""
    products = [Case("fp8", "fp8", "gemm8", dict(zip("MNK", s, strict=True))) for s in SHAPES]
    wide = [_product("fp8", "gemm", *shape) for shape in SHAPES]
    sizes = ({"B": TOKENS // n, "H": 16, "T": n, "S": n, "D": 128} for n in (4096, 16384))
    return [*products, *wide, *(Case("fp8", "fp8", "attention8", z) for z in sizes)]


def _block() -> list[Case]:
    return [Case("block", "block", "transformer_block", {"T": tokens}) for tokens in (4096, 1024)]


def _corpus() -> list[Case]:
    return [Case("corpus", "corpus", program) for program in CORPUS]


GROUPS: Mapping[str, Callable[[], Sequence[Case]]] = {
    "gemm": _gemm,
    "attention": _attention,
    "variants": _variants,
    "fused": _fused,
    "skinny": _skinny,
    "decode": _decode,
    "rows": _rows,
    "fp8": _fp8,
    "grouped": _grouped,
    "corpus": _corpus,
    "block": _block,
}
