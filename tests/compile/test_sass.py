"""Machine code read back: main loops, what runs while products fly, and what the gate refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from warpgroups import chain, serial, typed

from nautile.codegen import sass
from nautile.codegen.compile import compile_kernel
from nautile.codegen.gate import check_machine
from nautile.codegen.sass import MachineCode, MainLoop
from nautile.codegen.source import CudaKernel, Expected
from nautile.errors import CompileError

GOOD = MainLoop(400, 8, 0, 2, 2, (100,))
KERNEL = CudaKernel("f", "", (1, 1, 1), 128, 0, (), expected=Expected(8, 4, 64))
# A loop whose wait for data spins out of line, after the loop; then a loop without products.
LISTING = """	.section	.text.other,"ax",@progbits
//--------------------- .text.other                --------------------------
        /*0000*/                   EXIT ;
//--------------------- .text.f                --------------------------
.text.f:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4+0x30030], R2 ;
        /*0020*/              @!P1 BRA `(.L_x_5) ;
.L_x_2:
        /*0030*/                   R2UR UR9, R2 ;
        /*0040*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0050*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0070*/                   FFMA R3, R4, R5, R6 ;
        /*0080*/                   MUFU.EX2 R3, R3 ;
        /*0090*/                   IADD3 R3, R3, R3, R3 ;
        /*00a0*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*00b0*/              @P0 BRA `(.L_x_1) ;
.L_x_3:
        /*00c0*/                   FADD R3, R3, R3 ;
        /*00d0*/              @P2 BRA `(.L_x_3) ;
        /*00e0*/                   STL [R1], R3 ;
        /*00f0*/                   EXIT ;
.L_x_5:
        /*0100*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4+0x30030], R2 ;
        /*0110*/              @!P1 BRA `(.L_x_5) ;
        /*0120*/                   MOV R7, R8 ;
        /*0130*/                   BRA `(.L_x_2) ;
"""


def test_a_loop_has_the_code_that_runs_in_it_wherever_it_lies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sass, "listing", lambda cubin: LISTING)
    code = sass.read(b"", "f")
    loop = MainLoop(15, products=2, moves=1, copies=1, waits=2, overlapped=(2,))
    assert code == MachineCode(20, products=2, local=1, loops=(loop,))
    assert sass.read(b"", "other") == MachineCode(1, 0, 0)
    with pytest.raises(sass.UnreadError, match="no code of absent"):
        sass.read(b"", "absent")


def test_what_stands_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "listing", lambda cubin: LISTING)
    (found,) = sass.operations(b"", "f")
    assert sum(found.values()) == 15
    assert {n: found[n] for n in ("BRA", "HGMMA", "WARPGROUP", "MUFU", "R2UR")} == {
        "BRA": 4, "HGMMA": 2, "WARPGROUP": 2, "MUFU": 1, "R2UR": 1,
    }  # fmt: skip
    assert sass.operations(b"", "other") == ()


def test_a_pinned_wait_stays_below_the_pointwise_work(tmp_path: Path) -> None:
    """An exponential and an addition for each of 32 values, while four products fly."""
    made = compile_kernel(chain(Expected(8, 0, 48)), cache=tmp_path)
    assert made.machine is not None
    (loop,) = made.machine.loops
    assert (made.machine.products, loop.products, loop.moves, loop.waits) == (8, 8, 0, 2)
    assert max(loop.overlapped) >= 60
    assert made.unread == ""


def test_a_hoisted_wait_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="a wait was moved above") as caught:
        compile_kernel(chain(Expected(8, 0, 48), pinned=False), cache=tmp_path)
    assert caught.value.code == "gate"
    with pytest.raises(CompileError, match="a wait was moved above"):  # from the cache too
        compile_kernel(chain(Expected(8, 0, 48), pinned=False), cache=tmp_path)
    assert compile_kernel(chain(pinned=False), cache=tmp_path).machine is None  # nothing asked


@pytest.mark.parametrize("operand", ["bf16", "f16", "tf32", "f8e4m3", "f8e5m2"])
def test_products_of_every_type_are_counted(operand: str) -> None:
    made = compile_kernel(typed(operand), cache=None)
    assert made.machine is not None
    assert [(loop.products, loop.waits) for loop in made.machine.loops] == [(4, 1)]


def test_products_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(CompileError, match="waits 4 times for 4 warpgroup products"):
        compile_kernel(serial(Expected(4)), cache=None)


def test_products_that_are_not_there_are_refused() -> None:
    with pytest.raises(CompileError, match="has 8 warpgroup products, 9 are expected"):
        compile_kernel(chain(Expected(9)), cache=None)


def test_machine_code_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = compile_kernel(chain(Expected(8)), cache=tmp_path)
    monkeypatch.setattr(sass, "listing", lambda cubin: pytest.fail("read again"))
    warm = compile_kernel(chain(Expected(8)), cache=tmp_path)
    assert (warm.machine, warm.cubin) == (cold.machine, cold.cubin)


def test_without_a_disassembler_the_report_decides_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sass, "disassembler", lambda: None)
    with pytest.warns(RuntimeWarning, match="chain was not checked: nvdisasm is not installed"):
        made = compile_kernel(chain(Expected(9)), cache=None)
    assert made.machine is None
    assert made.unread == "the machine code of chain was not checked: nvdisasm is not installed"


def test_a_disassembler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "disassembler", lambda: Path("/bin/false"))
    with pytest.warns(RuntimeWarning, match="chain was not checked: nvdisasm failed"):
        compile_kernel(chain(Expected(9)), cache=None)


def test_what_a_cache_keeps_comes_back_equal() -> None:
    code = MachineCode(1440, 32, 0, (GOOD, MainLoop(100, 8, 1, 2, 2)))
    assert sass.from_json(sass.to_json(code)) == code


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"loops": [1]}', '{"loops": [], "x": 1}'])
def test_what_is_no_machine_code(text: str) -> None:
    assert sass.from_json(text) is None


@pytest.mark.parametrize(
    ("loops", "reason"),
    [
        ((MainLoop(400, 8, 5, 2, 2, (100,)),), "moves descriptors 5 times"),
        ((MainLoop(400, 8, 4, 2, 2, (63,)),), "has 63 pointwise"),
        ((MainLoop(400, 8, 0, 2, 1, ()),), "has 0 pointwise"),
        ((MainLoop(400, 8, 0, 2, 8, (100,)),), "waits 8 times"),
        ((GOOD, MainLoop(400, 8, 5, 2, 2, (100,))), "moves descriptors 5 times"),
    ],
)
def test_what_a_main_loop_must_show(loops: tuple[MainLoop, ...], reason: str) -> None:
    check_machine(KERNEL, "sm_90a", MachineCode(900, 8, 0, (GOOD,)))
    with pytest.raises(CompileError, match=reason) as caught:
        check_machine(KERNEL, "sm_90a", MachineCode(900, 8, 0, loops))
    assert "kernel f for sm_90a" in str(caught.value)


def test_lesser_loops_are_not_measured_by_what_the_main_ones_show() -> None:
    lesser = MainLoop(50, 4, 9, 0, 1, ())
    check_machine(KERNEL, "sm_90a", MachineCode(900, 12, 0, (lesser, GOOD)))
