"""Lowered tile programs, run block by block, against the float64 oracle."""

from __future__ import annotations

import pytest
from sample_kernels import CASES
from sample_values import check, inputs

from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower


@pytest.mark.parametrize("case", CASES)
def test_lowered_program_computes_what_the_oracle_does(case: str) -> None:
    kernel = CASES[case]()
    arrays = inputs(kernel)
    found = dict(arrays)
    run_program([lower(kernel, part) for part in kernel.parts], found)
    check(kernel, arrays, found)
