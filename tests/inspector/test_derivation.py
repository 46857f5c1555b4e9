"""Derivations: connected, each step checked by the engine with one law and by the oracle."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nautile import lang, stages
from nautile.inline import inline_outputs
from nautile.inspector.derivation import Derivation, Step, derive, replays, search
from nautile.inspector.derivation.parts import over, parts, replaced, subterms
from nautile.options import NUMERICS, Options
from nautile.oracle import arrays_fetch, evaluate
from nautile.rules.admission import admit
from nautile.snapshot import Snapshot, node_of
from nautile.stages import Optimization
from nautile.terms import Const, Load, Output, Program, Reduce, Running, Term, reduce_
from nautile.worker import Worker

ATTENTION = """
def attend(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,E], *,
           H=16, T=2048, S=2048, D=64, E=64) -> bf16[H,T,E]:
    x[h,t,s] = sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5
    m[h,t,s] = where(s <= t, x[h,t,s], -inf)
    p[h,t,s] = exp(m[h,t,s] - max[s](m[h,t,s])) / sum[s](exp(m[h,t,s] - max[s](m[h,t,s])))
    O[h,t,e] = sum[s](p[h,t,s] * V[h,s,e])
    return O
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as own:
        yield own


def chosen(program: Program, worker: Worker, **options: object) -> Optimization:
    result = Optimization(program, Options(**options))  # type: ignore[arg-type]
    stages.saturate(result, worker)
    stages.choose(result)
    return result


@pytest.fixture(scope="module")
def attention(worker: Worker) -> tuple[Optimization, Derivation]:
    result = chosen(lang.parse(ATTENTION)[0], worker)
    return result, derive(result, worker)


def laws(found: Derivation) -> list[Step]:
    return [step for step in found.steps if step.law is not None]


def connected(result: Optimization, found: Derivation) -> None:
    """Every region's steps lead from its source to its end without a break, and the last state is
    what the kernels compute."""
    states: list[Output] = []
    for number, region in enumerate(result.regions):
        own = [step for step in found.steps if step.region == number]
        now = region.outputs
        for step in own:
            assert step.before == now, step.rule
            assert step.after != step.before
            now = step.after
        states += now
    rest = [step for step in found.steps if step.region is None and step.given is None]
    if rest and rest[0].rule == "store":
        assert set(rest[0].before) == set(states)
    for a, b in pairwise(rest):
        assert set(a.after) == set(b.before)
    assert result.plan is not None
    kernels = {o for k in result.plan.kernels for o in k.outputs}
    ends = [step for step in rest if step.rule == "operands"]
    last = ends[0].before if ends else rest[-1].after if rest else states
    assert set(last) == kernels


# ---- the derivation of attention ----------------------------------------------------------------


def test_attention_is_derived_by_four_laws_at_their_places(
    attention: tuple[Optimization, Derivation],
) -> None:
    result, found = attention
    assert found.complete
    assert [s.rule for s in laws(found)] == ["mul_div", "div_in_sum", "go_online", "go_online"]
    assert {s.check for s in laws(found)} == {"alone"}
    connected(result, found)
    facts = {fact.rule for step in laws(found) for fact in step.facts}
    assert facts == {"max_shift", "sub_shift", "exp_scale", "mul_scale"}
    assert set(found.rules_needed) == facts | {s.rule for s in laws(found)}
    assert found.smallest
    place = laws(found)[0].place
    assert place is not None
    assert (place.tensor, place.definition, place.line, place.count) == ("O", "O", 7, 1)


