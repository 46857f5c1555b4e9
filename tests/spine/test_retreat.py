"""What is taken where code generation refuses a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import pytest

import nautile
from nautile import building, extract
from nautile.building import build as real
from nautile.built import Built
from nautile.certificate import Certificate
from nautile.errors import CompileError, LoweringError
from nautile.extract.exact import Exact
from nautile.extract.kernel import Kernel, Plan
from nautile.extract.plan import decide
from nautile.stages import Optimization, Options, optimize
from nautile.terms import Reduce, walk
from nautile.worker import Worker

ATTENTION = """def f(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], *,
      H=2, T=64, S=48, D=32) -> bf16[H,T,D]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    p[h,t,s] = softmax[s](x[h,t,s])
    O[h,t,d] = sum[s](p[h,t,s] * V[h,s,d])
    return O
"""
PLAIN = Options(compile=False)


@pytest.fixture(scope="module")
def first(worker: Worker) -> Optimization:
    return optimize(ATTENTION, PLAIN, worker=worker)


def refusing(monkeypatch: pytest.MonkeyPatch, *refused: Kernel) -> None:
    """Lowering fails for kernels that compute the same."""

    def build(kernel: Kernel, options: Options) -> Built:
        if any(kernel.outputs == other.outputs for other in refused):
            raise LoweringError(f"{kernel.name}: refused")
        return real(kernel, options)

    monkeypatch.setattr(building, "build", build)


def test_a_kernel_that_does_not_lower_gives_way_to_the_next_best_choice(
    first: Optimization, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first.plan is not None
    assert first.plan.choice is not None
    (kernel,) = first.plan.kernels
    refusing(monkeypatch, kernel)
    result = optimize(ATTENTION, PLAIN, worker=worker)
    plan = result.plan
    assert plan is not None
    assert plan.choice is not None
    assert result.passed
    assert all(k.outputs != kernel.outputs for k in plan.kernels)
    assert plan.pruned["refused"] == len(plan.choice.pool.refused) >= 1
    pool = first.plan.choice.pool
    assert plan.choice.pool.refused[0][1].parts == pool.candidates[kernel.columns[0]][1].parts
    assert plan.seconds >= first.plan.seconds
    assert plan.bound <= plan.seconds


def test_the_next_choice_is_the_best_of_what_is_left(first: Optimization) -> None:
    assert first.plan is not None
    assert first.plan.choice is not None
    pool, gone = first.plan.choice.pool, frozenset(first.plan.kernels[0].columns)
    left = pool.without(gone)
    device = extract.device("h200")
    found = decide(left, first.work, device)
    wanted = Exact(forbid=gone)(pool.widened.columns, pool.widened.roots)
    assert found.choice is not None
    assert wanted is not None
    assert found.choice.best.cost == pytest.approx(wanted.cost)
    assert len(left.candidates) == len(pool.widened.candidates) - len(gone)
    assert [c for _, c in left.refused] == [pool.candidates[k][1] for k in sorted(gone)]


def test_at_last_the_program_is_taken_as_it_is_written(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an emitter that takes one reduction a kernel, and none that rules have made."""

    def build(kernel: Kernel, options: Options) -> Built:
        reduces = {t for t in walk(*(o.term for o in kernel.outputs)) if isinstance(t, Reduce)}
        if len(reduces) > 1 or kernel.rules:
            raise LoweringError(f"{kernel.name}: refused")
        return real(kernel, options)

    monkeypatch.setattr(building, "build", build)
    result = optimize(ATTENTION, PLAIN, worker=worker)
    assert result.plan is not None
    assert result.passed
    assert result.plan.pruned["refused"] >= 1
    assert {"unsaturated", "written"} & set(result.plan.pruned)
    assert len(result.plan.kernels) >= 3
    assert result.plan.gap == pytest.approx(1 - result.plan.bound / result.plan.seconds)
    assert result.as_dict()["status"] == "ok"


