"""Hopper kernels, compiled: their machine code shows what their memory programs promise."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from test_sm90_simulate import program

from nautile.codegen.compile import compile_kernel
from nautile.codegen.sm90.expectation import expected
from nautile.codegen.sm90.kernel import print_kernel
from nautile.codegen.source import Expected
from nautile.errors import CompileError


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # Q K: 128 of depth in steps of 16, and P V: 128, in the first block, the loop and after it
        # (8 + 8 + 8 + 8); under P V run a maximum, an exponential and a sum of 64 scores a thread
        ("attention", Expected(32, moves=8, overlapped=144, registers=168)),
        # the first products of a next tile are issued once more
        ("ahead", Expected(40, moves=8, overlapped=144, registers=168)),
        # of the exponentials and the sum, half stand before the wait
        ("midway", Expected(32, moves=8, overlapped=96, registers=168)),
        ("mm", Expected(4, registers=168)),  # 64 of depth
        ("gate", Expected(4, registers=168)),  # two products of 128 columns joined to one of 256
        ("alternate", Expected(8, registers=168)),  # two fragments of 64 rows
        ("chain", Expected(16, registers=168)),  # one block of each: no loop
    ],
)
def test_what_a_program_promises(name: str, wanted: Expected) -> None:
    assert expected(program(name)) == wanted


@pytest.mark.parametrize("name", ["attention", "midway", "mm"])
def test_compiled_kernels_keep_it(name: str) -> None:
    made = compile_kernel(print_kernel(program(name)), cache=None)
    assert made.machine is not None
    assert made.machine.products >= expected(program(name)).products
    assert [loop.moves for loop in made.machine.loops] == [0] * len(made.machine.loops)
    assert made.machine.local == 0


def test_without_its_pin_the_overlap_is_lost() -> None:
    kernel = print_kernel(program("attention"))
    text = re.sub(r"\n\s*nt_pin\(.*?;", "", kernel.text)
    assert text != kernel.text
    with pytest.raises(CompileError, match="a wait was moved above"):
        compile_kernel(replace(kernel, text=text), cache=None)
