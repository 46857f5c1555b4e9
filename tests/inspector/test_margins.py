"""Margins, checked by choosing again: over all sets of candidates, and from nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from nautile import extract, lang, stages
from nautile.examples import paths
from nautile.extract.candidates import NOISE
from nautile.extract.device import Device, device
from nautile.extract.kernel import Plan
from nautile.extract.roofline import price
from nautile.extract.selection import in_order
from nautile.extract.sensitivity import SCALED, scaled
from nautile.inspector.margins import Margin, _Search, generated_again, margins
from nautile.inspector.wording import margin_words
from nautile.lang import show_term
from nautile.stages import Optimization, Options

from .explained import chosen, explained, parts_of

APART = 0.03


def found(name: str) -> Sequence[Margin]:
    own = explained(name).margins
    assert own is not None
    return own.choice


def sides(factor: float, apart: float) -> tuple[float, float]:
    """Just short of the factor, and just beyond it."""
    step = 1 + apart if factor > 1 else 1 / (1 + apart)
    return factor / step, factor * step


# ---- by brute force over the candidates --------------------------------------------------------


def prices(name: str, target: Device) -> list[float]:
    """Seconds of every candidate, left-out ones included, each priced on the device by itself (only
    candidates of one part without a split)."""
    _, pool, _ = parts_of(name)
    seconds = []
    for _, c in pool.widened.candidates:
        assert len(c.parts) == 1
        assert c.division is None
        seconds.append(price(c.parts[0].outputs, target).best())
    return seconds


def best(name: str, seconds: Sequence[float]) -> tuple[float, list[tuple[int, ...]]]:
    """The least cost of all sets of up to three candidates, and the sets within the noise."""
    _, pool, _ = parts_of(name)
    wide = pool.widened
    costs = {}
    for size in (1, 2, 3):
        for some in itertools.combinations(range(len(wide.columns)), size):
            made = frozenset[int]().union(*(wide.columns[k].makes for k in some))
            if made.issuperset(wide.roots) and in_order(wide.columns, some) is not None:
                costs[some] = sum(seconds[k] for k in some)
    least = min(costs.values())
    return least, [some for some, cost in costs.items() if cost <= least * (1 + NOISE)]


@pytest.mark.parametrize("resource", SCALED)
def test_candidates_alone_flip_at_the_factor_and_not_before(resource: str) -> None:
    """Attention's kernels are one or two, so all sets of three hold every choice."""
    _, _, taken = parts_of("attention")
    own = [m for m in found("attention") if m.resource == resource]
    assert own
    for margin in own:
        if margin.factor is None:
            for factor in (1 / 1000, 1 / 30, 1 / 3, 3, 30, 1000):
                least, near = best("attention", prices("attention", scaled(H200, resource, factor)))
                assert tuple(sorted(taken)) in near
            continue
        nearer, further = sides(margin.factor, APART)
        _, near = best("attention", prices("attention", scaled(H200, resource, nearer)))
        assert tuple(sorted(taken)) in near
        seconds = prices("attention", scaled(H200, resource, further))
        least, _ = best("attention", seconds)
        fewest = sum(seconds[k] for k in taken)
        assert least < fewest
        other = sum(seconds[k] for k in margin.columns)
        assert other <= fewest


H200 = device("h200")


def test_a_kernels_margin_is_where_the_best_program_without_it_costs_as_much() -> None:
    _, pool, taken = parts_of("attention")
    (margin,) = (m for m in found("attention") if m.kernel is not None)
    (column,) = taken
    seconds = [c.cost for c in pool.widened.columns]
    without = [float("inf") if k == column else s for k, s in enumerate(seconds)]
    least, _ = best("attention", without)
    assert margin.factor is not None
    assert len(margin.columns) == 2  # which must be faster beyond the noise
    assert margin.factor == pytest.approx((1 + NOISE) * least / seconds[column], rel=0.005)


def test_a_program_without_a_rival_says_so() -> None:
    own = found("pointwise")
    assert {m.resource for m in own} >= set(SCALED)
    assert all(m.factor is None for m in own)
    assert "would not flip" in explained("pointwise").as_text()


def test_a_choice_that_is_launched_as_the_same_kernels_is_no_flip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = chosen("attention")
    assert any(m.factor is not None for m in found("attention") if m.kernel is None)
    monkeypatch.setattr(_Search, "finished", lambda self, *_: self.plan.kernels)
    own = margins(result, again=False).choice
    assert all(m.factor is None for m in own if m.kernel is None)


