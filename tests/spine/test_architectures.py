"""Every kernel of the shipped examples compiles for sm_80, sm_89, sm_90, sm_100 and sm_120 without
spills."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautile import lang
from nautile.codegen.gate import shared_limit
from nautile.examples import paths
from nautile.stages import Optimization, Options, build, choose, compile_all, saturate
from nautile.worker import Worker

pytest.importorskip("cuda.bindings.nvrtc")

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
QUICK = ("attention", "softmax", "layernorm", "gemm", "swiglu")


def compiled(file: Path, name: str, worker: Worker) -> Optimization:
    (chosen,) = (p for p in lang.parse_file(file) if p.name == name)
    result = Optimization(chosen, Options(compile=True, architectures=ARCHITECTURES))
    saturate(result, worker)
    choose(result)
    build(result)
    compile_all(result)
    return result


def programs() -> list[object]:
    found: list[object] = []
    for file in paths():
        for program in lang.parse_file(file):
            marks = () if file.stem in QUICK else (pytest.mark.slow,)
            found.append(pytest.param(file, program.name, marks=marks, id=program.name))
    return found


@pytest.mark.parametrize(("file", "name"), programs())
def test_no_kernel_spills_on_any_architecture(file: Path, name: str, worker: Worker) -> None:
    result = compiled(file, name, worker)
    assert result.built
    for built in result.built:
        steps = [s for way in built.implementations for s in way.steps]
        assert {a for s in steps for a in s.compiled} == set(ARCHITECTURES)
        assert set(ARCHITECTURES) - set(built.compiled) <= {"sm_90"}
        for step in steps:
            for architecture, machine in step.compiled.items():
                report = machine.report
                assert machine.cubin.startswith(b"\x7fELF")
                assert report.spill_stores == report.spill_loads == 0
                assert step.cuda.shared_bytes + report.shared <= shared_limit(architecture)
