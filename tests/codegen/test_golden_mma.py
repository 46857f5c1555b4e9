"""The text of portable tensor-core kernels, kept: a product with its epilogue, attention, and the
partial states of a split. `pytest --update-golden` rewrites it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from decode_kernels import partial

sys.path.insert(0, str(Path(__file__).parent / "mma"))

import programs as P

from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import emit_mma
from nautile.codegen.sm80.kernel import BODY
from nautile.codegen.tile import TileProgram

GOLDEN = Path(__file__).parent / "golden"


def _decode() -> TileProgram:
    kernel = partial(batch=4, heads=8, keys=4096, parts=16, width=128, tile=32)
    return lower(kernel, kernel.parts[0])


KEPT: dict[str, Callable[[], TileProgram]] = {
    "mma-product": lambda: P.gemm(4096, 4096, 4096, bias=True, epilogue=P.gelu),
    "mma-attention": lambda: P.attention(
        4096, 4096, 128, 0, 32, 4, (128, 64), mask=P.causal, score=P.scaled(128)
    ),
    "mma-partial": _decode,
}


@pytest.mark.parametrize("name", KEPT)
def test_cuda_text(name: str, request: pytest.FixtureRequest) -> None:
    text = emit_mma(KEPT[name]()).text
    path = GOLDEN / f"{name}.cu"
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text[text.index(BODY) :])
    assert path.read_text() == text[text.index(BODY) :]
