"""What is read: canonical axes, sizes, types, calls, constants, and the values of the prelude."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from nautile import lang, oracle
from nautile.errors import SourceError
from nautile.lang.module import prelude
from nautile.terms import (
    Before,
    Const,
    Load,
    Online,
    Program,
    Reduce,
    Running,
    apply,
    reduce_,
    text,
    walk,
)
from nautile.types import type_of

GQA = """
def {name}(Q: bf16[B,H,T,D], K: bf16[B,Hk,S,D], V: bf16[B,Hk,S,E], *,
           B=1, H=4, Hk=2, T=8, S=8, D=4, E=4) -> bf16[B,H,T,E]:
    x[{0},{1},{2},{3}] = sum[d](Q[{0},{1},{2},d] * K[{0},{1}//(H//Hk),{3},d]) * D**-0.5
    m[{4},{5},{6},{7}] = where({7} <= {6} + (S - T), x[{4},{5},{6},{7}], -inf)
    a[{8},{9},{10}] = max[{11}](m[{8},{9},{10},{11}])
    p[b,h,t,s] = exp(m[b,h,t,s] - a[b,h,t])
    z[b,h,t] = sum[{11}](p[b,h,t,{11}])
    O[b,h,t,e] = sum[s](p[b,h,t,s] / z[b,h,t] * V[b,h//(H//Hk),s,e])
    return O
"""


def _one(source: str, **dims: int) -> Program:
    (program,) = lang.parse(source, dims=dims or None)
    return program


def _body(expression: str, head: str = "x: f32[N,M], y: f32[M], e: i32[N]") -> str:
    """A definition's printed right-hand side."""
    program = _one(f"def f({head}, *, N=4, M=8) -> f32:\n    return {expression}")
    return lang.show_term(program.definitions[-1].body)


def test_index_names_of_a_line_do_not_matter() -> None:
    usual = _one(GQA.format(*"bhtsbhtsbhts", name="f"))
    other = _one(GQA.format(*"bhtsnmijuvwk", name="f"))
    swapped = _one(GQA.format(*"bhtshtsbtsbk", name="f"))
    assert usual.definitions == other.definitions == swapped.definitions
    assert {a.name for d in usual.definitions for a in d.axes} == {"b", "h", "t", "s", "e"}
    first, *_ = _one(GQA.format(*"nmijbhtsbhts", name="f")).definitions
    assert [a.name for a in first.axes] == ["n", "m", "i", "j"]


def test_families_join_through_lines_calls_and_results() -> None:
    program = _one(
        "def f(x: f32[N,M], y: f32[M], *, N=4, M=4) -> f32[N,M]:\n"
        "    a[p,q] = x[p,q] * y[q]\n"
        "    b[r,t] = softmax[t](a[r,t])\n"
        "    c = half(b)\n"
        "    d[i: N, j: M] = c[i,j] + i * j\n"
        "    return d\n"
        "def half(z: f32[A,B]) -> f32[A,B]:\n"
        "    w[u,v] = z[u,v] / 2\n"
        "    return w"
    )
    assert [d.name for d in program.definitions] == ["a", "b", "c", "d"]
    assert all([a.name for a in d.axes] == ["p", "q"] for d in program.definitions)
    assert program.outputs[0].axes == program.definitions[-1].axes


def test_two_indices_of_one_family_are_numbered() -> None:
    program = _one(
        "def f(x: f32[N,D], *, N=4, D=3) -> f32[N,N]:\n"
        "    g[i,j] = sum[d](x[i,d] * x[j,d])\n"
        "    return g[a,b] / sum[c](g[a,c])"
    )
    gram, result = program.definitions
    assert [a.name for a in gram.axes] == ["i", "i__1"]
    assert lang.show_term(result.body) == "g[i, i__1] / sum[i__1](g[i, i__1])"
    inner = next(t for t in walk(result.body) if isinstance(t, Reduce))
    assert inner is reduce_("sum", inner.axis, inner.body)


def test_equal_reductions_are_one_term() -> None:
    program = _one(
        "def f(x: f32[N], *, N=4) -> f32:\n"
        "    return sum[i](x[i]) * sum[j](x[j]) + sum[i: 3](i) * sum[k: 3](k)"
    )
    assert sum(isinstance(t, Reduce) for t in walk(program.definitions[0].body)) == 2


def test_names_of_families_stay_apart() -> None:
    program = _one(
        "def f(x: f32[N], y: f32[M], i: f32, *, N=4, M=5) -> (f32[N], f32[M]):\n"
        "    a[j] = x[j] * i\n    b[j] = y[j]\n    return a, b\n"
    )
    assert [d.axes[0].name for d in program.definitions] == ["j", "j_1"]
    assert (
        _one("def f(x: f32[N], *, N=4) -> f32[N]:\n    a[p__2] = x[p__2]\n    return a")
        .definitions[0]
        .axes[0]
        .name
        == "p"
    )


def test_reductions_shadow_left_indices() -> None:
    assert _body("sum[i](x[i,0] / sum[i](x[i,1]))") == "sum[i](x[i, 0] / sum[i](x[i, 1]))"


@pytest.mark.parametrize(
    ("expression", "printed"),
    [
        ("M**-0.5", repr(8**-0.5)),
        ("(N - M) // 3 + 2 * N", "6"),
        ("-inf", "-inf"),
        ("1 / 0", "1 / 0"),
        ("log(1.0) + min(N, 7, M)", "4.0"),
        ("mean[i,j](x[i,j])", "sum[i](sum[j](x[i, j])) / 32"),
        ("sum[j: 3](y[2 * j + 1])", "sum[j: 3](y[2 * j + 1])"),
        ("sum[j: M](y[(j + (M - 8)) // (N // 4)])", "sum[j](y[j])"),
        (
            "x[0,1] if 0 <= e[0] - 1 < N else y[0]",
            "where(0 <= e[0] - 1 and e[0] - 1 < 4, x[0, 1], y[0])",
        ),
        ("sum[j: M](y[j + 4 - 8 * (j // 4)])", "sum[j: 8](y[j + 4 - 8 * (j // 4)])"),
        (
            "sum[j](softmax[j: M](y[j]))",
            "sum[j](exp(y[j] - max[j](y[j])) / sum[j](exp(y[j] - max[j](y[j]))))",
        ),
        ("logsumexp[v](y[v])", "max[v](y[v]) + log(sum[v](exp(y[v] - max[v](y[v]))))"),
        ("sum[i: 3](sum[j: 2](y[i - j + 1]))", "sum[i: 3](sum[j: 2](y[i - j + 1]))"),
        ("max(y[0], y[1], y[2])", "max(max(y[0], y[1]), y[2])"),
        ("sum[i](x[i,e[i]])", "sum[i](x[i, e[i]])"),
        ("bf16(y[0]) ** 2", "bf16(y[0]) ** 2"),
        ("-(y[0] - (y[1] - y[2])) ** 2", "-(y[0] - (y[1] - y[2])) ** 2"),
        ("gelu(y[0])", "0.5 * y[0] * (1.0 + erf(y[0] * 0.7071067811865476))"),
        ("leaky_relu(y[0], slope=0.2)", "where(y[0] >= 0.0, y[0], 0.2 * y[0])"),
    ],
)
def test_expressions(expression: str, printed: str) -> None:
    assert _body(expression) == printed


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("x[0,0]", "f32"),
        ("h[0]", "f32"),
        ("b8[0]", "i32"),
        ("i64(e[0])", "i64"),
        ("e[0] + 1", "i32"),
        ("e[0] / 2", "f32"),
        ("e[0] // 2", "i32"),
        ("e[0] ** 2", "f32"),
        ("e[0] * 0.5", "f32"),
        ("w[0] * x[0,0]", "f64"),
        ("f64(h[0])", "f64"),
        ("sum[i](e[i])", "i32"),
        ("argmax[i](h[i])", "i32"),
        ("bf16(h[0])", "f32"),
        ("where(e[0] > 0, e[0], 0.5)", "f32"),
        ("floor(e[0])", "f32"),
        ("abs(e[0])", "i32"),
        ("where(e[0] > 0, 1, 0)", "i32"),
        ("exp(w[0])", "f64"),
    ],
)
def test_types(expression: str, dtype: str) -> None:
    head = "x: f32[N,M], e: i32[N], h: bf16[N], w: f64[N], b8: i8[N]"
    program = _one(f"def f({head}, *, N=4, M=8) -> f32:\n    return {expression}")
    definition = program.definitions[0]
    assert (definition.dtype, definition.buffer.dtype) == (dtype, dtype)
    assert type_of(definition.body) == dtype


def test_long_axes_are_bounded_by_intervals() -> None:
    source = (
        "def f(x: f32[N], *, N=2**21) -> f32[2*N]:\n    a[i: 2*N] = x[(i + 1)//2 {0}]\n    return a"
    )
    assert _one(source.format("% N")).outputs[0].buffer.shape == (2**22,)
    with pytest.raises(SourceError) as caught:
        _one(source.format(""))
    assert "from 0 to 2097152" in caught.value.message


def test_truth_values_are_stored_as_such() -> None:
    program = _one("def f(x: f32[4]) -> bool[4]:\n    p[i] = not x[i] > 0\n    return p")
    assert (program.definitions[0].dtype, program.outputs[0].buffer.dtype) == ("bool", "bool")


def test_sizes() -> None:
    source = "def f(x: f32[N,2*D], y: f32[N//K], *, N=8, K=2, D=N*K) -> (f32[N], f32):\n"
    source += "    return sum[d](x[n,d]), sum[k](y[k]) * D"
    program = _one(source)
    assert [b.shape for b in program.inputs] == [(8, 32), (4,)]
    assert dict(program.sizes) == {"N": 8, "K": 2, "D": 16}
    other = _one(source, N=6, K=3)
    assert [b.shape for b in other.inputs] == [(6, 36), (2,)]
    assert [o.buffer.shape for o in other.outputs] == [(6,), ()]


def test_sizes_apply_to_the_programs_that_have_them() -> None:
    source = "def f(x: f32[N], *, N=8) -> f32[N]:\n    return x\n"
    source += "def g(x: f32[M], *, M=8) -> f32[M]:\n    return x"
    assert [p.inputs[0].shape for p in lang.parse(source, dims={"M": 3})] == [(8,), (3,)]


def test_scalars() -> None:
    program = _one(
        "def f(x: f32[4], k: f32, eps: f32 = 1e-6) -> f32[()]:\n    return sum[i](x[i]) * k + eps"
    )
    assert [b.shape for b in program.inputs] == [(4,), (), ()]
    assert dict(program.defaults) == {"eps": 1e-6}
    assert (program.outputs[0].buffer.shape, program.outputs[0].axes) == ((), ())


def test_called_programs_become_definitions() -> None:
    source = (
        "def f(A: f32[M,K], g: bf16[K], *, M=4, K=8) -> (f32[M,M], f32):\n"
        "    w, top = scores(A, A, scale=2.0)\n"
        "    s_a[i] = norm(A, g)[i,0] + norm(A, g, eps=1.0)[i,0]\n"
        "    return w, top\n"
        "def scores(q: bf16[T,D], k: f32[S,D], scale: f32) -> (f32[T,S], f32):\n"
        "    a[t,s] = sum[d](q[t,d] * k[s,d]) * scale\n"
        "    return a, max[t,s](a[t,s])\n"
        "def norm(x: f32[N,C], w: bf16[C], eps: f32 = 0.5) -> f16[N,C]:\n"
        "    s[n] = mean[c](x[n,c] * x[n,c]) + eps\n"
        "    y[n,c] = x[n,c] * w[c] / s[n]\n"
        "    return y"
    )
    program = _one(source)
    shown = [line.strip() for line in lang.show(program).splitlines()[1:-1]]
    assert shown == [
        "w[i, i__1] = sum[d](bf16(A[i, d]) * A[i__1, d]) * 2.0",
        "top = max[i](max[i__1](w[i, i__1]))",
        "norm_s[i] = sum[d](A[i, d] * A[i, d]) / 8 + 0.5",
        "norm_y[i, d] = A[i, d] * g[d] / norm_s[i]",
        "norm_s_1[i] = sum[d](A[i, d] * A[i, d]) / 8 + 1.0",
        "norm_y_1[i, d] = A[i, d] * g[d] / norm_s_1[i]",
        "s_a[i] = f16(norm_y[i, 0]) + f16(norm_y_1[i, 0])",
    ]


def test_operations_of_the_file_take_axes() -> None:
    source = (
        "def f(x: f32[N,M], *, N=4, M=8) -> f32[N]:\n"
        "    return sum[m](scaled[m](x[n,m] + 1, n))\n"
        "def scaled(x: f32[C], k: i32) -> f32[C]:\n"
        "    top = max[i](abs(x[i]))\n"
        "    y[i] = x[i] / top * k\n"
        "    return y"
    )
    program = _one(source)
    assert lang.show_term(program.definitions[0].body) == (
        "sum[m]((x[n, m] + 1) / max[m](abs(x[n, m] + 1)) * n)"
    )


def test_an_error_in_a_called_operation_is_told_at_the_call() -> None:
    with pytest.raises(SourceError) as caught:
        lang.parse("def f(x: f32[4]) -> f32:\n    return cross_entropy[i](x[i], 7)")
    assert caught.value.code == "out-of-range"
    assert caught.value.message.startswith("in cross_entropy: ")
    assert caught.value.text.strip().startswith("return cross_entropy")


def test_program_keeps_its_source_and_lines() -> None:
    source = "# top\n\ndef f(x: f32[4]) -> f32[4]:\n    # why\n    y[i] = x[i]\n    return y\n"
    program = lang.parse(source, "a.nau")[0]
    assert program.source == "\n".join(source.splitlines()[2:])
    assert (program.filename, program.definitions[0].line) == ("a.nau", 5)


def test_copies_and_repeated_inputs_become_definitions() -> None:
    program = _one("def f(x: f32[4]) -> (f32[4], f32[4]):\n    return x, x")
    assert [o.buffer.name for o in program.outputs] == ["result", "result_1"]
    assert all(isinstance(d.body, Load) for d in program.definitions)


def test_terms_that_the_language_lacks_are_printed() -> None:
    program = _one(
        "def f(x: f32[4], y: f32[4]) -> f32:\n    return max[s](x[s]) + sum[s](x[s] * y[s])"
    )
    top, total = program.definitions[0].body.arguments  # type: ignore[attr-defined]
    repair = apply("exp", apply("sub", Before(top), Running(top)))
    online = Online(top.axis, repair, apply("mul", total.body, Const(2.0)))
    assert lang.show_term(online) == (
        "online[s](exp(before[s](max[s](x[s])) - running[s](max[s](x[s]))), x[s] * y[s] * 2.0)"
    )


def test_canonical_text_is_stable() -> None:
    program = _one("def f(x: f32[4,3]) -> f32[4]:\n    return sum[j](x[i,j] * 2)")
    assert text(program.definitions[0].body) == (
        "index i:4\nindex j:3\nload x:f32[4, 3] %0 %1\nconst int 2\nmul %2 %3\nsum j:3 %4"
    )


X = np.array([[-7.5, -1.0, -0.25, 0.0], [0.5, 2.0, 3.25, 6.5], [1e3, -1e3, 40.0, -40.0]])


def _shift(x: np.ndarray) -> np.ndarray:
    return x - x.max(axis=-1, keepdims=True)


def _lse(x: np.ndarray) -> np.ndarray:
    return x.max(axis=-1) + np.log(np.exp(_shift(x)).sum(axis=-1))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(axis=-1, keepdims=True)


ROWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax[j](x[i,j])": lambda x: np.exp(_shift(x)) / np.exp(_shift(x)).sum(-1, keepdims=True),
    "log_softmax[j](x[i,j])": lambda x: x - _lse(x)[:, None],
    "logsumexp[k](x[i,k])": _lse,
    "cross_entropy[k](x[i,k], 2)": lambda x: _lse(x) - x[:, 2],
    "variance[k](x[i,k])": lambda x: x.var(axis=-1),
    "std[k](x[i,k])": lambda x: x.std(axis=-1),
    "layernorm[j](x[i,j], x[0,j], x[1,j])": lambda x: (
        _centred(x) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * x[0] + x[1]
    ),
    "standardize[j](x[i,j], eps=0.1)": lambda x: (
        _centred(x) / np.sqrt(x.var(axis=-1, keepdims=True) + 0.1)
    ),
    "rmsnorm[j](x[i,j], x[1,j])": lambda x: (
        x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * x[1]
    ),
    "l1norm[j](x[i,j])": lambda x: x / np.abs(x).sum(axis=-1, keepdims=True),
    "l2norm[j](x[i,j])": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "cumsum[j](x[i,j])": lambda x: np.cumsum(x, axis=-1),
    "dot[k](x[i,k], x[1,k])": lambda x: x @ x[1],
    "relu(x[i,j])": lambda x: np.maximum(x, 0),
    "relu6(x[i,j])": lambda x: np.clip(x, 0, 6),
    "leaky_relu(x[i,j])": lambda x: np.where(x < 0, 0.01 * x, x),
    "elu(x[i,j])": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu(x[i,j])": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "celu(x[i,j], alpha=2.0)": lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)),
    "gelu(x[i,j])": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh(x[i,j])": lambda x: (
        x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu(x[i,j])": lambda x: x * _sigmoid(x),
    "swish(x[i,j], beta=0.5)": lambda x: x * _sigmoid(0.5 * x),
    "softplus(x[i,j])": lambda x: np.logaddexp(0, x),
    "log_sigmoid(x[i,j])": lambda x: -np.logaddexp(0, -x),
    "mish(x[i,j])": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softsign(x[i,j])": lambda x: x / (1 + np.abs(x)),
    "tanhshrink(x[i,j])": lambda x: x - np.tanh(x),
    "softshrink(x[i,j])": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "hardshrink(x[i,j])": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "hardtanh(x[i,j])": lambda x: np.clip(x, -1, 1),
    "hardsigmoid(x[i,j])": lambda x: np.clip((x + 3) / 6, 0, 1),
    "hardswish(x[i,j])": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "clamp(x[i,j], -2.0, 3.0)": lambda x: np.clip(x, -2, 3),
    "square(x[i,j])": np.square,
    "maximum(x[i,j], x[i,0])": lambda x: np.maximum(x, x[:, :1]),
    "minimum(x[i,j], x[i,0])": lambda x: np.minimum(x, x[:, :1]),
    "reciprocal(x[i,j] + 0.125)": lambda x: 1 / (x + 0.125),
    "ceil(x[i,j])": np.ceil,
    "tan(x[i,j])": np.tan,
    "sinh(x[i,j] / 100)": lambda x: np.sinh(x / 100),
    "cosh(x[i,j] / 100)": lambda x: np.cosh(x / 100),
}


@pytest.mark.parametrize("call", ROWS)
def test_the_prelude_computes_what_its_names_say(call: str) -> None:
    expected = ROWS[call](X)
    left, result = ("i", "N") if expected.ndim == 1 else ("i: N, j: M", "N,M")
    source = (
        f"def f(x: f64[N,M], *, N=3, M=4) -> f64[{result}]:\n    y[{left}] = {call}\n    return y"
    )
    actual = oracle.run(_one(source), {"x": X})["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


def test_every_operation_of_the_prelude_is_tested() -> None:
    assert {call.split("(")[0].split("[")[0] for call in ROWS} == set(prelude().programs)
