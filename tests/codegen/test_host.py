"""Generated CUDA, compiled for the CPU and run fiber by fiber, against the float64 oracle."""

from __future__ import annotations

from pathlib import Path

import host
import pytest
from sample_kernels import CASES, ROW_CASES
from sample_values import check, inputs

from nautile.codegen.general import emit_general
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows, emit_rows
from nautile.codegen.source import CudaKernel
from nautile.extract.kernel import Kernel

pytestmark = pytest.mark.skipif(host.COMPILER is None, reason="needs g++")

EVERY = CASES | ROW_CASES
GENERAL = list(CASES)


def _made(case: str, general: bool) -> tuple[CudaKernel, Kernel] | None:
    kernel = EVERY[case]()
    program = lower(kernel, kernel.parts[0])
    precise = any(o.buffer.dtype != "bf16" for o in kernel.outputs)
    if general:
        return emit_general(program, program.name, precise), kernel
    rows = as_rows(program)
    return (emit_rows(rows, program.name, precise), kernel) if rows else None


def _is_row(case: str) -> bool:
    kernel = EVERY[case]()
    return as_rows(lower(kernel, kernel.parts[0])) is not None


ROWS = [c for c in EVERY if _is_row(c)]
NAMES = [f"rows-{c}" for c in ROWS] + [f"general-{c}" for c in GENERAL]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> host.Built:
    table = {}
    for name in NAMES:
        form, case = name.split("-", 1)
        made = _made(case, form == "general")
        assert made is not None
        table[name] = (len(table), *made)
    folder: Path = tmp_path_factory.mktemp("host")
    return host.build([k for _, k, _ in table.values()], folder), table


@pytest.mark.parametrize("name", NAMES)
def test_generated_text_computes_what_the_oracle_does(built: host.Built, name: str) -> None:
    library, table = built
    number, cuda, kernel = table[name]
    arrays = inputs(kernel)
    found = dict(arrays)
    host.run(library, number, cuda, kernel, found)
    check(kernel, arrays, found)


def test_every_row_case_takes_the_row_emitter() -> None:
    assert set(ROW_CASES) <= set(ROWS)