def test_what_nothing_lowers_is_an_error(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def build(kernel: Kernel, options: Options) -> NoReturn:
        calls.append(kernel.name)
        raise LoweringError(f"refusal {len(calls)}")

    monkeypatch.setattr(building, "build", build)
    with pytest.raises(LoweringError, match=r"refusal 1$"):
        optimize(ATTENTION, PLAIN, worker=worker)
    assert 1 < len(calls) <= 24


def test_a_kernel_that_the_gate_refuses_gives_way(
    first: Optimization, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first.plan is not None
    (kernel,) = first.plan.kernels

    def compiled(built: Built, options: Options, compiler: building.Compiler) -> Built:
        if built.kernel.outputs == kernel.outputs:
            raise CompileError("spills", code="gate")
        return built

    monkeypatch.setattr(building, "compile_built", compiled)
    monkeypatch.setattr(building.Compiler, "ahead", lambda *_: None)
    result = optimize(ATTENTION, replace(PLAIN, compile=True), worker=worker)
    assert result.plan is not None
    assert result.passed
    assert result.plan.pruned["refused"] >= 1
    assert all(k.outputs != kernel.outputs for k in result.plan.kernels)
    assert [b.best.kernel for b in result.built] == list(result.plan.kernels)


def test_what_does_not_compile_is_an_error(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that the compiler cannot read is a defect that is not to be hidden."""

    def compiled(*_: object) -> NoReturn:
        raise CompileError("expected a ;", code="compile")

    monkeypatch.setattr(building, "compile_built", compiled)
    monkeypatch.setattr(building.Compiler, "ahead", lambda *_: None)
    with pytest.raises(CompileError, match="expected"):
        optimize(ATTENTION, replace(PLAIN, compile=True), worker=worker)


def test_an_explanation_tells_what_was_refused(
    first: Optimization, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first.plan is not None
    refusing(monkeypatch, *first.plan.kernels)
    result = optimize(ATTENTION, PLAIN, worker=worker)
    told = nautile.explain(result, worker=worker).as_dict()
    found = [row for row in told["candidates"] if row["reason"]["code"] == "lowering"]
    assert [row["id"] for row in found] == ["l0"]
    assert not found[0]["taken"]
    assert told["pruned"]["refused"] == 1


SMALL_RANGE = """def scaled_rows(x: {t}[N,C], w: {t}[C], W: {t}[O,C], *, N=64, C=128, O=64
      ) -> f32[N,O]:
    r[n] = rsqrt(mean[c](x[n,c] * x[n,c]) + 1e-6)
    y[n,o] = sum[c](x[n,c] * r[n] * w[c] * W[o,c])
    return y
"""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_no_value_leaves_the_range_of_its_type(worker: Worker, dtype: str) -> None:
    """The product x w of two large f16 values is infinite in f16, where the result is not."""
    result = optimize(SMALL_RANGE.format(t=dtype), PLAIN, worker=worker)
    assert result.passed
    assert result.plan is not None
    assert ("guarded" in result.plan.pruned) == (dtype == "f16")
    told = result.explain(margin=False, derivation=False).as_text()
    assert ("whose range it may leave" in told) == (dtype == "f16")
    again = nautile.explain(SMALL_RANGE.format(t=dtype), margin=False, derivation=False)
    assert ("whose range it may leave" in again.as_text()) == (dtype == "f16")


def test_a_result_that_stays_wrong_is_the_first_one(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the guarded program is not certified either, what fails is the faster one."""
    monkeypatch.setattr(Certificate, "verdict", property(lambda self: "fail"))
    result = optimize(SMALL_RANGE.format(t="f16"), PLAIN, worker=worker)
    assert result.plan is not None
    assert result.certificate is not None
    assert "guarded" not in result.plan.pruned
    assert len(result.built) == len(result.plan.kernels)
    assert not all(check.passed for check in result.certificate.checks)


@pytest.mark.parametrize("slower", [1000.0, 1.0])
def test_a_choice_that_is_slower_than_the_source_gives_way_to_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    """The first choice is priced far too high, or as it is; the source as costing nothing."""
    real, calls = extract.choose, []

    def choose(*given: Any, **options: Any) -> Plan:
        plan = real(*given, **options)
        calls.append(plan.seconds * (1.0 if calls else slower))
        return replace(plan, seconds=calls[-1])

    free = {"kernels": 3, "bytes": 0, "seconds": 0.0}
    monkeypatch.setattr(extract, "choose", choose)
    monkeypatch.setattr(extract, "baseline", lambda program, target: free)
    result = optimize(ATTENTION, PLAIN, worker=worker)
    assert len(calls) == 3
    assert result.plan is not None
    assert result.plan.seconds == pytest.approx(min(calls))
    assert "unsaturated" in result.plan.pruned or min(calls) == calls[0]
    assert result.passed
