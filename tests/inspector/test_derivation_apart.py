"""The step that takes axes apart: evaluated, and refused where one definition is not the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautile import lang
from nautile.extract.apart import apart
from nautile.inspector.derivation import derive
from nautile.inspector.derivation.merged import taken_apart
from nautile.oracle import run
from nautile.stages import Optimization, Options, choose, saturate
from nautile.terms import Apply, Buffer, Const, Load, Output, Program, Term, apply, transform
from nautile.worker import Worker

PATCHES = """
def f(X: f32[B,R,R], Z: f32[E,P,P], W: f32[G*G,E], *, B=2, R=64, G=8, P=8, E=32) -> f32[B,G*G,E]:
    y[q,n,e] = sum[i](sum[j](X[q,P*(n//G) + i,P*(n % G) + j] * Z[e,i,j])) + W[n,e]
    return y
"""
SMALL = """
def f(Q: f32[T,H*D], K: f32[T,H*D], V: f32[T,H*D], W: f32[N,H*D], *,
      T=5, H=3, D=4, N=6) -> (f32[T,N], f32[T,H*D]):
    x[h: H,t,s: T] = sum[d: D](Q[t,h*D + d] * K[s,h*D + d]) * D**-0.5
    p[h,t,s] = softmax[s](x[h,t,s])
    O[t,c] = sum[s](p[c//D,t,s] * V[s,c]) * (c % D + 1)
    m[t] = max[c](O[t,c])
    z[t,c] = O[t,c] - m[t] + O[t,(c + 5) % (H*D)]
    y[t,n] = sum[c](z[t,c] * W[n,c])
    return y, z
"""


def both(text: str) -> tuple[Program, Program]:
    (program,) = lang.parse(text)
    return program, apart(program)


def wrong(program: Program, work: Program) -> str:
    return taken_apart(program, work, numerics="real", seed=0).wrong


def changed(work: Program, name: str, step: object) -> Program:
    """The program with one definition's or result's term changed."""
    return replace(
        work,
        definitions=tuple(
            replace(d, body=transform(d.body, step)) if d.name == name else d  # type: ignore[arg-type]
            for d in work.definitions
        ),
        outputs=tuple(
            Output(o.buffer, o.axes, transform(o.term, step)) if o.buffer.name == name else o  # type: ignore[arg-type]
            for o in work.outputs
        ),
    )


def swapped(term: Term) -> Term:
    """Quotients for remainders."""
    match term:
        case Apply("floordiv", arguments):
            return apply("mod", *arguments)
        case Apply("mod", arguments):
            return apply("floordiv", *arguments)
    return term


def moved(term: Term) -> Term:
    """One more where the inner half is counted from 1."""
    match term:
        case Const(1):
            return Const(2)
    return term


def leaning(term: Term) -> Term:
    """The kernel's rows for its columns."""
    match term:
        case Load(buffer, (e, i, j)) if buffer.name == "Z":
            return Load(buffer, (e, j, i))
    return term


@pytest.mark.parametrize("numerics", ["exact", "real", "fast"])
def test_both_programs_agree_at_the_same_memory(numerics: str) -> None:
    program, work = both(SMALL)
    found = taken_apart(program, work, numerics=numerics, seed=3)
    assert found.wrong == ""
    assert found.error < 1e-12
    assert found.samples > 100
    rng = np.random.default_rng(1)
    arrays = {b.name: rng.standard_normal(b.shape) for b in program.inputs}
    for a, b in zip(run(program, arrays).values(), run(work, arrays).values(), strict=True):
        np.testing.assert_allclose(np.ravel(b), np.ravel(a), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "step"), [("z", swapped), ("O", moved)])
def test_one_wrong_definition_is_named(name: str, step: object) -> None:
    program, work = both(SMALL)
    other = changed(work, name, step)
    assert other != work
    said = wrong(program, other)
    assert f"{name}, ordinary" in said
    assert not any(f"{n}, " in said for n in ("x", "p", "m", "y"))


def test_another_memory_is_refused() -> None:
    program, work = both(SMALL)
    (first, *rest) = work.definitions
    narrower = replace(first, dtype="bf16")
    assert "not the same memory" in wrong(program, replace(work, definitions=(narrower, *rest)))
    assert "not the same memory" in wrong(program, replace(work, definitions=tuple(rest)))
    (y, z) = work.outputs
    turned = Output(
        Buffer(z.buffer.name, z.buffer.shape[::-1], z.buffer.dtype), z.axes[::-1], z.term
    )
    assert "z: not the same memory" in wrong(program, replace(work, outputs=(y, turned)))


def test_a_derivation_evaluates_it() -> None:
    (program,) = lang.parse(PATCHES)
    with Worker() as worker:
        result = Optimization(program, Options())
        saturate(result, worker)
        choose(result)
        found = derive(result, worker)
        step = found.steps[0]
        assert (step.rule, step.check) == ("apart", "numbers")
        assert step.max_error is not None
        assert step.max_error < 1e-9
        assert step.samples > 100
        assert found.complete
        assert result.apart is not None
        result.apart = changed(result.apart, "y", leaning)
        broken = derive(result, worker)
    assert broken.steps[0].check == "failed"
    assert "y, ordinary" in broken.steps[0].note
    assert not broken.complete
