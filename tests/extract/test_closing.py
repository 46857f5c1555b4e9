"""Which elements the last block of a group computes, against every element looked at by itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest

from nautile.extract.closed import closing_seconds, joined, launched
from nautile.extract.closing import Closing, closing
from nautile.extract.kernel import Kernel, Part, Prediction
from nautile.terms import Axis, Buffer, Const, Index, Load, Output, Reduce, Term, apply

CHUNK, K = Axis("k_chunk", 0, 4), Axis("k", 0, 64)
M, N = Axis("m", 0, 24), Axis("n", 0, 40)
GROUP, ROW, H = Axis("h_group", 0, 3), Axis("h_row", 0, 8), Axis("h", 0, 24)
D = Axis("d", 0, 32)
NONE = Prediction(1e-5, "dram", 0, 0, 0, 0, 0, 0, 0, 0)


def product(name: str, axes: tuple[Axis, ...]) -> Output:
    """States of a sum of products, one a chunk."""
    rows, columns = axes[0], axes[-1]
    a = Load(Buffer("A", (rows.extent, 64), "bf16"), (Index(rows), Index(K)))
    b = Load(Buffer("B", (columns.extent, 64), "bf16"), (Index(columns), Index(K)))
    shape = tuple(x.extent for x in axes)
    return Output(Buffer(name, shape, "f32"), axes, Reduce("sum", K, apply("mul", a, b)))


def merged(state: Output, places: tuple[Term, ...], axes: tuple[Axis, ...]) -> Output:
    term = Reduce("sum", CHUNK, Load(state.buffer, places))
    return Output(Buffer("C", tuple(a.extent for a in axes), "bf16"), axes, term)


def plain() -> tuple[Output, Output]:
    state = product("S", (M, CHUNK, N))
    return state, merged(state, (Index(M), Index(CHUNK), Index(N)), (M, N))


def heads() -> tuple[Output, Output]:
    """Heads of groups: one axis of the results is two of the states."""
    state = product("S", (GROUP, ROW, CHUNK, D))
    group, row = (apply(f, Index(H), Const(8)) for f in ("floordiv", "mod"))
    return state, merged(state, (group, row, Index(CHUNK), Index(D)), (H, D))


CASES = {
    "whole tiles": (plain, {M: 8, CHUNK: 1, N: 8}),
    "ragged": (plain, {M: 16, CHUNK: 1, N: 16}),
    "several chunks a block": (plain, {M: 24, CHUNK: 2, N: 40}),
    "heads": (heads, {GROUP: 1, ROW: 16, CHUNK: 1, D: 16}),
    "heads apart": (heads, {GROUP: 1, ROW: 4, CHUNK: 1, D: 32}),
    "heads together": (heads, {GROUP: 2, ROW: 8, CHUNK: 1, D: 32}),
}


def value(term: Term, at: Mapping[Axis, int]) -> int:
    if isinstance(term, Index):
        return at[term.axis]
    if isinstance(term, Const):
        return int(term.value)
    (a, b), f = (value(x, at) for x in term.arguments), term.operation  # type: ignore[attr-defined]
    return {"floordiv": a // b, "mod": a % b, "add": a + b, "mul": a * b}[f]


def group_of(
    state: Output, result: Output, tiles: Mapping[Axis, int], at: tuple[int, ...]
) -> set[tuple[Axis, int]]:
    """The tiles of the states that an element of the result needs, but for the chunk."""
    here = dict(zip(result.axes, at, strict=True))
    load = result.term.body  # type: ignore[attr-defined]
    pairs = [(a, c) for a, c in zip(state.axes, load.coordinates, strict=True) if a != CHUNK]
    return {(a, value(c, here) // tiles[a]) for a, c in pairs}


def closes(found: Closing, result: Output, numbers: Mapping[Axis, int]) -> set[tuple[int, ...]]:
    """The elements that the group of these tiles computes."""
    ranges = []
    for axis in result.axes:
        box = found.boxes[axis]
        begin = sum(numbers[a] * step for a, step in box.steps.items())
        ranges.append(range(begin, min(begin + box.width, axis.extent)))
    return set(itertools.product(*ranges))


@pytest.mark.parametrize("name", CASES)
def test_every_group_computes_what_its_states_are_of(name: str) -> None:
    make, tiles = CASES[name]
    state, result = make()
    found = closing((state,), tiles, (result,))
    assert found is not None
    assert found.over == (CHUNK,)
    grid = [a for a in state.axes if a != CHUNK]
    counts = [range(-(-a.extent // tiles[a])) for a in grid]
    every = list(itertools.product(*(range(a.extent) for a in result.axes)))
    seen = 0
    for at in itertools.product(*counts):
        numbers = dict(zip(grid, at, strict=True))
        own = {e for e in every if group_of(state, result, tiles, e) == set(numbers.items())}
        assert closes(found, result, numbers) == own
        seen += len(own)
    assert seen == len(every)


def test_results_of_several_groups_are_left_to_a_second_launch() -> None:
    state, _ = plain()
    tiles = {M: 8, CHUNK: 1, N: 8}
    turned = merged(state, (Index(M), Index(CHUNK), apply("mod", Index(N), Const(16))), (M, N))
    both = apply("add", Index(M), Index(N))
    mixed = merged(state, (both, Index(CHUNK), Index(N)), (M, N))
    for result in (turned, mixed):
        assert closing((state,), tiles, (result,)) is None
    heads_split = closing((heads()[0],), {GROUP: 2, ROW: 4, CHUNK: 1, D: 32}, (heads()[1],))
    assert heads_split is None


def kernels(groups: int) -> tuple[Kernel, Kernel]:
    state, result = plain()
    tiles = {M: 24 // groups, CHUNK: 1, N: 40, K: 64}
    first = Kernel("S", (Part((state,), tiles),), NONE, split={K: 4})
    return first, Kernel("C", (Part((result,), {M: 1, N: 8, CHUNK: 4}),), NONE)


def test_one_launch_takes_the_place_of_two() -> None:
    first, then = kernels(2)
    (both,) = joined((first, then), frozenset({"C"}))
    assert both.closing
    assert both.parts == (*first.parts, *then.parts)
    assert [step.parts for step in both.steps] == [first.parts, then.parts]
    assert both.prediction.seconds < first.prediction.seconds + then.prediction.seconds
    pair = [(k.parts[0], k.prediction) for k in (first, then)]
    assert launched(pair) == pytest.approx(both.prediction.seconds)


def test_states_that_the_program_returns_or_others_read_keep_their_launch() -> None:
    first, then = kernels(2)
    after = replace(then, follows=True)  # right behind what makes the states
    assert joined((first, then), frozenset({"C", "S"})) == (first, after)
    again = Kernel("E", then.parts, NONE)
    assert joined((first, then, again), frozenset({"C"})) == (first, after, again)


def test_fewer_groups_take_longer() -> None:
    few, many = (closing_seconds(kernels(n)[0].parts[0], kernels(n)[1].parts[0]) for n in (1, 6))
    assert few is not None
    assert many is not None
    assert few > many


def test_reductions_of_merged_values_are_left_to_a_second_launch() -> None:
    """A softmax over the columns of a split product asks for merged values of other columns."""
    state, result = plain()
    tiles = {M: 24, CHUNK: 1, N: 40, K: 64}
    first = Part((state,), tiles)
    total = Reduce("sum", N, apply("exp", result.term))
    share = replace(result, term=apply("div", apply("exp", result.term), total))
    assert closing_seconds(first, Part((share,), {M: 1, N: 8, CHUNK: 4})) is None
    assert closing_seconds(first, Part((result,), {M: 1, N: 8, CHUNK: 4})) is not None
