"""Definitions that read one another in a long chain, looked up from the last."""

from __future__ import annotations

import numpy as np

from nautile import lang
from nautile.oracle import evaluate, lazy
from nautile.terms import Buffer

LENGTH = 200


def test_a_chain_of_definitions_is_as_deep_as_it_is_long() -> None:
    lines = ["def f(a0: f32[N], *, N=8) -> f32[N]:"]
    lines += [f"    a{k}[n] = a{k - 1}[n] + sum[i: 2](1.0)" for k in range(1, LENGTH + 1)]
    (program,) = lang.parse("\n".join([*lines, f"    return a{LENGTH}", ""]))
    definitions = {d.name: (d.axes, d.body) for d in program.definitions}

    def fetch(buffer: Buffer, index: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.asarray(10.0 * index[0])

    last = program.definitions[-1]
    found = evaluate(last.body, lazy(definitions, fetch, widen=8), {last.axes[0]: [1, 7]})
    np.testing.assert_array_equal(found, [10.0 + 2 * LENGTH, 70.0 + 2 * LENGTH])
