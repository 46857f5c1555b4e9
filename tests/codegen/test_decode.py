"""Partial kernels of a split reduction on the tensor cores' path, against the float64 oracle."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from decode_kernels import CASES, partial, until
from sample_values import expected, inputs

from nautile.codegen.compile import compile_kernel
from nautile.codegen.emit import emit_program
from nautile.codegen.interpret import interpret, run_program
from nautile.codegen.lower import lower
from nautile.codegen.sm80.emit import emit_mma, memory_program
from nautile.codegen.source import CudaKernel
from nautile.dtypes import storage
from nautile.errors import LoweringError
from nautile.extract.kernel import Kernel
from nautile.terms import Buffer

sys.path.insert(0, str(Path(__file__).parent / "mma"))

import emulate

Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decode")


def drawn(kernel: Kernel) -> Arrays:
    arrays = inputs(kernel, 3)
    if "length" in arrays:
        arrays["length"] = np.array([5, 71], np.int32)
    return arrays


def poisoned(kernel: Kernel) -> Arrays:
    made = {o.buffer.name: o.buffer for o in kernel.outputs}
    return {n: np.full(b.shape, np.nan).astype(storage(b.dtype)) for n, b in made.items()}


def emitted(kernel: Kernel) -> CudaKernel:
    return emit_mma(lower(kernel, kernel.parts[0]))


def merged(states: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """The attention that the partial states stand for; a chunk without keys weighs nothing."""
    m, total, o = (states[n].astype(np.float64) for n in ("m", "l", "o"))
    weight = np.exp(m - m.max(-1, keepdims=True))
    held = weight > 0
    total, o = np.where(held, total, 0.0), np.where(held[..., None], o, 0.0)
    scale = (weight * total).sum(-1)
    return np.asarray((weight[..., None] * o).sum(-2) / scale[..., None])


@pytest.mark.parametrize("case", CASES)
def test_partial_states_merge_to_what_the_oracle_says(case: str, builds: Path) -> None:
    kernel = CASES[case]()
    arrays = drawn(kernel)
    want = expected(kernel, arrays)
    cuda = emitted(kernel)
    for lazy in (True, False):
        found = poisoned(kernel)
        emulate.run(cuda, {**arrays, **found}, builds, lazy=lazy)
        held = np.isfinite(want["m"])
        np.testing.assert_array_equal(found["m"], np.where(held, found["m"], -np.inf))
        np.testing.assert_allclose(found["m"][held], want["m"][held], rtol=0, atol=1e-5)
        np.testing.assert_allclose(merged(found), merged(want), rtol=0, atol=6e-3)
        np.testing.assert_allclose(found["l"][held], want["l"][held], rtol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_interpreter_agrees(case: str) -> None:
    kernel = CASES[case]()
    arrays = drawn(kernel)
    found = dict(arrays)
    run_program([lower(kernel, kernel.parts[0])], found)
    want = expected(kernel, arrays)
    np.testing.assert_allclose(merged(found), merged(want), rtol=0, atol=6e-3)


@pytest.mark.parametrize("case", CASES)
def test_keys_and_values_are_copied_in_whole_pieces(case: str) -> None:
    """Every operand goes through asynchronous copies of 16 bytes; a chunk's base is set once."""
    text = emitted(CASES[case]()).text
    assert not re.search(r"nt_(copy[48]|store16)[(_]", text[text.index("// kernel") :])
    assert len(re.findall(r"const int s_r1_\w+ = [^;]*o\d_p", text)) == 2


