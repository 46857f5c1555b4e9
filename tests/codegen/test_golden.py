"""The generated text of each kind of kernel, kept: `pytest --update-golden` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest
from online_kernels import JOINED, LANES, ONLINE
from sample_kernels import CASES, ROW_CASES

from nautile.codegen.emit import emit_program
from nautile.codegen.lower import lower
from nautile.codegen.show import show

GOLDEN = Path(__file__).parent / "golden"
KEPT = (
    "softmax_online",
    "layernorm_streamed",
    "cross_entropy",
    "rms_residual",
    "pointwise",
    "indexed",
    "matmul_f64",
    "nested",
    "standardised_long",
    "weighted_moment",
    "at_maximum",
    "moved_product",
    "lanes-moments",
    "lanes-merged",
    "joined-grouped_aligned",
    "joined-channels",
)
EVERY = {
    **CASES,
    **ONLINE,
    **{f"lanes-{n}": k for n, k in LANES.items()},
    **{f"joined-{n}": k for n, k in JOINED.items()},
}
SHOWN = ("attention_causal", "attention_prefix", "chain", "gated", "monoids")


def _compare(name: str, text: str, update: bool) -> None:
    path = GOLDEN / name
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("case", KEPT)
def test_cuda_text(case: str, request: pytest.FixtureRequest) -> None:
    kernel = EVERY[case]()
    text = emit_program(lower(kernel, kernel.parts[0])).text
    _compare(f"{case}.cu", text, request.config.getoption("--update-golden", default=False))


@pytest.mark.parametrize("case", SHOWN)
def test_tile_programs_as_text(case: str, request: pytest.FixtureRequest) -> None:
    kernel = CASES[case]()
    text = show(lower(kernel, kernel.parts[0])) + "\n"
    _compare(f"{case}.tile", text, request.config.getoption("--update-golden", default=False))


@pytest.mark.parametrize("case", [*EVERY, *ROW_CASES])
def test_text_is_the_same_from_run_to_run_and_stands_alone(case: str) -> None:
    first, second = (
        emit_program(lower(k, k.parts[0])) for k in ((EVERY | ROW_CASES)[case]() for _ in range(2))
    )
    assert first == second
    assert "#include" not in first.text
    assert first.name.isidentifier()
