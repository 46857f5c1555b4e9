"""The float64 truths of the peer harness against the oracle of the language, at small sizes.

They are torch functions, so these tests run where torch is installed; a CPU is enough.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from gpu.case import Case, text_of  # noqa: E402
from gpu.groups import GROUPS, cases  # noqa: E402
from gpu.peers import work_of  # noqa: E402

from nautile import lang  # noqa: E402
from nautile.oracle import run  # noqa: E402
from nautile.terms import Program  # noqa: E402

SMALL = {
    "attention": {"B": 2, "H": 4, "Hk": 2, "T": 32, "S": 32, "D": 16},
    "products": {"M": 12, "N": 20, "K": 16},
    "rows": {"M": 6, "N": 40},
    "block": {"T": 16, "C": 24, "H": 4, "Hk": 2, "D": 8, "F": 40},
}
CORPUS = {
    "llama3_rmsnorm_qkv": {"N": 5, "C": 16, "A": 12, "A2": 8},
    "llama3_rope": {"H": 2, "T": 24, "D": 16},
    "qwen3_qk_norm_rope": {"B": 2, "T": 24, "H": 3, "D": 16},
    "gemma2_local_softcap_attention": {"H": 4, "Hk": 2, "T": 32, "S": 32, "D": 16},
    "gemma3_local_attention": {"H": 4, "Hk": 2, "T": 32, "S": 32, "D": 16},
    "llama3_gqa_decode": {"B": 3, "H": 4, "Hk": 2, "S": 32, "D": 16},
    "gemma2_geglu_mlp": {"N": 5, "C": 16, "F": 24},
    "gemma2_sandwich_norm": {"N": 5, "C": 16},
    "gpt2_residual_layernorm": {"N": 5, "C": 16},
    "bert_output_layernorm": {"N": 5, "F": 24, "C": 16},
    "gpt2_mlp": {"N": 5, "C": 16, "F": 24},
    "bert_padded_attention": {"B": 3, "H": 2, "T": 16, "S": 16, "D": 8},
    "mixtral_router": {"N": 7, "C": 16},
    "mixtral_expert_combine": {"N": 5, "C": 16, "E": 4, "F": 12},
    "gemma2_capped_cross_entropy": {"N": 5, "C": 16, "V": 30},
    "vit_patch_embedding": {"B": 2, "R": 32, "G": 2, "P": 16, "E": 8},
    "vit_attention": {"B": 2, "T": 9, "H": 2, "D": 64},
    "rmsnorm_dynamic_int8": {"N": 5, "C": 16},
    "deepseek_mla_decode": {"B": 3, "H": 4, "S": 24, "L": 16, "R": 8},
    "attention_output_residual": {"T": 5, "C": 16, "H": 2, "D": 8},
}
MASKS = {"W": 16, "P": 8}  # sizes of masks, which torch's side has as constants
PROGRAMS = list(dict.fromkeys((c.file, c.program) for c in cases(GROUPS) if c.file != "fp8"))


def drawn(program: Program, most: int) -> dict[str, np.ndarray]:
    """Normal inputs, and whole numbers from 1 below `most`."""
    dice = np.random.default_rng(zlib.crc32(program.name.encode()))
    return {
        b.name: dice.integers(1, most, b.shape).astype("int32")
        if b.dtype == "i32"
        else dice.standard_normal(b.shape)
        for b in program.inputs
    }


def parsed(case: Case, sizes: Mapping[str, int]) -> Program:
    text = text_of(case)
    known = sizes | {k: v for k, v in MASKS.items() if f"{k}=" in text and case.file == "attention"}
    (program,) = lang.parse(text, dims=known)
    return program


@pytest.mark.parametrize(("file", "name"), PROGRAMS)
def test_the_truth_is_the_oracles(file: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu.peers import attention

    monkeypatch.setattr(attention, "WINDOW", MASKS["W"])
    monkeypatch.setattr(attention, "PREFIX", MASKS["P"])
    sizes = CORPUS[name] if file == "corpus" else SMALL[file]
    case = Case("group", file, name, sizes)
    program = parsed(case, sizes)
    arrays = drawn(program, sizes.get("V", sizes.get("N", sizes.get("S", 2))))
    given = {n: torch.from_numpy(a) for n, a in arrays.items()}
    work = work_of(case)
    expected = run(program, arrays, storage=False)
    wanted = work.sample(tuple(torch.from_numpy(np.asarray(x)).double() for x in expected.values()))
    for actual, true in zip(work.exact(given), wanted, strict=True):
        assert torch.linalg.norm(actual - true) <= 1e-13 * torch.linalg.norm(true)
