"""What the spine must show, end to end: kernels, passes, bytes and certificates of the examples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from nautile import lang
from nautile.dtypes import DTYPES
from nautile.examples import paths
from nautile.stages import Optimization, Options, optimize
from nautile.terms import Program
from nautile.worker import Worker

Get = Callable[..., Optimization]
VARIANTS = [p.name for f in paths() if f.stem == "attention_variants" for p in lang.parse_file(f)]
ONE_KERNEL = [
    "softmax", "logsumexp", "cross_entropy", "rmsnorm_residual", "layernorm", "matmul_bias_gelu",
    "swiglu", "batched_matmul_scale", "elementwise", "gemm",
]  # fmt: skip
ONE_READ = ["softmax", "logsumexp", "cross_entropy", "rmsnorm_residual", "layernorm"]


def nbytes(program: Program) -> int:
    return sum(DTYPES[b.dtype].bytes * b.size for b in program.inputs)


def kernels(result: Optimization) -> list[dict[str, object]]:
    found = result.as_dict()["chosen"]["kernels"]
    assert isinstance(found, list)
    return found


def is_single_pass_attention(result: Optimization) -> None:
    (kernel,) = kernels(result)
    chosen = result.as_dict()["chosen"]
    assert len(kernel["streams"]) == 1  # type: ignore[arg-type]
    key_axis = result.plan.kernels[0].parts[0].streams[0]  # type: ignore[union-attr]
    value = result.program.inputs[2]
    assert key_axis.extent == value.shape[2]
    assert chosen["gap"] == 0
    assert result.passed, result.as_dict()["certificate"]


def test_attention_is_one_kernel_that_streams_the_key_axis(optimized: Get) -> None:
    is_single_pass_attention(optimized("attention"))


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_variants_are_too(optimized: Get, name: str) -> None:
    is_single_pass_attention(optimized("attention_variants", name))


def test_names_do_not_matter(optimized: Get, worker: Worker) -> None:
    result = optimized("attention")
    renamed = optimize(lang.anonymous(result.program), Options(), worker=worker)
    assert renamed.key == result.key
    is_single_pass_attention(renamed)
    assert [k["seconds"] for k in kernels(renamed)] == [k["seconds"] for k in kernels(result)]


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(optimized: Get, name: str) -> None:
    result = optimized(name)
    assert len(kernels(result)) == 1
    assert result.passed, result.as_dict()["certificate"]


@pytest.mark.parametrize("name", ONE_READ)
def test_each_element_is_read_once(optimized: Get, name: str) -> None:
    result = optimized(name)
    (kernel,) = kernels(result)
    assert kernel["reads_bytes"] <= nbytes(result.program) * 1.001  # type: ignore[operator]


def test_matmul_chain_takes_the_cheapest_order(optimized: Get) -> None:
    """A(BC)v: any order that starts from the vector costs the sum of the matrices' sizes."""
    result = optimized("matmul_chain")
    work = sum(k["tensor_flops"] + k["vector_flops"] for k in kernels(result))  # type: ignore[operator]
    matrices = [b.size for b in result.program.inputs if len(b.shape) == 2]
    assert work <= 2.5 * sum(matrices)
    assert result.passed


def test_linear_attention_reassociates_exactly_when_cheaper(optimized: Get) -> None:
    def flops(result: Optimization) -> int:
        return sum(k["tensor_flops"] + k["vector_flops"] for k in kernels(result))  # type: ignore[misc]

    long = optimized("linear_attention")
    sizes = long.program.sizes
    heads = math.prod(long.program.inputs[0].shape[:-2])
    t, d = long.program.inputs[0].shape[-2:]
    assert flops(long) < 2 * 2 * heads * t * t * d
    short = optimized("linear_attention", dims=",".join(f"{k}=64" for k in sizes if k in "TS"))
    assert len(kernels(short)) == 1


def test_an_outer_factor_is_hoisted(optimized: Get) -> None:
    """sum[j](x[i,j] * c[i]) multiplies by c once a row: about one operation an element."""
    result = optimized("hoist")
    (kernel,) = kernels(result)
    elements = max(b.size for b in result.program.inputs)
    assert kernel["vector_flops"] < 1.5 * elements  # type: ignore[operator]


def test_transformer_block(optimized: Get) -> None:
    result = optimized("transformer_block")
    assert len(kernels(result)) <= 9
    assert result.passed, result.as_dict()["certificate"]
    assert sum(result.timings.values()) < 60
    names = {"wq", "wk", "wv"}
    readers = [
        k for k in result.plan.kernels  # type: ignore[union-attr]
        if names & {b.name.lower() for o in k.outputs for b in _reads(o)}
    ]  # fmt: skip
    assert len(readers) == (1 if readers[0].path == "portable" else 3)


def _reads(output: object) -> tuple[object, ...]:
    from nautile.terms import buffers

    return buffers(output.term)  # type: ignore[attr-defined]


def test_numerics_classes_gate_the_programs_that_need_them(optimized: Get) -> None:
    exact = optimized("attention", numerics="exact")
    assert len(kernels(exact)) > 1 or len(kernels(exact)[0]["streams"]) != 1  # type: ignore[arg-type]
    assert exact.passed
    real = optimized("attention")
    assert len(kernels(real)) == 1


SELF_QUOTIENT = """def f(x: f32[N], g: f32[N], *, N=1048576) -> f32[N]:
    y[n] = x[n] * (g[n] / g[n])
    return y
"""


def test_what_only_fast_allows_is_not_chosen_under_real(worker: Worker) -> None:
    """g / g is 1 for finite g other than 0 alone: only `fast` may leave g unread."""
    reads = {
        numerics: kernels(optimize(SELF_QUOTIENT, Options(numerics=numerics), worker=worker))[0][
            "reads_bytes"
        ]
        for numerics in ("exact", "real", "fast")
    }
    assert reads == {"exact": 8 << 20, "real": 8 << 20, "fast": 4 << 20}
