"""Random kernels: the emitted text on the host gives what the interpreter gives, by every emitter
that takes the kernel, with rows in registers and in pieces; the interpreter, what the oracle gives.
"""

from __future__ import annotations

from pathlib import Path

import host
import numpy as np
import pytest
from random_kernels import random_kernel
from sample_values import Arrays, check, inputs

from nautile.codegen.emit import emit_program
from nautile.codegen.general import emit_general
from nautile.codegen.interpret import run_program
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows, geometry, lanes
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel

TOLERANCE = {"f32": 3e-5, "bf16": 1.6e-2, "f16": 2e-3}
FEW = {
    geometry: {"_RESIDENT": 2, "_FOLDING": 2, "_VECTORS": 2, "_FOLDED": 2},
    lanes: {"_WORDS": 4, "_MOST_THREADS": 64, "_HELD": 2},
}


def programs(seeds: range) -> dict[int, tuple[Kernel, TileProgram]]:
    """The kernels that can be scheduled as they say; nearly all can."""
    found = {}
    for seed in seeds:
        made = random_kernel(seed)
        try:
            found[seed] = made, lower(made, made.parts[0])
        except LoweringError:
            continue
    assert len(found) > 0.9 * len(seeds)
    return found


def same(made: Kernel, wanted: Arrays, found: Arrays) -> None:
    """Equal NaN and infinities, and numbers that differ by rounding alone."""
    for output in made.outputs:
        name = output.buffer.name
        want, got = (np.asarray(a[name]).astype(np.float64) for a in (wanted, found))
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        bound = TOLERANCE[output.buffer.dtype] * max(1.0, np.abs(want[finite]).max(initial=0))
        np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=bound)


def emitted(program: TileProgram) -> list[CudaKernel]:
    """Every way to print the program."""
    made = [emit_program(program)]
    if as_rows(program) is not None:
        made.append(emit_general(program, program.name, True))
        with pytest.MonkeyPatch.context() as patch:
            for module, constants in FEW.items():
                for name, value in constants.items():
                    patch.setattr(module, name, value)
            made.append(emit_program(program))
    return made


def compare(seeds: range, folder: Path) -> None:
    cases = programs(seeds)
    texts = [(seed, cuda) for seed, (_, tile) in cases.items() for cuda in emitted(tile)]
    library = host.build([cuda for _, cuda in texts], folder)
    wanted: dict[int, Arrays] = {}
    for seed, (made, tile) in cases.items():
        wanted[seed] = inputs(made, seed)
        run_program([tile], wanted[seed])
    for number, (seed, cuda) in enumerate(texts):
        made = cases[seed][0]
        found = inputs(made, seed)
        host.run(library, number, cuda, made, found)
        same(made, wanted[seed], found)


@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
def test_emitted_text_gives_what_the_interpreter_gives(tmp_path: Path) -> None:
    compare(range(24), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(host.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("batch", range(20))
def test_many_more_kernels(tmp_path: Path, batch: int) -> None:
    compare(range(10000 + 40 * batch, 10040 + 40 * batch), tmp_path)


def test_the_interpreter_gives_what_the_oracle_gives() -> None:
    for made, tile in programs(range(100, 160)).values():
        arrays = inputs(made)
        found = dict(arrays)
        run_program([tile], found)
        check(made, arrays, found, loose=2.0)
