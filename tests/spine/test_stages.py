"""The stages: what happens when the gate refuses a schedule."""

from __future__ import annotations

import pytest

from nautile import stages
from nautile.errors import CompileError
from nautile.stages import Built, Optimization, Options, optimize
from nautile.worker import Worker

SOFTMAX = """def f(x: f32[N,C], *, N=4096, C=1024) -> f32[N,C]:
    y[n,c] = softmax[c](x[n,c])
    return y
"""


def test_a_refused_schedule_gives_way_to_the_next(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = optimize(SOFTMAX, Options(), worker=worker)
    assert first.plan is not None
    (refused,) = first.plan.kernels

    def gate(result: Optimization, built: Built) -> Built:
        if built.kernel.parts == refused.parts:
            raise CompileError("spills", code="gate")
        return built

    monkeypatch.setattr(stages, "_compile", gate)
    second = optimize(SOFTMAX, Options(compile=True), worker=worker)
    assert second.plan is not None
    (taken,) = second.plan.kernels
    assert taken.parts != refused.parts
    assert taken.outputs == refused.outputs
    assert second.plan.seconds == taken.prediction.seconds >= first.plan.seconds
    assert second.plan.gap == pytest.approx(1 - second.plan.bound / second.plan.seconds)
    assert second.passed


def test_when_all_are_refused_the_first_refusal_is_told(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gate(result: Optimization, built: Built) -> Built:
        raise CompileError("spills", code="gate")

    monkeypatch.setattr(stages, "_compile", gate)
    with pytest.raises(CompileError, match="spills"):
        optimize(SOFTMAX, Options(compile=True), worker=worker)


def test_another_compiler_error_is_not_hidden(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(result: Optimization, built: Built) -> Built:
        raise CompileError("line 3: expected a ;", code="compile")

    monkeypatch.setattr(stages, "_compile", broken)
    with pytest.raises(CompileError, match="expected a ;"):
        optimize(SOFTMAX, Options(compile=True), worker=worker)
