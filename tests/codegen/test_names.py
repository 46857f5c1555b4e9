"""Names of buffers, axes and kernels are data: reserved words and foreign letters compile too."""

from __future__ import annotations

from pathlib import Path

import host
import pytest
from sample_kernels import ax, kernel, load, op, out
from sample_values import check, inputs

from nautile.codegen.general import emit_general
from nautile.codegen.kernel_text import identifier
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows, emit_rows
from nautile.extract.kernel import Kernel
from nautile.terms import Reduce

WORDS = ("int", "float", "threadIdx", "größe", "nt_max", "row", "t", "asm")


def _kernel() -> Kernel:
    i, j = ax("class", 7), ax("double", 40)
    total = load(WORDS[0], i, j, dtype="f32")
    for word in WORDS[1:]:
        total = op("add", total, load(word, i, j, dtype="f32"))
    folded = Reduce("sum", j, total)
    outputs = [out("return", (i,), folded, "f32"), out("i_class", (i, j), total, "f32")]
    return kernel("while", outputs, {i: 2, j: 64})


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
def test_any_name_compiles(tmp_path: Path) -> None:
    made = _kernel()
    program = lower(made, made.parts[0])
    rows = as_rows(program)
    assert rows is not None
    kernels = [emit_rows(rows, made.name, True), emit_general(program, made.name, True)]
    library = host.build(kernels, tmp_path)
    for number, cuda in enumerate(kernels):
        arrays = inputs(made)
        found = dict(arrays)
        host.run(library, number, cuda, made, found)
        check(made, arrays, found, loose=4)


@pytest.mark.parametrize("name", ["", "9x", "a b", "π", "while", "nt_x", "__x", "ok"])
def test_identifiers(name: str) -> None:
    spelled = identifier(name)
    assert spelled.isidentifier()
    assert spelled.isascii()
    assert identifier(spelled) == spelled
