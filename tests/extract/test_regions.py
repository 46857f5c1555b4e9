"""Where programs are cut, and the unsaturated snapshot."""

from __future__ import annotations

import pytest

from nautile import extract
from nautile.extract.regions import LARGEST, snapshot_of
from nautile.snapshot import Node, term_of
from nautile.terms import Term, buffers

from .build import PROGRAMS, program
from .test_choose import BLOCK


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_small_programs_are_one_region(name: str) -> None:
    (region,) = extract.cut(program(name))
    source = program(name)
    assert [o.buffer for o in region.outputs] == [o.buffer for o in source.outputs]
    assert set(region.reads) <= {b.name for b in source.inputs}


def _rebuilt(classes: dict[int, tuple[Node, ...]], c: int, memo: dict[int, Term]) -> Term:
    if c not in memo:
        (node,) = classes[c]
        memo[c] = term_of(node, tuple(_rebuilt(classes, k, memo) for k in node.children))
    return memo[c]


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_snapshot_of_terms_gives_the_terms_back(name: str) -> None:
    (region,) = extract.cut(program(name))
    snapshot = snapshot_of(region.outputs)
    memo: dict[int, Term] = {}
    for root, output in zip(snapshot.roots, region.outputs, strict=True):
        assert _rebuilt(dict(snapshot.classes), root, memo) is output.term
        assert set(snapshot.axes_of(snapshot.free[root])) == output.term.free


def test_a_block_is_cut_where_work_would_be_repeated() -> None:
    regions = extract.cut(program(BLOCK))
    stored = [{o.buffer.name for o in r.outputs} for r in regions]
    assert {"q", "k", "v"} in stored
    assert {"o"} in stored
    known = {b.name for b in program(BLOCK).inputs}
    for region in regions:
        assert set(region.reads) <= known
        known |= {o.buffer.name for o in region.outputs}
        assert len(snapshot_of(region.outputs).classes) <= LARGEST


def test_regions_read_rounded_definitions_in_their_rounded_type() -> None:
    for region in extract.cut(program(BLOCK)):
        for buffer in buffers(*(o.term for o in region.outputs)):
            if buffer.name in ("q", "k", "v", "o", "z"):
                assert buffer.dtype == "bf16"


def test_a_reduction_read_at_two_places_stays_one_tensor() -> None:
    text = """
def f(X: f32[N,D], *, N=512, D=64) -> f32[N,N]:
    r[n] = sum[d](X[n,d] * X[n,d])
    y[n,m: N] = r[n] + r[m]
    return y
"""
    regions = extract.cut(program(text))
    assert [[o.buffer.name for o in r.outputs] for r in regions] == [["r"], ["y"]]


def test_a_reduction_read_at_repeating_indices_is_stored() -> None:
    text = """
def f(X: f32[G,D], Y: f32[N], *, G=16, D=512, N=4096) -> f32[N]:
    s[g] = sum[d](X[g,d])
    y[n] = Y[n] * s[n//256]
    return y
"""
    regions = extract.cut(program(text))
    assert [[o.buffer.name for o in r.outputs] for r in regions] == [["s"], ["y"]]
