"""Values that several passes over a row need are computed once, where registers allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sample_kernels import layernorm, softmax, softmax_online

from nautile.codegen.emit import emit_program
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows
from nautile.codegen.rows.kept import kept_values
from nautile.codegen.rows.structure import RowProgram
from nautile.codegen.tile import TileProgram
from nautile.extract.kernel import Kernel


def tile(kernel: Kernel) -> TileProgram:
    return lower(kernel, kernel.parts[0])


def rows(kernel: Kernel) -> RowProgram:
    found = as_rows(tile(kernel))
    assert found is not None
    return found


def body(kernel: Kernel) -> str:
    text = emit_program(tile(kernel)).text
    return text[text.index('extern "C"') :]


@pytest.mark.parametrize("make", [softmax, lambda: softmax("f32")], ids=["bf16", "f32"])
def test_a_softmax_takes_each_exponential_once(make: Callable[[], Kernel]) -> None:
    text = body(make())
    assert sum(text.count(f"{name}(") for name in ("nt_ex2", "exp2f", "expf", "nt_exp_fast")) == 1


def test_a_variance_leaves_its_differences() -> None:
    first, second, third = kept_values(rows(layernorm()), 16, 32)
    assert (len(first), len(second), len(third)) == (0, 1, 0)


def test_long_rows_compute_again() -> None:
    assert any(kept_values(rows(softmax()), 32, 32))
    assert not any(kept_values(rows(softmax()), 33, 32))


def test_what_follows_a_running_value_is_not_held() -> None:
    """exp(x - running max) is another value in the next pass."""
    assert kept_values(rows(softmax_online()), 1, 32)[0] == ()
