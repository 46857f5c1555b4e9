"""Prices under scaled rates, and the choice over them, against the model itself and brute force."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from nautile.extract.candidates import NOISE
from nautile.extract.device import device
from nautile.extract.exact import Exact
from nautile.extract.plan import decide
from nautile.extract.pool import Pool
from nautile.extract.roofline import price
from nautile.extract.selection import Column, in_order
from nautile.extract.sensitivity import SCALED, Chooser, costs, price_each, repriced, scaled

from .build import plan, program

FACTORS = (0.02, 0.7, 1.0, 1.3, 40.0)
NAMES = ("attention", "softmax", "chain")


def pool_of(name: str) -> Pool:
    choice = plan(program(name)).choice
    assert choice is not None
    return choice.pool


@pytest.mark.parametrize("resource", SCALED)
def test_a_factor_scales_one_figure_alone(resource: str) -> None:
    own, other = device("h200"), scaled(device("h200"), resource, 4.0)
    rates = {
        "dram": (own.memory_bandwidth, other.memory_bandwidth),
        "l2": (own.l2_bandwidth, other.l2_bandwidth),
        "fp32": (own.fp32, other.fp32),
        "special": (own.special, other.special),
        "tensor": (own.rate("bf16", "wgmma"), other.rate("bf16", "wgmma")),
        "launch": (1 / own.launch_seconds, 1 / other.launch_seconds),
    }
    assert {name: round(a / b, 9) for name, (a, b) in rates.items()} == {
        name: 4.0 if name == resource else 1.0 for name in rates
    }


def test_an_unknown_resource_is_refused() -> None:
    with pytest.raises(ValueError, match="known: dram"):
        scaled(device("h200"), "time", 2.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("resource", SCALED)
def test_many_devices_at_once_are_priced_as_one_after_the_other(name: str, resource: str) -> None:
    devices = [scaled(device("h200"), resource, f) for f in FACTORS]
    for _, candidate in pool_of(name).candidates[:4]:
        for part in candidate.parts:
            together = price_each(part.outputs, devices)
            for own, d in zip(together, devices, strict=True):
                expected = price(part.outputs, d)
                np.testing.assert_array_equal(own.seconds, expected.seconds)
                assert own.ranked(3) == expected.ranked(3)


@pytest.mark.parametrize("target", ["a100", "rtx4090"])
def test_so_they_are_on_cards_without_warpgroups(target: str) -> None:
    devices = [scaled(device(target), "dram", f) for f in FACTORS]
    (_, candidate), *_ = pool_of("attention").candidates
    outputs = candidate.parts[0].outputs
    for own, d in zip(price_each(outputs, devices), devices, strict=True):
        np.testing.assert_array_equal(own.seconds, price(outputs, d).seconds)


@pytest.mark.parametrize("name", NAMES)
def test_unscaled_candidates_keep_their_prices_and_the_choice(name: str) -> None:
    source, own = program(name), device("h200")
    chosen = plan(source)
    assert chosen.choice is not None
    pool = chosen.choice.pool
    table = costs(pool, [own])
    np.testing.assert_allclose(table[:, 0], [c.cost for c in pool.columns], rtol=1e-12)
    again = decide(repriced(pool, own), source, own)
    assert again.kernels == chosen.kernels
    assert again.seconds == chosen.seconds


def test_repriced_candidates_have_the_schedules_of_their_prices() -> None:
    slow = scaled(device("h200"), "special", 30.0)
    pool = pool_of("attention")
    new = repriced(pool, slow)
    for (_, a), cost in zip(new.candidates, costs(pool, [slow])[:, 0], strict=True):
        assert a.seconds == pytest.approx(cost, rel=1e-12)
        (part,) = a.parts
        best = price(part.outputs, slow).ranked(1)[0]
        assert (part, a.prediction) == best


# ---- the choice --------------------------------------------------------------------------------


def tables(seed: int, own: int) -> tuple[list[Column], list[int], list[float]]:
    """Two separate problems of `own` items each, as one; every item has a maker of its own."""
    draw = random.Random(seed)
    columns = []
    for base in (0, own):
        for item in range(base, base + own):
            for _ in range(draw.randint(1, 3)):
                needs = draw.sample(range(base, item), draw.randint(0, min(2, item - base)))
                makes = {item} | ({base} if draw.random() < 0.3 and base not in needs else set())
                columns.append(Column(frozenset(makes), frozenset(needs), draw.uniform(1, 9)))
    seconds = [c.cost * draw.choice([0.3, 1.0, 4.0]) for c in columns]
    return columns, [own - 1, 2 * own - 1], seconds


def valid(columns: Sequence[Column], roots: Sequence[int]) -> list[tuple[int, ...]]:
    """All sets of columns that make the roots, whatever else they make."""
    found = []
    for size in range(1, len(columns) + 1):
        for chosen in itertools.combinations(range(len(columns)), size):
            made = frozenset[int]().union(*(columns[k].makes for k in chosen))
            if made.issuperset(roots) and in_order(columns, chosen) is not None:
                found.append(chosen)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_cheapest_of_all_sets_or_simpler_within_the_noise(seed: int) -> None:
    columns, roots, seconds = tables(seed, 3)
    found = Chooser(Pool((), (), tuple(columns), tuple(roots), {}))(seconds)
    every = {c: sum(seconds[k] for k in c) for c in valid(columns, roots)}
    least = min(every.values())
    assert found is not None
    assert found.cost == pytest.approx(every[tuple(sorted(found.columns))])
    assert least - 1e-12 <= found.cost <= least * (1 + NOISE) + 1e-12
    fewest = min(len(c) for c, cost in every.items() if cost <= least * (1 + 1e-12))
    assert len(found.columns) <= fewest


@pytest.mark.parametrize("seed", range(12))
def test_separate_parts_together_are_solved_as_the_whole(seed: int) -> None:
    columns, roots, _ = tables(seed, 6)
    whole = Exact()(columns, roots)
    parts = Chooser(Pool((), (), tuple(columns), tuple(roots), {}))
    assert len(parts.parts) == 2
    own = parts._cheapest([c.cost for c in columns])
    assert whole is not None
    assert own is not None
    assert own.cost == pytest.approx(whole.cost)


def test_infinite_prices_leave_columns_out() -> None:
    columns, roots, seconds = tables(1, 3)
    chooser = Chooser(Pool((), (), tuple(columns), tuple(roots), {}))
    first = chooser(seconds)
    assert first is not None
    last = first.columns[0]
    barred = [math.inf if k == last else s for k, s in enumerate(seconds)]
    second = chooser(barred)
    assert second is None or last not in second.columns
    assert chooser([math.inf] * len(columns)) is None


def test_left_out_candidates_join_a_widened_pool_behind_its_own() -> None:
    pool = pool_of("attention")
    wide = pool.widened
    own = len(pool.columns)
    assert wide.columns[:own] == pool.columns
    assert wide.roots == pool.roots
    assert [c for _, c in wide.candidates[own:]] == [c for _, c in pool.dropped]
    assert len(wide.columns) > own
