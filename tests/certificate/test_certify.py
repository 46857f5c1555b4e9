"""Certificates: right plans pass, and every kind of wrong plan fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nautile import lang
from nautile.certificate import certify, expected
from nautile.certificate.recipes import recipes
from nautile.codegen.lower import lower
from nautile.codegen.tile import TileProgram
from nautile.extract import choose, cut, device, snapshot_of
from nautile.extract.kernel import Kernel, Part, Plan
from nautile.judge import from_json, judge
from nautile.oracle import run
from nautile.samples import decode, encode, values
from nautile.terms import Buffer, Const, Index, Load, Output, Program, Reduce, Term, apply, walk

from .plans import FREE, fused, is_apply, online, plan_of, program_of, replaced, stored

ATTENTION = """
def attend(Q: bf16[H,T,D], K: bf16[G,S,D], V: bf16[G,S,E], *, H=4, G=2, T=200, S=300, D=32, E=16)
        -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h//(H//G),s,d]) * D**-0.5
    m[h,t,s] = where(s <= t + (S - T), x[h,t,s], -inf)
    p[h,t,s] = softmax[s](m[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h//(H//G),s,e])
    return O
""".replace("\n        ->", " ->")

SPLIT = ATTENTION.replace(
    """    p[h,t,s] = softmax[s](m[h,t,s])
    O[h,t,e] = sum[s](p[h,t,s] * V[h//(H//G),s,e])
""",
    """    p[h,t,s] = exp(m[h,t,s] - max[u: S](m[h,t,u]))
    O[h,t,e] = sum[s](p[h,t,s] * V[h//(H//G),s,e]) / sum[s](p[h,t,s])
""",
)

NORM = """
def norm(X: bf16[N,C], R: bf16[N,C], g: f32[C], *, N=300, C=256) -> (bf16[N,C], bf16[N,C]):
    h[n,c] = X[n,c] + R[n,c]
    r[n] = rsqrt(mean[c](h[n,c] * h[n,c]) + 1e-5)
    y[n,c] = h[n,c] * r[n] * g[c]
    return y, h
"""

CHAIN = """
def chain(X: bf16[N,C], W: bf16[F,C], V: bf16[C,F], *, N=120, C=64, F=96) -> bf16[N,C]:
    u[n,f] = bf16(silu(sum[c](X[n,c] * W[f,c])))
    y[n,c] = sum[f](u[n,f] * V[c,f]) + X[n,c]
    return y
"""


def attention(change: Callable[[Term], Term] = lambda t: t) -> tuple[Program, Plan]:
    """Attention with a softmax, and a plan that divides once, as the rules would."""
    return program_of(ATTENTION), fused(program_of(SPLIT), change)


def norm(change: Callable[[Term], Term] = lambda t: t) -> tuple[Program, Plan]:
    program = program_of(NORM)
    return program, fused(program, change)


@pytest.mark.parametrize("change", [lambda t: t, online], ids=["naive", "online"])
def test_attention_passes(change: Callable[[Term], Term]) -> None:
    certificate = certify(*attention(change))
    assert certificate.verdict == "pass", certificate.failures
    assert certificate.samples > 500
    assert certificate.max_relative_error < 1e-10


def unshifted(root: Term) -> Term:
    """exp(x - max) without its shift: equal over the reals, infinite for large scores."""
    return replaced(
        lambda t: is_apply("sub")(t) and getattr(t.arguments[1], "monoid", "") == "max",  # type: ignore[attr-defined]
        lambda t: t.arguments[0],  # type: ignore[attr-defined]
    )(root)


def scaled(root: Term) -> Term:
    return replaced(
        lambda t: isinstance(t, Const) and isinstance(t.value, float) and 0.1 < t.value < 0.2,
        lambda t: Const(t.value * 1.001),  # type: ignore[attr-defined]
    )(root)


MUTANTS: dict[str, Callable[[Term], Term]] = {
    "mask dropped": replaced(is_apply("where"), lambda t: t.arguments[1]),  # type: ignore[attr-defined]
    "mask one off": replaced(is_apply("le"), lambda t: apply("lt", *t.arguments)),  # type: ignore[attr-defined]
    "mask off by one more": replaced(
        is_apply("le"),
        lambda t: apply("le", t.arguments[0], apply("add", t.arguments[1], Const(1))),  # type: ignore[attr-defined]
    ),
    "scale a thousandth off": scaled,
    "unshifted": unshifted,
    "repair sign": lambda t: online(t, -1.0),
    "no repair": lambda t: online(t, repaired=False),
}


@pytest.mark.parametrize("name", list(MUTANTS))
def test_wrong_attention_fails(name: str) -> None:
    program, right = attention()
    _, wrong = attention(MUTANTS[name])
    assert wrong != right
    certificate = certify(program, wrong)
    assert certificate.verdict == "fail"
    assert [c.name for c in certificate.failures] == ["meaning of O"]


NORM_MUTANTS: dict[str, Callable[[Term], Term]] = {
    "no eps": replaced(lambda t: t is Const(1e-5), lambda t: Const(0.0)),
    "sum for mean": replaced(lambda t: isinstance(t, Const) and t.value in (256, 256.0, 1 / 256),
                             lambda t: Const(1.0)),
    "sign": replaced(is_apply("rsqrt"), lambda t: apply("neg", t)),
    "square root": replaced(is_apply("rsqrt"), lambda t: apply("div", Const(1.0), t.arguments[0])),  # type: ignore[attr-defined]
}  # fmt: skip


@pytest.mark.parametrize("name", list(NORM_MUTANTS))
def test_wrong_norms_fail(name: str) -> None:
    assert certify(*norm()).verdict == "pass"
    program, wrong = norm(NORM_MUTANTS[name])
    assert wrong != norm()[1]
    assert certify(program, wrong).verdict == "fail"


@pytest.mark.parametrize(
    ("names", "dtypes", "verdict"),
    [
        (("u",), {}, "pass"),
        (("u",), {"u": "bf16"}, "pass"),
        (("u",), {"u": "f16"}, "fail"),
        (("u",), {"u": "f8e4m3"}, "fail"),
    ],
)
def test_a_stored_tensor_may_be_as_narrow_as_its_readers_round_it(
    names: tuple[str, ...], dtypes: dict[str, str], verdict: str
) -> None:
    program = program_of(CHAIN)
    assert certify(program, stored(program, names, dtypes)).verdict == verdict


def test_a_narrow_store_that_no_reader_asked_for_fails() -> None:
    program = program_of(NORM)
    assert certify(program, stored(program, ("r",))).verdict == "pass"
    assert certify(program, stored(program, ("r",), {"r": "bf16"})).verdict == "fail"


def test_a_kernel_may_read_another_stored_tensor_than_the_source() -> None:
    # y from the stored z = 2*x, where the source goes back to x: the cut at z does not hold.
    text = """
def twice(x: f32[N], *, N=64) -> (f32[N], f32[N]):
    z[n] = 2 * x[n]
    y[n] = 3 * x[n]
    return z, y
"""
    program = program_of(text)
    z, y = program.outputs
    (n,) = z.axes
    x = program.definitions[0].body
    made = Output(z.buffer, (n,), x)
    half = apply("mul", Const(1.5), Load(z.buffer, tuple(y.term.coordinates)))  # type: ignore[attr-defined]
    assert certify(program, plan_of(made, Output(y.buffer, (n,), half))).verdict == "pass"
    wrong = apply("mul", Const(1.25), half.arguments[1])
    assert certify(program, plan_of(made, Output(y.buffer, (n,), wrong))).verdict == "fail"


def test_a_plan_of_the_wrong_structure_fails() -> None:
    program = program_of(NORM)
    right = stored(program, ("r",))
    late = Plan(right.kernels[::-1], (), 0.0, 0.0, 0.0)
    assert "before it is made" in certify(program, late).checks[0].detail
    missing = Plan(right.kernels[:-1], (), 0.0, 0.0, 0.0)
    assert "output h is not made" in certify(program, missing).checks[0].detail
    y = right.kernels[1].outputs[0]
    narrow = Output(Buffer("y", y.buffer.shape, "f16"), y.axes, y.term)
    other = plan_of(right.kernels[0].outputs[0], narrow, right.kernels[2].outputs[0])
    assert "output y is" in certify(program, other).checks[0].detail


# -- tile programs --------------------------------------------------------------------------------


def streamed() -> tuple[Program, Plan, dict[str, tuple[TileProgram, ...]]]:
    """Online attention, and its tile program on tiles that divide nothing."""
    program, plan = attention(online)
    output = plan.kernels[0].outputs[0]
    axes = {a.family: a for a in output.axes}
    s = next(a for a in _bound(output.term) if a.extent == 300)
    part = Part((output,), {axes["h"]: 1, axes["t"]: 48, axes["e"]: 16, s: 64}, (s,))
    kernel = Kernel("attend", (part,), FREE)
    return program, Plan((kernel,), (), 0.0, 0.0, 0.0), {"attend": (lower(kernel, part),)}


def _bound(term: Term) -> set:  # type: ignore[type-arg]
    from nautile.terms import Online, Reduce, walk

    return {t.axis for t in walk(term) if isinstance(t, (Reduce, Online))}


def test_a_streamed_tile_program_passes_and_names_the_rounded_operand() -> None:
    certificate = certify(*streamed())
    assert certificate.verdict == "pass", certificate.failures
    names = [c.name for c in certificate.checks]
    assert names == ["structure", "meaning of O", "tile program of attend", "operand rounding"]
    assert certificate.checks[-1].detail == "attend: f32 operand to bf16"
    assert 0 < certificate.checks[2].rmse_ratio < 2
    json.dumps(certificate.as_dict(), allow_nan=False)


def test_wrong_tile_programs_fail() -> None:
    from dataclasses import replace

    from nautile.codegen.tile import Bounds, Fold, Loop, Write

    program, plan, tiles = streamed()
    (right,) = tiles["attend"]

    def changed(step: Callable[[object], object]) -> TileProgram:
        def visit(body: tuple) -> tuple:  # type: ignore[type-arg]
            done = [step(s) for s in body]
            return tuple(
                replace(s, body=visit(s.body)) if isinstance(s, Loop) else s
                for s in done
                if s is not None
            )

        return replace(right, body=visit(right.body))

    mutants = {
        "unwritten": changed(lambda s: None if isinstance(s, Write) else s),
        "no repair": changed(lambda s: replace(s, repair=None) if isinstance(s, Fold) else s),
        "loop too short": changed(
            lambda s: replace(s, bounds=Bounds(stop=Const(1))) if isinstance(s, Loop) else s
        ),
    }
    for name, mutant in mutants.items():
        certificate = certify(program, plan, {"attend": (mutant,)})
        assert [c.name for c in certificate.failures] == ["tile program of attend"], name


def test_an_operand_that_no_neighbour_has_rounded_fails() -> None:
    from dataclasses import replace

    from nautile.codegen.tile import Loop, Mma

    program, plan, tiles = streamed()
    (right,) = tiles["attend"]
    body = tuple(
        replace(
            s,
            body=tuple(replace(m, operand="f8e4m3") if isinstance(m, Mma) else m for m in s.body),
        )
        if isinstance(s, Loop)
        else s
        for s in right.body
    )
    certificate = certify(program, plan, {"attend": (replace(right, body=body),)})
    assert {c.name for c in certificate.failures} == {"tile program of attend", "operand rounding"}


# -- the reference for the GPU --------------------------------------------------------------------


def test_the_stored_reference_is_what_the_whole_program_gives() -> None:
    program, plan = attention(online)
    stored_reference = json.loads(json.dumps(expected(program, plan, seed=5), allow_nan=False))
    for case in stored_reference["cases"]:
        arrays = {}
        for b in program.inputs:
            drawn = values(case["kinds"][b.name], 5, b.name, np.arange(b.size))
            arrays[b.name] = decode(encode(drawn, b.dtype), b.dtype).reshape(b.shape)
        outputs = run(program, arrays)
        (entry,) = case["outputs"]
        shape = [len(p) for p in entry["positions"]]
        reference = from_json(entry["reference"], shape)
        actual = outputs[entry["buffer"]][np.ix_(*entry["positions"])]
        naive = from_json(entry["naive"], shape)
        assert judge(actual, reference, naive, entry["dtype"], floor=entry["floor"]).passed
        np.testing.assert_allclose(actual, reference, rtol=2**-7, atol=1e-6)
        assert not judge(-actual, reference, naive, entry["dtype"]).passed


def test_certificates_are_the_same_from_run_to_run() -> None:
    first, second = (certify(*attention(online), seed=3) for _ in range(2))
    assert first == second


def test_a_scalar_result_is_certified() -> None:
    program = program_of("""
def loss(x: f32[N], *, N=1000) -> f32:
    y = mean[n](x[n] * x[n])
    return y
""")
    plan = fused(program)
    (kernel,) = plan.kernels
    part = kernel.parts[0]
    (n,) = _bound(part.outputs[0].term)
    streamed_part = Part(part.outputs, {n: 128}, (n,))
    kernel = Kernel("loss", (streamed_part,), FREE)
    tiles = {"loss": (lower(kernel, streamed_part),)}
    certificate = certify(program, Plan((kernel,), (), 0.0, 0.0, 0.0), tiles)
    assert certificate.verdict == "pass", certificate.failures


LINEAR = """
def linear(Q: bf16[T,D], K: bf16[S,D], V: bf16[S,E], *, T=100, S=80, D=32, E=48) -> bf16[T,E]:
    A[d,e] = sum[s](K[s,d] * V[s,e])
    O[t,e] = sum[d](Q[t,d] * A[d,e]){more}
    return O
"""


@pytest.mark.parametrize(
    ("more", "dtype", "verdict"),
    [
        ("", "f32", "pass"),
        ("", "bf16", "pass"),
        ("", "f16", "fail"),
        (" + A[0,e]", "bf16", "fail"),
    ],
)
def test_a_store_may_round_for_tensor_cores_that_would_round_anyway(
    more: str, dtype: str, verdict: str
) -> None:
    program = program_of(LINEAR.format(more=more))
    certificate = certify(program, stored(program, ("A",), {"A": dtype}))
    assert certificate.verdict == verdict, certificate.failures
    rounding = [c.detail for c in certificate.checks if c.name == "operand rounding"]
    assert rounding == (
        ["A is stored as its readers round it"] if (more, dtype) == ("", "bf16") else []
    )


def test_a_long_program_is_cut_at_its_stored_tensors() -> None:
    # Were the cut at u not to hold, y would be compared from the inputs on, at few places.
    program = program_of(CHAIN)
    certificate = certify(program, stored(program, ("u",), {"u": "bf16"}), samples=512)
    samples = {c.name: c.samples for c in certificate.checks}
    assert samples["meaning of y"] > 500
    assert samples["meaning of u"] > 500


HUGE = """
def loss(X: bf16[N,C], W: bf16[V,C], *, N=4096, V=128256, C=3584) -> f32:
    z[n,v] = sum[c](X[n,c] * W[v,c])
    y = mean[n](logsumexp[v](tanh(z[n,v] / 30) * 30))
    return y
"""


def test_a_program_too_long_to_look_at_is_compared_over_shorter_axes() -> None:
    program = program_of(HUGE)
    right = certify(program, fused(program))
    assert right.verdict == "pass", right.failures
    assert "over the first 1024 positions" in right.checks[1].detail
    wrong = fused(program, replaced(is_apply("tanh"), lambda t: t.arguments[0]))  # type: ignore[attr-defined]
    assert certify(program, wrong).verdict == "fail"


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_maximum_that_misses_one_end_of_its_axis_fails(shift: int) -> None:
    program = program_of(
        "def top(X: bf16[N,V], *, N=90, V=777) -> f32[N]:\n"
        "    y[n] = max[v](X[n,v])\n    return y\n"
    )

    def missed(term: Term) -> Term:
        assert isinstance(term, Load)
        row, column = term.coordinates
        return Load(term.buffer, (row, apply("add", column, Const(shift))))

    wrong = fused(program, replaced(lambda t: isinstance(t, Load), missed))
    assert certify(program, fused(program)).verdict == "pass"
    assert certify(program, wrong).verdict == "fail"


def test_fast_rules_may_overflow_where_the_source_does_not() -> None:
    program = program_of(
        "def soft(X: f32[N,V], *, N=90, V=77) -> f32[N,V]:\n"
        "    y[n,v] = softmax[v](X[n,v])\n    return y\n"
    )

    def is_shift(t: Term) -> bool:
        return getattr(t, "operation", None) == "sub"

    unshifted = fused(program, replaced(is_shift, lambda t: t.arguments[0]))  # type: ignore[attr-defined]
    assert certify(program, unshifted).verdict == "fail"
    assert certify(program, unshifted, numerics="fast").verdict == "pass"


def test_the_input_that_makes_a_score_large_is_drawn_small() -> None:
    program = program_of(
        "def slopes(Q: f32[T,D], K: f32[S,D], b: f32[H], *, H=3, T=9, S=400, D=16) -> f32[H,T]:\n"
        "    x[h,t,s] = sum[d](Q[t,d] * K[s,d]) * D**-0.5 + b[h] * s\n"
        "    y[h,t] = sum[s](exp(x[h,t,s]))\n    return y\n"
    )
    kinds = recipes(program)
    assert (kinds["Q"], kinds["K"]) == ("normal", "normal")
    assert kinds["b"].startswith("normal:0.00")


def test_products_beyond_every_square_are_compared() -> None:
    program = program_of(
        "def product(X: f32[N,C], *, N=30, C=45) -> f32[N]:\n"
        "    y[n] = prod[c](X[n,c])\n    return y\n"
    )
    wrong = fused(program, lambda t: apply("mul", t, Const(1.01)))
    assert certify(program, fused(program)).verdict == "pass"
    assert "large" in certify(program, wrong).failures[0].detail


FROBENIUS = """def f(X: f32[A,B,C,D], *, A=8, B=16, C=256, D=128) -> f32[A,B,C,D]:
    n = sum[a,b,c,d](X[a,b,c,d] * X[a,b,c,d])
    y[a,b,c,d] = X[a,b,c,d] * rsqrt(n)
    return y
"""


def test_a_sum_over_a_whole_tensor_is_certified_in_seconds() -> None:
    """4.2e6 elements: looked at over shorter axes, and still a wrong plan is seen."""
    (program,) = lang.parse(FROBENIUS)
    regions = cut(program)
    plan = choose([(r, snapshot_of(r.outputs)) for r in regions], program, device("h200"))
    tiles = {k.name: tuple(lower(k, p) for p in k.parts) for k in plan.kernels}
    start = time.process_time()
    assert certify(program, plan, tiles).verdict == "pass"
    assert time.process_time() - start < 60
    (wrong,) = lang.parse(FROBENIUS.replace("rsqrt(n)", "rsqrt(2 * n)"))
    assert certify(wrong, plan, tiles).verdict == "fail"


EMPTY = """
def weighted(x: f32[N,M], n: i32[N], keep: bool[N,M], *, N=40, M=300) -> f32[N]:
    a[i,j] = where(j < n[i] and keep[i,j], x[i,j], -inf)
    top[i] = max[j](a[i,j])
    y[i] = sum[j](where(j < n[i] and keep[i,j], exp(x[i,j] - top[i]), 0.0))
    return y
"""


def test_rows_without_a_position_are_looked_at() -> None:
    """A row that is masked as a whole is 0; a plan that gives NaN there alone is found out."""
    program = program_of(EMPTY)
    kinds = recipes(program, "edges")
    assert kinds["n"] == "ends:0:301"
    assert kinds["keep"] == "stripes:300"
    assert certify(program, fused(program)).verdict == "pass"
    spoiled = fused(program, lambda t: apply("add", t, apply("mul", Const(0.0), _top(t))))
    assert certify(program, spoiled).verdict == "fail"


def _top(root: Term) -> Term:
    return next(t for t in walk(root) if isinstance(t, Reduce) and t.monoid == "max")


QUOTIENT = """
def f(x: f32[N,M], y: f32[N], w: f32[M], *, N=20, M=12) -> f32[N]:
    t[n] = {body}
    return t
"""


def test_what_is_no_real_number_is_compared_for_ordinary_inputs_alone() -> None:
    """Zeros make quotients NaN in one order and infinite in another; a row that is masked out is
    NaN for ordinary inputs, and must stay so."""
    source = program_of(QUOTIENT.format(body="sum[m](x[n,m] / y[n] * w[m])"))
    factored = fused(program_of(QUOTIENT.format(body="sum[m](x[n,m] * w[m]) / y[n]")))
    assert certify(source, factored).verdict == "pass"
    assert certify(source, factored, numerics="exact").verdict == "fail"
    masked = "sum[m](exp({} - max[k: M]({})) * w[m])".format(
        "where(m < n, x[n,m], -inf)", "where(k < n, x[n,k], -inf)"
    )
    source = program_of(QUOTIENT.format(body=masked))
    zero = program_of(QUOTIENT.format(body=f"where(n == 0, 0.0, {masked})"))
    assert certify(source, fused(source)).verdict == "pass"
    assert certify(source, fused(zero)).verdict == "fail"


def test_a_kernel_may_compute_anew_what_another_reads() -> None:
    """The tensor is stored and read, so it is drawn for its reader, but not for its maker."""
    program = program_of("""
def f(x: f32[N,M], *, N=20, M=12) -> (f32[N], f32[N], f32[N]):
    t[n] = sum[m](x[n,m])
    u[n] = exp(t[n])
    v[n] = t[n] * 2.0
    return t, u, v
""")
    for factor, verdict in ((1.0, "pass"), (2.0, "fail")):
        t, u, v = plan_of(*program.outputs).kernels
        total = program.definitions[0].body
        outputs = (
            replace(t.outputs[0], term=total),
            replace(u.outputs[0], term=apply("exp", apply("mul", total, Const(factor)))),
        )
        made = replace(t, parts=(replace(t.parts[0], outputs=outputs),))
        axes = v.outputs[0].axes
        double = apply("mul", Load(t.outputs[0].buffer, tuple(map(Index, axes))), Const(2.0))
        last = replace(
            v, parts=(replace(v.parts[0], outputs=(replace(v.outputs[0], term=double),)),)
        )
        plan = Plan((made, last), (), 0.0, 0.0, 0.0)
        tiles = {k.name: (lower(k, k.parts[0]),) for k in plan.kernels}
        assert certify(program, plan, tiles).verdict == verdict


def test_a_lucky_rounding_of_the_source_is_no_bound() -> None:
    """All results hang on one sum: summed in another order, its error is another random number."""
    program = program_of("""
def f(x: f32[D], z: f32[M], *, D=6, M=200) -> f32[D]:
    y[d] = exp(x[d] + sum[m](z[m] * z[m]) - M)
    return y
""")
    plan = fused(program)
    (kernel,) = plan.kernels
    (part,) = kernel.parts
    axes = {t.axis for t in walk(part.outputs[0].term) if isinstance(t, Reduce)}
    streamed = replace(part, tiles={**part.tiles, **dict.fromkeys(axes, 7)}, streams=tuple(axes))
    plan = replace(plan, kernels=(replace(kernel, parts=(streamed,)),))
    tiles = {kernel.name: (lower(plan.kernels[0], streamed),)}
    for seed in range(12):
        found = certify(program, plan, tiles, seed=seed)
        assert found.verdict == "pass", [c.detail for c in found.checks]
