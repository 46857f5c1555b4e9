"""Random programs, end to end without a compiler: the chosen program equals the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings

from nautile.worker import Worker

from .random_programs import programs
from .random_runs import body_of, chunk
from .random_trial import numerics_of, trial

QUICK, LONG = 60, 3000
FREELY = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def test_random_programs_equal_the_oracle(worker: Worker) -> None:
    _try_many(worker, QUICK, most=2)


@pytest.mark.slow
def test_many_random_programs_equal_the_oracle(worker: Worker) -> None:
    _try_many(worker, LONG, most=5)


def _try_many(worker: Worker, count: int, most: int) -> None:
    """Distinct programs; a failing one is shrunk. Rules for dependent reductions take part in a
    good share of what is chosen, or the programs would prove little."""
    passed: set[str] = set()
    failed: set[str] = set()
    features: Counter[str] = Counter()

    @settings(FREELY, max_examples=count)
    @given(programs(most))
    def equal(text: str) -> None:
        assume(text in failed or body_of(text) not in passed)
        found = trial(text, worker, numerics_of(text))
        failed.update([text] if found.failures else [])
        assert not found.failures, "\n".join([text, *found.failures])
        passed.add(body_of(text))
        features.update(found.features)

    equal()
    assert features["online"] > count // 30
    assert features["streams"] > count // 6


def test_equal_seeds_give_equal_programs() -> None:
    first = chunk(7, 1, size=20)
    assert first == chunk(7, 1, size=20)
    assert first != chunk(8, 1, size=20)


FOUND = {
    "an online sum waits for a pass over another axis": """
def f(x: f32[M], y: f32[N, M], *, N=3, M=9) -> f32[N]:
    s[n: N] = sum[j: M](where(j <= n, y[n, j], -1.0))
    t[n: N] = sum[m: M]((x[m] - mean[j: M](x[j])) * (x[m] - s[n]))
    return t
""",
    "an output repeats its class along an axis": """
def f(x: f32[N, M], y: f32[M], *, N=2, M=17) -> (f16[N, M], f32[N], f32[N], f32[N]):
    s[n: N, m: M] = where(m <= n, x[n, m], -1e30)
    t[n: N] = max[m: M](abs(x[n, m]))
    u[n: N] = mean[m: M](y[m] * y[m])
    v[n: N] = mean[m: M](x[n, m] / u[n])
    return s, t, v, u
""",
    "a narrow operand behind a factor": """
def f(x: bf16[N, M], y: f32[M, D], *, N=5, M=12, D=3) -> f32[N, D]:
    t[n: N, d: D] = sum[m: M]((x[n, m] * max[j: M](x[n, j])) * y[m, d])
    return t
""",
    "a kernel computes what another reads": """
def f(x: bf16[M, N], y: f32[M, N], w: bf16[N, D], *, N=1, M=3, D=4) -> (f32[M, D], f32[M], f32[M]):
    t[m: M] = logsumexp[n](x[m, n])
    u[m: M, d: D] = sum[n: N]((y[m, n] - t[m]) * (y[m, n] - t[m]) * w[n, d])
    v[m: M] = sum[n: N](exp(y[m, n] - t[m]) * (y[m, n] - t[m]))
    return u, v, t
""",
    "zeros under a quotient": """
def f(x: f32[M, N], y: f32[M], w: f32[N, D], *, N=4, M=7, D=1) -> f32[M, D]:
    c[m: M] = max[u: N](where(u <= m, x[m, u], -inf))
    t[m: M, d: D] = sum[n: N](exp(x[m, n] - c[m]) / y[m] * w[n, d])
    return t
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_random_programs_found_stays_right(name: str, worker: Worker) -> None:
    assert trial(FOUND[name], worker).failures == []