def test_keys_past_a_length_are_not_read() -> None:
    """Whole blocks of a chunk that a length from memory masks away, but for one, are left out."""
    kernel = CASES["lengths"]()
    program = lower(kernel, kernel.parts[0])
    arrays = drawn(kernel)
    read: dict[tuple[int, int], set[int]] = {}

    def fetch(buffer: Buffer, index: tuple[npt.NDArray[Any], ...]) -> npt.NDArray[Any]:
        if buffer.name == "k":
            batch, _, keys, _ = np.broadcast_arrays(*index)
            for b, key in zip(batch.ravel(), keys.ravel(), strict=True):
                read.setdefault((int(b), int(key) // 32), set()).add(int(key))
        return np.asarray(arrays[buffer.name][index])

    for _ in interpret(program, fetch):
        pass
    last = {place: max(keys) for place, keys in read.items()}
    assert last == {(0, 0): 15, (0, 1): 47, (0, 2): 79, (1, 0): 31, (1, 1): 63, (1, 2): 79}
    assert re.search(r"int stop0 = .*g_\d_length\[o\d_b\]", emitted(kernel).text)


SHIPPED: dict[str, Callable[[], Kernel]] = {
    "grouped": lambda: partial(1, 8, 4, 1, 32768, 64, 128, tile=32),
    "ragged": lambda: partial(4, 8, 8, 1, 32700, 16, 128, tile=64, chunk=2048),
    "width 64": lambda: partial(4, 8, 8, 1, 32768, 16, 64, tile=64),
    "width 96": lambda: partial(4, 8, 8, 1, 32768, 16, 96, tile=32),
    "width 256": lambda: partial(4, 8, 4, 1, 32768, 16, 256, tile=16),
    "lengths": lambda: partial(4, 8, 4, 1, 32768, 16, 128, tile=32, mask=until(batch=4)),
}
EVERY_CARD = ("grouped", "width 256")


@pytest.mark.parametrize("name", SHIPPED)
def test_kernels_compile_without_spills(name: str) -> None:
    kernel = emitted(SHIPPED[name]())
    for architecture in ("sm_80", "sm_90", "sm_120") if name in EVERY_CARD else ("sm_90",):
        report = compile_kernel(kernel, architecture, cache=None).report
        assert report.spill_stores == report.spill_loads == 0
        assert not report.warnings


@pytest.mark.parametrize("name", SHIPPED)
def test_four_blocks_keep_enough_bytes_under_way(name: str) -> None:
    """One warp a block; three other blocks fit beside it, and what their rings fetch ahead is more
    than a multiprocessor of an H200 must have in flight (4.3 TB/s times 1 us over 132)."""
    kernel = SHIPPED[name]()
    memory = memory_program(lower(kernel, kernel.parts[0]))
    assert memory.geometry.threads == 32
    together = 233472 // (memory.shared_bytes + 1024)
    ahead = sum((r.stages - 1) * r.slot_bytes for r in memory.rings)
    assert together >= 3
    assert min(4, together) * ahead > 4.3e12 * 1e-6 / 132


def test_tiles_that_do_not_fit_are_told_from_programs_that_do_not() -> None:
    """A builder may then try other tiles, before it goes without the tensor cores."""
    kernel = partial(1, 1, 4, 1, 1024, 2, 256, tile=128)
    program = lower(kernel, kernel.parts[0])
    with pytest.raises(LoweringError, match="exceed shared memory") as caught:
        emit_program(program, fitting=True)
    assert caught.value.code == "capacity"
    assert "nt_mma" not in emit_program(program).text
    smaller = partial(1, 1, 4, 1, 1024, 2, 256, tile=32)
    assert "nt_mma" in emit_program(lower(smaller, smaller.parts[0]), fitting=True).text


def test_large_buffers_are_addressed_in_64_bits() -> None:
    """A summand of an offset is widened before it is multiplied."""
    text = emitted(partial(16, 32, 1, 4, 131072, 4, 128, tile=32)).text
    for name in ("t4", "t8"):
        line = next(x for x in text.splitlines() if f"const nt_i64 s_r1_{name} = " in x)
        summands = line.split(" = ")[1].rstrip(";").split(" + ")
        assert all(x.startswith(("(nt_i64)", "tid")) for x in summands), line
