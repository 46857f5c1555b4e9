"""Kernels of several parts: one launch whose blocks are dealt to different grids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import host
import pytest
from sample_kernels import layernorm, logsumexp, matmul, softmax
from sample_values import check, inputs

from nautile.codegen.emit import emit
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.extract.kernel import Kernel
from nautile.terms import Buffer, Load, Output, Term, transform


def _renamed(kernel: Kernel, prefix: str, known: Mapping[str, str] | None = None) -> Kernel:
    """The kernel over buffers of other names: those given, or with a prefix."""

    def step(term: Term) -> Term:
        if isinstance(term, Load):
            return Load(_buffer(term.buffer), term.coordinates)
        return term

    def _buffer(b: Buffer) -> Buffer:
        return Buffer((known or {}).get(b.name, prefix + b.name), b.shape, b.dtype)

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


def test_emitters_of_a_launch_may_call_a_shared_buffer_otherwise() -> None:
    """The product's emitter and that of rows have names of their own for what both read."""
    product, rows = matmul(n=64, m=64, k=64), _renamed(softmax(n=64, c=64), "", {"x": "a"})
    kernel = Kernel("both", (*product.parts, *rows.parts), product.prediction)
    cuda = emit(kernel, [lower(kernel, part) for part in kernel.parts])
    assert "nt_mma" in cuda.text
    head = re.search(r'extern "C" __global__ [^{]*\{', cuda.text)
    assert head is not None
    calls = re.findall(r"part\d::body\((.*), \(int\)blockIdx", cuda.text)
    assert len(calls) == 2
    for name in ", ".join(calls).split(", "):
        assert re.search(rf"\b{name}\b", head[0]), f"{name} is not declared"
