"""Input values for test kernels, and the oracle's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nautile.dtypes import DTYPES, round_to, storage
from nautile.extract.kernel import Kernel
from nautile.oracle import arrays_fetch, evaluate
from nautile.terms import Buffer, buffers

Arrays = dict[str, npt.NDArray[Any]]


def inputs(kernel: Kernel, seed: int = 0) -> Arrays:
    """Random arrays for every buffer that the kernel reads, in storage types."""
    rng = np.random.default_rng(seed)
    return {b.name: _values(b, rng) for b in buffers(*(o.term for o in kernel.outputs))}


def _values(buffer: Buffer, rng: np.random.Generator) -> npt.NDArray[Any]:
    kind = DTYPES[buffer.dtype].kind
    if kind == "float":
        return rng.standard_normal(buffer.shape).astype(storage(buffer.dtype))
    top = 2 if kind == "bool" else 9
    return rng.integers(0, top, buffer.shape).astype(storage(buffer.dtype))


def expected(kernel: Kernel, arrays: Arrays) -> dict[str, npt.NDArray[np.float64]]:
    """Each output by the oracle, before the rounding to its type."""
    fetch = arrays_fetch({name: _wide(array) for name, array in arrays.items()})
    found = {}
    for output in kernel.outputs:
        positions = {a: np.arange(a.extent) for a in output.axes}
        found[output.buffer.name] = np.asarray(evaluate(output.term, fetch, positions), np.float64)
    return found


def _wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Narrow floats as float32, exactly."""
    return array if array.dtype.kind in "bif" else array.astype(np.float32)


def tolerance(dtype: str) -> float:
    """What a correct kernel may differ by, relative to the largest magnitude of a tensor."""
    return {
        "f64": 1e-12,
        "f32": 2e-5,
        "bf16": 1.2e-2,
        "f16": 2e-3,
        "f8e4m3": 0.07,
        "f8e5m2": 0.13,
    }.get(dtype, 0.0)


def check(kernel: Kernel, arrays: Arrays, found: Arrays, loose: float = 1.0) -> None:
    """Assert that `found` holds the oracle's outputs within their types' tolerance."""
    for output in kernel.outputs:
        name, dtype = output.buffer.name, output.buffer.dtype
        want = expected(kernel, arrays)[name]
        got = np.asarray(found[name]).astype(np.float64)
        assert np.array_equal(np.isnan(want), np.isnan(got)), f"{name}: NaN where none is due"
        rounded = round_to(want, dtype)
        finite = np.isfinite(rounded)
        assert np.array_equal(rounded[~finite], got[~finite], equal_nan=True)
        bound = loose * tolerance(dtype) * max(1e-30, float(np.abs(want[finite]).max(initial=0)))
        worst = float(np.abs(want - got)[finite].max(initial=0))
        assert worst <= bound, f"{name}: off by {worst}, allowed {bound}"
