"""The stages: what happens when the gate refuses a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from nautile import building
from nautile.building import Compiler
from nautile.bundle import load_bundle, write_bundle
from nautile.certificate import certify
from nautile.codegen import gate
from nautile.codegen.compile import compile_kernel
from nautile.codegen.source import CudaKernel, TensorMap
from nautile.codegen.tile import TileProgram
from nautile.errors import CompileError, LoweringError
from nautile.stages import Built, Options, optimize
from nautile.worker import Worker

SOFTMAX = """def f(x: f32[N,C], *, N=4096, C=1024) -> f32[N,C]:
    y[n,c] = softmax[c](x[n,c])
    return y
"""

GEMM = """def f(x: bf16[N,C], w: bf16[C,D], *, N=2048, C=2048, D=2048) -> bf16[N,D]:
    y[n,d] = sum[c](x[n,c] * w[c,d])
    return y
"""


def test_a_refused_schedule_gives_way_to_the_next(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = optimize(SOFTMAX, Options(), worker=worker)
    assert first.plan is not None
    (refused,) = first.plan.kernels

    def gate(built: Built, compiler: Compiler, wanted: tuple[str, ...]) -> Built:
        if built.kernel.parts == refused.parts:
            raise CompileError("spills", code="gate")
        return built

    monkeypatch.setattr(building, "_accepted", gate)
    monkeypatch.setattr(Compiler, "ahead", lambda *_: None)
    second = optimize(SOFTMAX, Options(compile=True), worker=worker)
    assert second.plan is not None
    (taken,) = second.plan.kernels
    assert taken.parts != refused.parts
    assert taken.outputs == refused.outputs
    assert second.plan.seconds == taken.prediction.seconds >= first.plan.seconds
    assert second.plan.gap == pytest.approx(1 - second.plan.bound / second.plan.seconds)
    assert second.passed


def _refuses(message: str, code: str) -> Callable[..., NoReturn]:
    def compile(*_: object) -> NoReturn:
        raise CompileError(message, code=code)

    return compile


def test_when_all_are_refused_the_first_refusal_is_told(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiler, "compile", _refuses("spills", "gate"))
    monkeypatch.setattr(Compiler, "ahead", lambda *_: None)
    with pytest.raises(CompileError, match="spills"):
        optimize(SOFTMAX, Options(compile=True), worker=worker)


def test_another_compiler_error_is_not_hidden(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Compiler, "compile", _refuses("line 3: expected a ;", "compile"))
    monkeypatch.setattr(Compiler, "ahead", lambda *_: None)
    with pytest.raises(CompileError, match="expected a ;"):
        optimize(SOFTMAX, Options(compile=True), worker=worker)


def _own(name: str, body: str = "y[blockIdx.x] = 1.0f;") -> CudaKernel:
    text = f'extern "C" __global__ void {name}(const float* x, float* y) {{ {body} }}\n'
    return CudaKernel(name, text, (4096, 1, 1), 32, 0, ("x", "y"), architecture="sm_90a")


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[CudaKernel]:
    """What the emitter of sm_90a gives for every part, whatever it computes."""
    kernels: list[CudaKernel] = []

    def emit(program: TileProgram, path: str) -> list[CudaKernel]:
        if not kernels or path != "wgmma":
            raise LoweringError("not taken")
        return list(kernels)

    monkeypatch.setattr(building, "_emitted", emit)
    return kernels


def test_an_implementation_of_its_own_comes_before_the_portable_one(
    worker: Worker, emitted: list[CudaKernel], tmp_path: Path
) -> None:
    emitted.append(_own("own"))
    options = Options(compile=True, architectures=("sm_80", "sm_90"))
    result = optimize(GEMM, options, worker=worker)
    (built,) = result.built
    own, portable = built.implementations
    assert own.steps[0].compiled["sm_90"].architecture == "sm_90a"
    assert list(portable.steps[0].compiled) == ["sm_80"]
    assert "own" not in portable.steps[0].cuda.text
    assert "    runs sm_90a, " in result.as_text()
    assert "    else sm_80, " in result.as_text()
    (row,) = result.as_dict()["chosen"]["kernels"]
    assert [w["compiled"] for w in row["implementations"]] == [["sm_90a"], ["sm_80"]]
    loaded = load_bundle(write_bundle(tmp_path / "b", result))
    (launch,) = loaded.manifest.launches
    assert [sorted(k.cubins) for k in launch.kernels] == [["sm_90a"], ["sm_80"]]
    assert launch.name == portable.steps[0].cuda.name


@pytest.mark.parametrize("target", ["a100", "rtx5090"])
def test_other_targets_have_the_portable_one_alone(
    worker: Worker, emitted: list[CudaKernel], target: str
) -> None:
    emitted.append(_own("own"))
    (built,) = optimize(GEMM, Options(target=target), worker=worker).built
    assert [w.architecture for w in built.implementations] == ["sm_80"]


def test_architectures_that_the_target_does_not_have(
    worker: Worker, emitted: list[CudaKernel]
) -> None:
    emitted.append(_own("own"))
    options = Options(compile=True, architectures=("sm_80", "sm_120"))
    (built,) = optimize(GEMM, options, worker=worker).built
    assert [w.architecture for w in built.implementations] == ["sm_80"]
    assert list(built.compiled) == ["sm_80", "sm_120"]


def test_a_refused_variant_gives_way_to_the_next_and_then_to_the_portable_one(
    worker: Worker, emitted: list[CudaKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(kernel: CudaKernel, *_: object) -> None:
        if kernel.name.startswith("bad"):
            raise CompileError("spills", code="gate")

    monkeypatch.setattr(gate, "check", check)
    emitted += [_own("bad"), _own("good")]
    (built,) = optimize(GEMM, Options(compile=True), worker=worker).built
    assert [s.cuda.name for w in built.better for s in w.steps] == ["good"]
    assert built.compiled == {}
    emitted[:] = [_own("bad1"), _own("bad2")]
    (built,) = optimize(GEMM, Options(compile=True), worker=worker).built
    assert built.better == ()
    assert list(built.compiled) == ["sm_90"]


def test_another_portable_schedule_keeps_the_kernels_of_the_targets_own(
    worker: Worker, emitted: list[CudaKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[tuple[TileProgram, ...]] = []

    def accepted(built: Built, compiler: Compiler, wanted: tuple[str, ...]) -> Built:
        if not refused:
            refused.append(built.tiles)
            raise CompileError("spills", code="gate")
        return built

    monkeypatch.setattr(building, "_accepted", accepted)
    emitted.append(_own("own"))
    options = Options(compile=True, architectures=("sm_80", "sm_90"))
    (built,) = optimize(GEMM, options, worker=worker).built
    assert [built.tiles] != refused
    assert [s.cuda.name for w in built.better for s in w.steps] == ["own"]


def test_what_has_no_product_has_no_implementation_of_its_own(
    worker: Worker, emitted: list[CudaKernel]
) -> None:
    emitted.append(_own("own"))
    (built,) = optimize(SOFTMAX, Options(), worker=worker).built
    assert built.better == ()


def test_as_many_candidates_as_asked_for_are_compiled(
    worker: Worker, emitted: list[CudaKernel]
) -> None:
    emitted += [_own("one"), _own("two"), _own("three")]
    (built,) = optimize(GEMM, Options(compile=True, candidates=3), worker=worker).built
    first, second, third = built.better
    names = [s.cuda.name for w in built.better for s in w.steps]
    assert names == ["one", "one", "two"]
    assert first.kernel == third.kernel != second.kernel
    assert third.schedule.endswith(", variant 1")
    assert [sorted(s.compiled) for w in built.implementations for s in w.steps] == [["sm_90"]] * 4
    options = Options(target="a100", compile=True, candidates=3)
    (built,) = optimize(GEMM, options, worker=worker).built
    tiles = [tuple(w.kernel.parts[0].tiles.items()) for w in built.implementations]
    assert len(set(tiles)) == len(tiles) == 3
    assert built.best.kernel == built.kernel
    assert all(list(s.compiled) == ["sm_80"] for w in built.implementations for s in w.steps)


def test_spare_kernels_are_compiled_for_what_can_run_them(
    worker: Worker, emitted: list[CudaKernel]
) -> None:
    """Small products: the target's own kernel should not be faster, a measurement may know."""
    emitted.append(_own("own"))
    text = GEMM.replace("2048", "128")
    for asked, compiled in (
        (("sm_80", "sm_90"), {"own": ["sm_90"], "k_y": ["sm_90"]}),
        (("sm_80",), {"k_y": ["sm_80"]}),
    ):
        options = Options(compile=True, candidates=3, architectures=asked)
        (built,) = optimize(text, options, worker=worker).built
        assert built.better == ()
        assert list(built.compiled) == list(asked)
        steps = [s for way in built.spare for s in way.steps]
        assert {s.cuda.name: list(s.compiled) for s in steps} == compiled


