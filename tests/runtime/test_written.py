"""A finished optimization as a bundle: roles, defaults, a reference that NumPy confirms."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import compiled
from fake_cupy import Machine, at

from nautile import lang, samples
from nautile.bundle import load_bundle, write_bundle
from nautile.certificate import Certificate, Check
from nautile.codegen.source import CudaKernel
from nautile.codegen.tile import TileProgram
from nautile.errors import BundleError
from nautile.extract.kernel import Kernel, Part, Plan, Prediction
from nautile.inline import inline_outputs
from nautile.judge import from_json
from nautile.runtime import Bundle
from nautile.stages import Options

TEXT = """
def biased(x: bf16[M, N], c: f32 = 0.25, *, M=9, N=50) -> f32[M, N]:
    y[m, n] = softmax[n](x[m, n]) + c
    return y
"""
COST = Prediction(1e-6, "dram", 1, 1, 0, 0, 0, 0, 0, 1)


@dataclass
class Launchable:
    cuda: CudaKernel
    compiled: dict[str, Any]
    tiles: tuple[TileProgram, ...] = ()
    schedule: str = "one row a block"

    @property
    def steps(self) -> tuple[Launchable, ...]:
        return (self,)

    @property
    def implementations(self) -> tuple[Launchable, ...]:
        return (self,)


@dataclass
class Finished:
    """What `optimize` would hand over, with a kernel of our own."""

    program: Any
    plan: Any
    built: Any
    key: str = "k" * 32
    options: Options = field(default_factory=lambda: Options(seed=7))
    certificate: Any = field(default_factory=lambda: Certificate("biased", (Check("c", True),)))

    @property
    def work(self) -> Any:
        """No dimension was taken apart."""
        return self.program


def finished() -> Finished:
    program = lang.parse(TEXT)[0]
    (output,) = inline_outputs(
        program.outputs, {d.name: (d.axes, d.body) for d in program.definitions}
    )
    part = Part((output,), {a: a.extent for a in output.axes})
    plan = Plan((Kernel("y", (part,), COST),), (), 1e-6, 1e-6, 0.0)
    names = tuple(b.name for b in program.inputs) + ("y",)
    cuda = CudaKernel("k_y", "// y\n", (9, 1, 1), 32, 0, names)
    return Finished(program, plan, [Launchable(cuda, {"sm_90": compiled("sm_90", b"\x7fELF")})])


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_a_finished_optimization_becomes_a_bundle(tmp_path: Path) -> None:
    loaded = load_bundle(write_bundle(tmp_path / "b", finished()))
    roles = {b.name: b.role for b in loaded.manifest.buffers}
    assert roles == {"x": "input", "c": "input", "y": "output"}
    (head,) = loaded.manifest.programs
    assert head.defaults == {"c": 0.25}
    assert head.kinds["x"].startswith("normal")
    assert loaded.manifest.target == "h200"
    (launch,) = loaded.manifest.launches
    assert [way.schedule for way in launch.implementations] == ["one row a block"]
    assert loaded.json("certificate.json")["checks"][0]["program"] == "biased"


def test_the_reference_is_what_numpy_says(tmp_path: Path) -> None:
    loaded = load_bundle(write_bundle(tmp_path / "b", finished()))
    reference = loaded.json(str(loaded.manifest.programs[0].expected))
    assert reference["seed"] == 7
    for case in reference["cases"]:
        drawn = samples.values(case["kinds"]["x"], reference["seed"], "x", np.arange(450))
        x = drawn.reshape(9, 50).astype(ml_dtypes.bfloat16).astype(np.float64)
        (output,) = case["outputs"]
        grid = np.ix_(*output["positions"])
        stored = from_json(output["reference"], [len(p) for p in output["positions"]])
        np.testing.assert_allclose(stored, (softmax(x) + 0.25)[grid], rtol=1e-12)


def test_the_bundle_checks_itself(tmp_path: Path, machine: Machine) -> None:
    def kernel(x: int, c: int, y: int) -> None:
        wide = at(x, (9, 50), "uint16").view(ml_dtypes.bfloat16).astype(np.float32)
        at(y, (9, 50), "float32")[...] = softmax(wide) + at(c, (), "float32")

    machine.kernels["k_y"] = kernel
    folder = write_bundle(tmp_path / "b", finished())
    report = Bundle.load(folder).check()
    assert report["verdict"] == "pass", report
    machine.kernels["k_y"] = lambda x, c, y: (kernel(x, c, y), _shift(y))[0]
    assert Bundle.load(folder).check()["verdict"] == "fail"


def _shift(y: int) -> None:
    at(y, (9, 50), "float32")[...] *= np.float32(1.001)


def test_an_optimization_that_was_not_built(tmp_path: Path) -> None:
    half = finished()
    half.built = []
    with pytest.raises(BundleError, match="was not built"):
        write_bundle(tmp_path / "b", half)
