"""Sums of deviations from their mean: nearly 0, and no order of adding says how near."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautile.certificate.blocks import _cancelled
from nautile.certificate.subject import Subject, subject_of
from nautile.judge import judge
from nautile.terms import Buffer, Output

from .plans import plan_of, program_of

TEXT = """
def f(x: f32[N,M], *, N=6, M=4096) -> f32[N]:
    y[i] = sum[j](x[i,j] - mean[j](x[i,j]))
    return y
"""


def stored_sum() -> Subject:
    """The sum as a tensor of the plan's own, which the source has no name for."""
    program = program_of(TEXT)
    (definition,) = program.definitions
    made = Output(Buffer("state", definition.buffer.shape, "f32"), definition.axes, definition.body)
    return subject_of(program, plan_of(made), 0)


@pytest.mark.parametrize(
    ("off", "passes"),
    [
        (lambda x: x.astype(np.float32).cumsum(axis=1)[:, -1], True),
        (lambda x: x.sum(axis=1) + 0.25 * np.sqrt(x.shape[1]) * x.std(axis=1), False),
    ],
    ids=["added in order", "a quarter of a deviation missing"],
)
def test_only_what_adding_in_order_loses_is_allowed(
    off: Callable[[np.ndarray], np.ndarray], passes: bool
) -> None:
    subject = stored_sum()
    (target,) = subject.targets
    grid = {target.axes[0]: np.arange(6)}
    fetch = subject.drawn("ordinary")
    x = fetch(Buffer("x", (6, 4096), "f32"), (np.arange(6)[:, None], np.arange(4096)[None]))
    deviations = x - x.mean(axis=1, keepdims=True)
    exact = deviations.sum(axis=1)
    naive = _cancelled(subject, target, grid, "ordinary", exact, exact.astype(np.float32))
    assert judge(off(deviations), exact, naive, "f32").passed is passes
