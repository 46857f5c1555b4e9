"""A norm before a contraction in one kernel: where it is chosen, and what it computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from nautile import extract, lang
from nautile.extract.body import analyse
from nautile.extract.norms import holds, norm
from nautile.extract.passes import passes
from nautile.extract.shapes import is_chain
from nautile.stages import Optimization, Options, build, certify, choose, saturate
from nautile.terms import Axis
from nautile.worker import Worker

LAYER = """
def layer(x: {x}[N,C], g: f32[C], b: f32[C], W: bf16[C,O], *, N={n}, C={c}, O={o}) -> bf16[N,O]:
    h[n,c] = layernorm[c](x[n,c], g[c], b[c])
    y[n,o] = sum[c](h[n,c] * W[c,o])
    return y
"""
SHIFTED = """
def shifted(x: bf16[N,C], g: f32[C], b: f32[C], W: bf16[C,O], *, N=16, C=512, O=256) -> bf16[N,O]:
    r[n] = rsqrt(mean[c](x[n,c] * x[n,c]) + 1e-6)
    h[n,c] = x[n,c] * r[n] * g[c] + b[c]
    y[n,o] = sum[c](h[n,c] * W[c,o])
    return y
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as active:
        yield active


def chosen(text: str, worker: Worker) -> Optimization:
    result = Optimization(lang.parse(text)[0], Options())
    saturate(result, worker)
    choose(result)
    return result


def layer(n: int, c: int, o: int, x: str = "bf16") -> str:
    return LAYER.format(n=n, c=c, o=o, x=x)


def kernels(result: Optimization) -> int:
    assert result.plan is not None
    return len(result.plan.kernels)


def test_few_tokens_are_one_kernel_with_one_pass(worker: Worker) -> None:
    result = chosen(layer(16, 1024, 4096), worker)
    assert kernels(result) == 1
    assert result.plan is not None
    assert passes(result.plan.kernels)["x"] == 1


@pytest.mark.parametrize("size", [(512, 1024, 4096), (4096, 1024, 1024), (16, 4096, 4096)])
def test_more_tokens_or_longer_rows_are_two_kernels(
    size: tuple[int, int, int], worker: Worker
) -> None:
    assert kernels(chosen(layer(*size), worker)) == 2


@pytest.mark.parametrize("text", [layer(13, 708, 256), SHIFTED])
def test_what_is_chosen_is_certified(text: str, worker: Worker) -> None:
    result = chosen(text, worker)
    build(result)
    certify(result)
    assert kernels(result) == 1
    assert result.passed
    assert "in place" in result.built[0].cuda.text


def test_rows_that_no_copy_moves_are_no_norm(worker: Worker) -> None:
    """f32 rows would need another form of the operand: two kernels."""
    assert kernels(chosen(layer(16, 1024, 4096, "f32"), worker)) == 2


def test_the_price_grows_with_the_rows_of_a_block(worker: Worker) -> None:
    result = chosen(layer(16, 512, 1024), worker)
    assert result.plan is not None
    (part,) = result.plan.kernels[0].parts
    body = analyse(part.outputs)
    found = norm(body)
    assert found is not None
    assert not is_chain(body)
    device, blocks = extract.device("h200"), np.array([64.0, 64.0])
    one = found.seconds(device, blocks, np.array([16.0, 32.0]) * 512, blocks / 64)
    assert one[1] > one[0] > 0.8e-6


def test_rows_must_fit_beside_the_other_operand() -> None:
    assert holds(Axis("c", 0, 2048))
    assert not holds(Axis("c", 0, 4096))


def test_normed_queries_leave_attention_in_one_kernel(worker: Worker) -> None:
    """Nothing is reduced after a contraction that has a norm before it: attention then takes the
    normed queries from memory, and stores no scores."""
    text = """
def heads(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], g: f32[D], b: f32[D], *,
          H=8, T=1024, S=1024, D=64) -> bf16[H,T,D]:
    q[h,t,d] = layernorm[d](Q[h,t,d], g[d], b[d])
    p[h,t,s] = softmax[s](sum[d](q[h,t,d] * K[h,s,d]))
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""
    result = chosen(text, worker)
    assert result.plan is not None
    assert all(b.size <= 8 * 1024 * 64 for b in result.plan.intermediates)
