"""Kernels of several parts: one launch whose blocks are dealt to different grids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import host
import pytest
from sample_kernels import layernorm, logsumexp, matmul
from sample_values import check, inputs

from nautile.codegen.emit import emit
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.extract.kernel import Kernel
from nautile.terms import Buffer, Load, Output, Term, transform


def _renamed(kernel: Kernel, prefix: str) -> Kernel:
    """The kernel over buffers of other names."""

    def step(term: Term) -> Term:
        if isinstance(term, Load):
            return Load(_buffer(term.buffer), term.coordinates)
        return term

    def _buffer(b: Buffer) -> Buffer:
        return Buffer(prefix + b.name, b.shape, b.dtype)

    part = kernel.parts[0]
    outputs = tuple(
        Output(_buffer(o.buffer), o.axes, transform(o.term, step)) for o in part.outputs
    )
    return replace(kernel, parts=(replace(part, outputs=outputs),))


def _joined() -> Kernel:
    made = [
        _renamed(layernorm(), "a_"),
        _renamed(matmul(n=40, m=36, k=50, dtype="f64"), "b_"),
        _renamed(logsumexp(), "c_"),
    ]
    return Kernel("joined", tuple(k.parts[0] for k in made), made[0].prediction)


def test_parts_in_the_interpreter() -> None:
    kernel = _joined()
    arrays = inputs(kernel)
    found = dict(arrays)
    run_program([lower(kernel, part) for part in kernel.parts], found)
    check(kernel, arrays, found)


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
def test_parts_share_a_launch(tmp_path: Path) -> None:
    kernel = _joined()
    cuda = emit(kernel, [lower(kernel, part) for part in kernel.parts])
    arrays = inputs(kernel)
    found = dict(arrays)
    host.run(host.build([cuda], tmp_path), 0, cuda, kernel, found)
    check(kernel, arrays, found)
