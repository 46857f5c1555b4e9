"""One and a hyperbolic tangent are a logistic function, however they are spelled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from nautile import lang
from nautile.oracle import arrays_fetch, evaluate
from nautile.stages import Optimization, Options, certify, choose, saturate
from nautile.terms import Apply, Const, Term, walk
from nautile.worker import Worker

TEXT = """
def f(x: {x}[N,M], u: {x}[N,M], *, N=512, M=512) -> {x}[N,M]:
    y[n,m] = {value}
    return y
"""
CUBIC = "tanh(0.7978845608 * (x[n,m] + 0.044715 * x[n,m] ** 3))"
T = "tanh(x[n,m])"
# text, and how many constants beside the cubic's the best form has
FORMS = {
    "plain": (f"1.0 + {T}", 2),
    "turned": (f"{T} + 1.0", 2),
    "halves": ("0.5 + 0.5 * tanh(0.5 * x[n,m])", 0),
    "halved": (f"(1.0 + {T}) / 2.0", 1),
    "quotient": (f"{T} / 2.0 + 0.5", 1),
    "less": (f"x[n,m] * (1.0 - {T})", 2),
    "less halves": (f"x[n,m] * (0.5 - {T} / 2.0)", 1),
    "minus": (f"x[n,m] * ({T} - 1.0)", 2),
    "gelu": (f"0.5 * x[n,m] * (1.0 + {CUBIC})", 2),
    "gelu, factors last": (f"({CUBIC} + 1.0) * x[n,m] * 0.5", 2),
    "gelu, half inside": (f"x[n,m] * (0.5 + 0.5 * {CUBIC})", 2),
    "gelu, half outside": (f"0.5 * (x[n,m] * (1.0 + {CUBIC}))", 2),
    "gelu, spread": (f"0.5 * (x[n,m] + x[n,m] * {CUBIC})", 2),
    "gelu, divided": (f"x[n,m] * (1.0 + {CUBIC}) / 2.0", 2),
    "gelu, halved first": (f"x[n,m] / 2.0 * (1.0 + {CUBIC})", 2),
    "gelu, gated": (f"0.5 * (x[n,m] * (1.0 + {CUBIC}) * u[n,m])", 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def optimized(value: str, worker: Worker, dtype: str = "bf16") -> Optimization:
    result = Optimization(lang.parse(TEXT.format(x=dtype, value=value))[0], Options())
    saturate(result, worker)
    choose(result)
    return result


def term_of(result: Optimization) -> Term:
    assert result.plan is not None
    (kernel,) = result.plan.kernels
    (output,) = kernel.outputs
    return output.term


def operations(term: Term) -> set[str]:
    return {t.operation for t in walk(term) if isinstance(t, Apply)}


@pytest.mark.parametrize("name", FORMS)
def test_every_spelling_becomes_a_logistic_function(name: str, worker: Worker) -> None:
    text, constants = FORMS[name]
    result = optimized(text, worker)
    found = term_of(result)
    assert {"tanh", "sigmoid"} & operations(found) == {"sigmoid"}
    scalars = [t for t in walk(found) if isinstance(t, Apply) and t.operation != "div"]
    numbers = sum(isinstance(a, Const) for t in scalars for a in t.arguments)
    assert numbers <= constants
    assert sum(s.report.rows for s in result.snapshots) < 60


@pytest.mark.parametrize(
    "text",
    [
        f"30.0 * {T}",
        f"2.0 + {T}",
        f"x[n,m] + {T}",
        f"0.5 + 0.25 * {T}",
        f"u[n,m] - x[n,m] * {T}",
    ],
)
def test_other_sums_keep_the_tangent(text: str, worker: Worker) -> None:
    assert {"tanh", "sigmoid"} & operations(term_of(optimized(text, worker))) == {"tanh"}


def test_what_is_chosen_keeps_the_digits_of_the_tail(worker: Worker) -> None:
    x = np.array([[-9.0, -6.0, -3.0, -0.5], [0.1, 0.5, 3.0, 9.0]], np.float32)
    found = _computed(f"x[n,m] * (1.0 + {T})", x, worker)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide * 2 / (1 + np.exp(-2 * wide)), rtol=1e-6)
    source = x * (np.float32(1) + np.tanh(x))
    assert np.max(np.abs(source / wide * (1 + np.exp(-2 * wide)) / 2 - 1)[x < 0]) > 1e-3


def _computed(text: str, x: npt.NDArray[np.float32], worker: Worker) -> npt.NDArray[np.float64]:
    term = term_of(optimized(text, worker, "f32"))
    by_name = {a.name: a for a in term.free}
    at = {by_name[name]: np.arange(size) for name, size in zip("nm", x.shape, strict=True)}
    full = np.zeros((512, 512), np.float32)
    full[: x.shape[0], : x.shape[1]] = x
    arrays = {"x": full, "u": full}
    return np.asarray(evaluate(term, arrays_fetch(arrays), at), np.float64)


@pytest.mark.parametrize("name", ["gelu", "less", "gelu, gated"])
def test_the_certificate_passes(name: str, worker: Worker) -> None:
    result = optimized(FORMS[name][0], worker)
    certify(result)
    assert result.certificate is not None
    assert result.certificate.verdict == "pass"
