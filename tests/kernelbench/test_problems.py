"""KernelBench problems, translated: check values through the oracle, and whole optimizations.

A sample is optimized at the check sizes in every run; `--slow` takes every problem there, and at
the benchmark's own sizes with compilation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from translate import translate

from nautile import lang
from nautile.codegen.interpret import run_program
from nautile.dtypes import storage
from nautile.oracle import run
from nautile.stages import Options, optimize
from nautile.terms import Program
from nautile.worker import Worker

DATA = Path(__file__).parents[1] / "data" / "corpus" / "kernelbench.json"
PROBLEMS = {p["id"]: p for p in json.loads(DATA.read_text())["problems"]}
SAMPLE = [
    "L1-3", "L1-15", "L1-23", "L1-33", "L1-35", "L1-37", "L1-44", "L1-47", "L1-51", "L1-89",
    "L1-95", "L1-97", "L1-99", "L2-41", "L2-51", "L2-62", "L2-75", "L2-99", "L3-1",
]  # fmt: skip
REST = [n for n in PROBLEMS if n not in SAMPLE]
EVERY = SAMPLE + [pytest.param(n, marks=pytest.mark.slow) for n in REST]
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def draw(
    rng: np.random.Generator, entry: Mapping[str, Any], shape: tuple[int, ...], sizes: Any
) -> npt.NDArray[Any]:
    """The corpus' check protocol."""
    match entry.get("draw", "normal"):
        case "bool":
            return rng.integers(0, 2, shape).astype(bool)
        case "sign":
            return rng.integers(0, 2, shape) * 2.0 - 1.0
        case "index":
            return rng.integers(0, sizes[entry["high"]], shape)
        case "lower_triangular":
            return np.tril(rng.standard_normal(shape))
        case "normal":
            return rng.standard_normal(shape)
    raise AssertionError(entry)


def small(name: str) -> tuple[Program, Arrays]:
    """A problem at its check sizes, and its inputs."""
    problem = PROBLEMS[name]
    check = problem["check"]
    (program,) = lang.parse(translate(problem, check["dims"]))
    entries = [*problem["inputs"], *problem["parameters"]]
    rng = np.random.default_rng(check["seed"])
    sizes = problem["dims"] | check["dims"]
    pairs = zip(program.inputs, entries, strict=True)
    return program, {b.name: draw(rng, e, b.shape, sizes) for b, e in pairs}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_oracle_reproduces_the_check_values(name: str) -> None:
    program, arrays = small(name)
    (actual,) = run(program, arrays, storage=False).values()
    wanted = PROBLEMS[name]["check"]
    assert list(actual.shape) == wanted["shape"]
    assert actual.sum() == pytest.approx(wanted["sum"], rel=1e-9, abs=1e-12)
    assert np.abs(actual).sum() == pytest.approx(wanted["abs_sum"], rel=1e-9)
    head = actual.ravel()[: len(wanted["head"])]
    np.testing.assert_allclose(head, wanted["head"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_parses_at_the_benchmarks_sizes(name: str) -> None:
    (program,) = lang.parse(translate(PROBLEMS[name]))
    (output,) = program.outputs
    assert output.buffer.dtype == ("i64" if name == "L1-51" else "f32")


@pytest.mark.parametrize("name", EVERY)
def test_the_optimized_plan_computes_the_problem(name: str, worker: Worker) -> None:
    """Interpreted as a whole, in the kernels' own precision."""
    program, arrays = small(name)
    result = optimize(program, Options(), worker=worker)
    assert result.passed, result.as_dict()["certificate"]
    found = {b.name: arrays[b.name].astype(storage(b.dtype)) for b in program.inputs}
    for built in result.built:
        run_program(built.tiles, found)
    (output,) = program.outputs
    exact = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in found.items()}
    (wanted,) = run(program, exact, storage=False).values()
    actual = found[output.buffer.name].astype(np.float64)
    scale = np.abs(wanted).max(initial=1e-30)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_optimizes_and_compiles_at_its_own_size(name: str, worker: Worker) -> None:
    (program,) = lang.parse(translate(PROBLEMS[name]))
    result = optimize(program, Options(compile=True), worker=worker)
    assert result.passed, result.as_dict()["certificate"]
    assert all(step.compiled for b in result.built for step in b.best.steps)