def test_every_state_means_softmax_attention_in_numpy(
    attention: tuple[Optimization, Derivation],
) -> None:
    """The truth is NumPy's, not the oracle's own value of the source."""
    _, found = attention
    rng = np.random.default_rng(7)
    heads, rows = np.array([0, 11]), np.array([0, 1, 1000, 2047])
    for scale in (1.0, 30.0):
        q, k, v = (scale * rng.normal(size=(16, 2048, 64)) for _ in range(3))
        scores = np.einsum("htd,hsd->hts", q[heads][:, rows], k[heads]) / np.sqrt(64)
        scores = np.where(np.arange(2048) <= rows[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        expected = np.einsum("hts,hse->hte", weights, v[heads][:, :, :3])
        fetch = arrays_fetch({"Q": q, "K": k, "V": v})
        for step in laws(found):
            (output,) = step.after
            grid = dict(zip(output.axes, (heads, rows, np.arange(3)), strict=True))
            actual = evaluate(output.term, fetch, grid)
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9 * scale)
            assert step.max_error is not None
            assert step.max_error < 1e-9


def test_steps_print_in_the_language_and_read_back(
    attention: tuple[Optimization, Derivation],
) -> None:
    _, found = attention
    read = 0
    for step in laws(found):
        for text, outputs in ((step.before_text, step.before), (step.after_text, step.after)):
            if "running[" in text:
                continue
            (program,) = lang.parse(text)
            written = inline_outputs(
                program.outputs, {d.name: (d.axes, d.body) for d in program.definitions}
            )
            assert [_floats(o.term) for o in written] == [_floats(o.term) for o in outputs]
            read += 1
    assert read == 5  # the streamed sums alone are no text that a user may write


def _floats(term: Term) -> Term:
    """Canonical binders, and whole numbers as floats, as the e-graph writes them."""

    def step(part: Term) -> Term:
        if isinstance(part, Const) and type(part.value) is int:
            return Const(float(part.value))
        return reduce_(part.monoid, part.axis, part.body) if isinstance(part, Reduce) else part

    return over(term, step)


def test_json_and_text_tell_the_same(attention: tuple[Optimization, Derivation]) -> None:
    _, found = attention
    rows = found.as_dict()
    assert [row["rule"] for row in rows["derivation"]] == [s.rule for s in found.steps]
    assert rows["rules_needed"] == list(found.rules_needed)
    text = found.as_text()
    for row in rows["derivation"]:
        assert row["before"] != row["after"]
        assert row["rule"] in text
        assert row["law"] is None or row["law"] in text


# ---- broken steps are refused --------------------------------------------------------------------


def test_the_steps_replay_and_mutants_do_not(
    attention: tuple[Optimization, Derivation], worker: Worker
) -> None:
    result, found = attention
    steps = laws(found)
    assert all(replays(step, result, worker) for step in steps)
    refused = [m for step in steps for m in mutants(step) if not replays(m, result, worker)]
    assert len(refused) == sum(len(mutants(step)) for step in steps)


def mutants(step: Step) -> list[Step]:
    """Wrong law, no facts, wrong constant, wrong way, wrong place."""
    (output,) = step.after
    wrong = [
        dataclasses.replace(step, rule="sum_swap"),
        dataclasses.replace(
            step,
            after=step.before[:0]
            + (Output(output.buffer, output.axes, _other_constant(output.term)),),
        ),
    ]
    if step.facts:
        wrong.append(dataclasses.replace(step, facts=step.facts[1:]))
    if step.rule in ("mul_div", "div_in_sum"):
        wrong.append(dataclasses.replace(step, before=step.after, after=step.before))
    return wrong


def _other_constant(term: Term) -> Term:
    scale = next(t for t in subterms(term) if isinstance(t, Const) and t.value == 64**-0.5)
    return replaced(term, scale, Const(0.25))


def test_a_step_that_the_numbers_refute_fails(worker: Worker) -> None:
    """The oracle judges by itself: a law that is wrong though the engine takes it."""
    from nautile.inspector.derivation.numbers import Numbers

    result = chosen(lang.parse(ATTENTION)[0], worker)
    numbers = Numbers(result.regions[0].outputs, result.work, "real")
    (source,) = (o.term for o in result.regions[0].outputs)
    assert not numbers.tried([source]).wrong
    assert numbers.tried([_other_constant(source)]).wrong
    unmasked = next(t for t in subterms(source) if "where" in str(t).splitlines()[-1])
    assert numbers.tried([replaced(source, unmasked, parts(unmasked)[1])]).wrong


# ---- rules needed --------------------------------------------------------------------------------


def test_rules_needed_are_needed_and_enough(
    attention: tuple[Optimization, Derivation], worker: Worker
) -> None:
    """By whole saturations under the usual schedule, which know nothing of derivations."""
    result, found = attention
    admitted = admit(None, (), (), NUMERICS["real"]).rules
    needed = [rule for rule in admitted if rule.name in found.rules_needed]
    (goal,) = laws(found)[-1].after
    outputs = result.regions[0].outputs
    assert holds(worker.saturate(outputs, needed), goal.term)
    for rule in needed:
        fewer = [other for other in needed if other is not rule]
        assert not holds(worker.saturate(outputs, fewer), goal.term)


def holds(snapshot: Snapshot, term: Term) -> bool:
    """Whether the root's class holds a term."""
    home = {node: c for c, nodes in snapshot.classes.items() for node in nodes}
    known: dict[Term, int | None] = {}

    def visit(part: Term) -> int | None:
        if part not in known:
            inner: Sequence[Term] = () if isinstance(part, Load) else _children(part)
            classes = [visit(p) for p in inner]
            known[part] = (
                None
                if None in classes
                else home.get(node_of(part, tuple(c for c in classes if c is not None)))
            )
        return known[part]

    return visit(term) == snapshot.roots[0]


def _children(term: Term) -> Sequence[Term]:
    from nautile.terms import children

    return children(term)


# ---- other programs, other names, other classes --------------------------------------------------


def test_names_do_not_matter(attention: tuple[Optimization, Derivation], worker: Worker) -> None:
    names = {
        "attend": "zz",
        "Q": "K9",
        "K": "a1",
        "V": "O2",
        "O": "V3",
        "x": "qq",
        "m": "w",
        "p": "r",
    }
    text = re.sub(r"\b(attend|Q|K|V|O|x|m|p)\b", lambda found: names[found.group()], ATTENTION)
    result = chosen(lang.parse(text)[0], worker)
    found = derive(result, worker)
    assert [s.rule for s in found.steps] == [s.rule for s in attention[1].steps]
    assert found.rules_needed == attention[1].rules_needed


def test_exact_takes_exact_laws_alone(worker: Worker) -> None:
    text = """
def f(x: f32[N,M], *, N=64, M=4096) -> f32[N]:
    y[n,m] = -(-(x[n,m] - 0)) * 1
    return max[m](max(y[n,m], y[n,m]))
"""
    text = text.replace(
        "    return max[m](max(y[n,m], y[n,m]))",
        "    z[n] = max[m](max(y[n,m], y[n,m]))\n    return z",
    )
    result = chosen(lang.parse(text)[0], worker, numerics="exact")
    found = derive(result, worker)
    assert found.complete
    assert {s.numerics for s in laws(found)} == {"exact"}
    assert set(found.rules_needed) == {"neg_neg", "sub_zero", "mul_one", "max_self"}
    connected(result, found)


def test_a_users_law_is_a_step(worker: Worker, tmp_path: Path) -> None:
    pack = tmp_path / "mine.nau"
    pack.write_text("with real:\n    my_sigmoid = exp(a) / (1 + exp(a)) >> sigmoid(a)\n")
    text = """
def gate(x: f32[N,M], w: f32[M,K], *, N=512, M=512, K=512) -> f32[N,K]:
    y[n,k] = sum[m](x[n,m] * w[m,k])
    z[n,k] = exp(y[n,k]) / (1 + exp(y[n,k]))
    return z
"""
    result = chosen(lang.parse(text)[0], worker, rules=(str(pack),), accept=("my_sigmoid",))
    found = derive(result, worker)
    assert found.rules_needed == ("my_sigmoid",)
    (step,) = laws(found)
    assert (step.rule, step.pack, step.check) == ("my_sigmoid", "mine", "alone")


def test_what_the_engine_does_itself_is_told_as_such(worker: Worker) -> None:
    text = """
def decode(q: bf16[H,D], K: bf16[S,H,D], V: bf16[S,H,D], *, H=8, S=65536, D=128) -> bf16[H,D]:
    x[h,s] = sum[d](q[h,d] * K[s,h,d]) / 8
    p[h,s] = softmax[s](x[h,s])
    o[h,e] = sum[s](p[h,s] * V[s,h,e])
    return o
"""
    result = chosen(lang.parse(text)[0], worker)
    assert result.plan is not None
    found = derive(result, worker)
    assert found.complete
    connected(result, found)
    split = [s for s in found.steps if s.rule == "split"]
    assert len(split) == (1 if any(k.split for k in result.plan.kernels) else 0)
    assert all(s.law is None for s in split)
    assert [s.rule for s in found.steps][:2] == ["cut", "literals"]


def test_where_no_way_is_found_the_gap_is_named(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, attention: tuple[Optimization, Derivation]
) -> None:
    result, whole = attention
    monkeypatch.setattr(search.Search, "run", lambda self: False)
    found = derive(result, worker)
    assert not found.complete
    (gap,) = [s for s in found.steps if s.rule == "gap"]
    assert gap.law is None
    assert gap.check == "numbers"
    assert [g.region for g in found.gaps] == [0]
    assert found.rules_needed == whole.rules_needed  # by saturation, which needs no derivation


def test_running_values_keep_their_bodies() -> None:
    """The parts of a running value are its reduction's: equal totals may run differently."""
    program = lang.parse("def f(x: f32[N], *, N=4) -> f32:\n    y = max[n](x[n])\n    return y")[0]
    reduction = program.definitions[0].body
    assert isinstance(reduction, Reduce)
    running = Running(reduction)
    assert parts(running) == (reduction.body,)
    assert replaced(running, reduction, Const(1.0)) is running
    other = replaced(running, reduction.body, Const(1.0))
    assert other is Running(Reduce("max", reduction.axis, Const(1.0)))
