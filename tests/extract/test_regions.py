"""Where programs are cut, and the unsaturated snapshot."""

from __future__ import annotations

import pytest

from nautile import extract
from nautile.extract.body import inner_terms
from nautile.extract.regions import LARGEST, snapshot_of
from nautile.inline import Definitions, inline_outputs
from nautile.snapshot import Node, term_of
from nautile.terms import Output, Term, buffers

from .build import PROGRAMS, baseline, plan, program
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


ROTATED = """
def f(Q: bf16[T,D], K: bf16[T,D], c: f32[T,D], *, T=4096, D=64) -> bf16[T,T]:
    q[t,d] = bf16(Q[t,d] * c[t,d] + Q[t,(d + D//2) % D])
    k[s,d] = bf16(K[s,d] * c[s,d])
    x[t,s] = sum[d](q[t,d] * k[s,d])
    return x
"""


def test_what_reads_a_tensor_at_several_places_is_stored_before_a_product() -> None:
    """Its elements would be gathered again for every key; the other's come as tiles."""
    regions = extract.cut(program(ROTATED))
    assert [{o.buffer.name for o in r.outputs} for r in regions] == [{"q"}, {"x"}]
    few = extract.cut(program(ROTATED.replace("T=4096", "T=64")))
    assert len(few) == 1


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


def test_a_deep_program_is_never_written_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer reads the one before at two places: written out, copies double at each level."""
    sizes: list[int] = []

    def counted(outputs: tuple[Output, ...], open_: Definitions) -> tuple[Output, ...]:
        written = inline_outputs(outputs, open_)
        sizes.append(len(inner_terms(o.term for o in written)))
        return written

    monkeypatch.setattr("nautile.extract.regions.inline_outputs", counted)
    layers = [
        f"    h{n}[t: 64, c: 32] = h{n - 1}[(t + 1) % T, c] + sum[k](h{n - 1}[t * 3 % T, k])"
        for n in range(1, 9)
    ]
    head = "def f(h0: f32[T,C], *, T=64, C=32) -> f32[T,C]:"
    regions = extract.cut(program("\n".join([head, *layers, "    return h8", ""])))
    assert len(regions) == 8
    assert max(sizes) < 100


def layers(count: int) -> str:
    """Products of one square matrix and rows' softmax: columns of a layer are rows of the next."""
    lines = ["def f(h0: f32[N,N], *, N=256) -> f32[N,N]:"]
    for n in range(1, count + 1):
        lines += [
            f"    a{n}[i,k] = sum[j](h{n - 1}[i,j] * h0[j,k])",
            f"    h{n}[i,j] = softmax[j](a{n}[i,j] * {n}.5)",
        ]
    return "\n".join([*lines, f"    return h{count}", ""])


def test_what_is_read_under_two_axes_through_its_readers_is_stored() -> None:
    """A softmax' own maximum walks the axis that the next product's result has: written out, the
    product before it would be two classes, computed twice."""
    regions = extract.cut(program(layers(3)))
    assert [[o.buffer.name for o in r.outputs] for r in regions] == [["a1"], ["a2"], ["h3"]]


def test_rows_that_share_their_axis_with_a_product_stay_in_one_region() -> None:
    text = """
def f(X: f32[N,D], *, N=256, D=256) -> f32[N,D]:
    x[t,s: N] = sum[d](X[t,d] * X[s,d])
    y[t,d] = sum[s](softmax[s](x[t,s]) * X[s,d])
    return y
"""
    assert len(extract.cut(program(text))) == 1


def test_layers_are_chosen_no_slower_than_one_kernel_a_definition() -> None:
    source = program(layers(2))
    assert plan(source).seconds <= baseline(source)["seconds"]


def test_many_places_of_one_definition_end_in_a_store() -> None:
    """A tree of sums reads halves of each level: no element twice, but at ever more places."""
    lines = ["def f(h: f32[T,C], *, T=4096, C=8) -> f32[T//4096]:", "    s0[t: T] = sum[c](h[t,c])"]
    for n in range(1, 13):
        half = 4096 >> n
        lines.append(f"    s{n}[t: T//{1 << n}] = s{n - 1}[t] + s{n - 1}[t + {half}]")
    regions = extract.cut(program("\n".join([*lines, "    return s12", ""])))
    assert 2 <= len(regions) <= 6
    assert max(len(snapshot_of(r.outputs).classes) for r in regions) <= LARGEST