def test_a_refused_candidate_is_left_out(
    worker: Worker, emitted: list[CudaKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(kernel: CudaKernel, *_: object) -> None:
        if kernel.name == "bad":
            raise CompileError("spills", code="gate")

    monkeypatch.setattr(gate, "check", check)
    emitted += [_own("good"), _own("bad"), _own("other")]
    (built,) = optimize(GEMM, Options(compile=True, candidates=6), worker=worker).built
    names = [s.cuda.name for w in built.better for s in w.steps]
    assert len(names) == 4  # two of the six are refused
    assert set(names) == {"good"}


def test_too_few_registers_for_an_instruction_are_a_refusal() -> None:
    """512 threads leave 128 registers a thread; an accumulator of 64 x 256 wants them all."""
    sums = ", ".join(f'"+f"(c[{i}])' for i in range(128))
    registers = ", ".join(f"%{i}" for i in range(128))
    product = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
    body = f"""float c[128];
      for (int i = 0; i < 128; ++i) c[i] = y[i];
      asm volatile("wgmma.fence.sync.aligned;");
      asm volatile("{product} {{{registers}}}, %128, %129, 1, 1, 1, 0, 0;"
                   : {sums} : "l"(1ull), "l"(2ull));
      asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
      for (int i = 0; i < 128; ++i) y[i] = c[i];"""
    wide = _own("wide", body)
    text = wide.text.replace("void wide", "void __launch_bounds__(512, 1) wide")
    with pytest.raises(CompileError, match="Insufficient registers") as caught:
        compile_kernel(replace(wide, text=text), "sm_90", cache=None)
    assert caught.value.code == "gate"


@pytest.mark.parametrize(("rows", "own"), [(2048, 1), (2049, 0)])
def test_a_map_that_ends_beyond_its_tensor_is_not_taken(
    worker: Worker, emitted: list[CudaKernel], rows: int, own: int
) -> None:
    view = TensorMap("x", "bf16", (2048, rows), (4096,), (64, 8))
    emitted.append(replace(_own("own"), maps=(view,)))
    (built,) = optimize(GEMM, Options(), worker=worker).built
    assert len(built.better) == own


def test_the_portable_tiles_are_certified_too(worker: Worker, emitted: list[CudaKernel]) -> None:
    emitted.append(_own("own"))
    result = optimize(GEMM, Options(), worker=worker)
    assert result.plan is not None
    assert result.certificate is not None
    (built,) = result.built
    assert built.kernel.parts != built.best.kernel.parts
    names = [c.name for c in result.certificate.checks if c.name.startswith("tile program")]
    assert names == ["tile program of y", "tile program of y, other tiles"]
    doubled = optimize(GEMM.replace("w[c,d])", "w[c,d]) * 2"), Options(), worker=worker)
    wrong = [(built.kernel, doubled.built[0].tiles)]
    made = certify(result.program, result.plan, others=wrong)
    assert [c.name for c in made.checks if not c.passed] == ["tile program of y, other tiles"]