def test_margins_follow_no_name() -> None:
    (other,) = lang.parse(
        """
def q7(one: bf16[P,H,T,D], two: bf16[P,H,S,D], three: bf16[P,H,S,E], *,
       P=1, H=16, T=2048, S=2048, D=128, E=128) -> bf16[P,H,T,E]:
    softmaxed[p,h,t,s] = sum[d](one[p,h,t,d] * two[p,h,s,d]) * D**-0.5
    masked[p,h,t,s] = where(s <= t, softmaxed[p,h,t,s], -inf)
    z[p,h,t,s] = softmax[s](masked[p,h,t,s])
    out[p,h,t,e] = sum[s](z[p,h,t,s] * three[p,h,s,e])
    return out
"""
    )
    result = Optimization(other, Options())
    stages.saturate(result)
    stages.choose(result)
    again = margins(result, again=False).choice
    own = found("attention")
    assert [(m.resource, m.factor, m.columns) for m in again] == [
        (m.resource, m.factor, m.columns) for m in own
    ]


# ---- by whole choices --------------------------------------------------------------------------


def program_of(plan: Plan) -> list[str]:
    """What the plan's kernels compute, part by part, whatever tiles and chunks they take."""
    assert plan.choice is not None
    pool = plan.choice.pool
    texts = []
    for number, c in (pool.candidates[k] for k in plan.choice.taken.columns):
        terms = sorted(str(sorted(show_term(t) for _, t in group)) for group in c.groups)
        texts.append(f"{number} {terms} {c.division.split.axis if c.division else ''}")
    return sorted(texts)


def planned(result: Optimization, resource: str, factor: float) -> Plan:
    """What is chosen from nothing for the device with the scaled resource."""
    pairs = list(zip(result.regions, result.snapshots, strict=True))
    target = scaled(device(result.options.target), resource, factor)
    return extract.choose(pairs, result.work, target, numerics=result.options.numerics)


def at(result: Optimization, resource: str, factor: float) -> list[str]:
    return program_of(planned(result, resource, factor))


def check(result: Optimization, margin: Margin) -> None:
    assert margin.factor is not None
    assert margin.checked
    assert margin.how == "generated"
    assert result.plan is not None
    own = program_of(result.plan)
    nearer, further = sides(margin.factor, APART)
    assert at(result, margin.resource, nearer) == own
    assert at(result, margin.resource, further) != own


def beaten(result: Optimization, margin: Margin) -> None:
    """Beyond the factor something else is chosen from nothing, too, or the margin's program, priced
    kernel by kernel for that device, is no slower than what is (few joint candidates enter a
    choice, and the margin's may be left out; equals may win either way)."""
    assert margin.factor is not None
    assert result.plan is not None
    _, further = sides(margin.factor, APART)
    plan = planned(result, margin.resource, further)
    if program_of(plan) == program_of(result.plan):
        assert margin.how == "candidates"
        target = scaled(device(result.options.target), margin.resource, further)
        parts = [p.outputs for k in margin.kernels for p in k.parts]
        seconds = sum(price(outputs, target).best() for outputs in parts)
        assert seconds <= plan.seconds * (1 + 1e-9)


def test_the_closest_margin_of_attention_holds_for_whole_choices() -> None:
    result = chosen("attention")
    own = explained("attention").margins
    assert own is not None
    closest = own.closest
    assert closest is not None
    check(result, generated_again(result, closest))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "layernorm_matmul", "swiglu", "transformer_block"])
def test_margins_of_the_examples_hold_for_whole_choices(name: str) -> None:
    (path,) = (p for p in paths() if p.stem == name)
    (program,) = lang.parse_file(path)
    result = Optimization(program, Options())
    stages.saturate(result)
    stages.choose(result)
    every = margins(result, again=True, thorough=True)
    assert every.closest is not None
    if every.closest.kernel is None:
        check(result, every.closest)
    assert result.plan is not None
    own = program_of(result.plan)
    for margin in (m for m in every.choice if m.kernel is None):
        if margin.factor is not None:
            assert margin.checked
            beaten(result, margin)
            continue
        for factor in (1 / 100, 1 / 5, 5, 100):
            assert at(result, margin.resource, factor) == own


def test_words() -> None:
    assert margin_words(Margin("special", 2.3)) == (
        "would flip if special-function work were 2.3x dearer"
    )
    assert margin_words(Margin("dram", 0.25)) == "would flip if memory traffic were 4x cheaper"
    assert margin_words(Margin("kernel", 1.5, "k_O")) == (
        "would flip if kernel k_O were 1.5x dearer"
    )
