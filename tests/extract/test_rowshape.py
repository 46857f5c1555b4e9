"""What a part's terms say of the emitter that takes it, against the emitters themselves; and what
the roofline charges where the general one does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from nautile import lang
from nautile.codegen.lower import lower
from nautile.codegen.rows import as_rows
from nautile.codegen.sm80.emit import applies
from nautile.extract.body import analyse
from nautile.extract.device import device
from nautile.extract.kernel import Kernel, Part
from nautile.extract.priced import Priced
from nautile.extract.roofline import GENERAL, price
from nautile.extract.rowshape import general
from nautile.stages import Optimization, Options, build, choose, saturate
from nautile.terms import (
    Axis,
    Before,
    Buffer,
    Const,
    Index,
    Load,
    Online,
    Output,
    Program,
    Running,
    Term,
    apply,
    reduce_,
)
from nautile.worker import Worker

H200 = device("h200")
N, A, C = Axis("n", 0, 64), Axis("a", 0, 8), Axis("c", 0, 512)
X = Load(Buffer("X", (64, 8, 512), "f32"), (Index(N), Index(A), Index(C)))
TURNED = Load(Buffer("T", (512, 64), "f32"), (Index(C), Index(N)))


def log_sum(x: Term, axis: Axis) -> Term:
    """A log of a sum of exponentials, its maximum in the same pass."""
    top = reduce_("max", axis, x)
    here, before = Running(top), Before(top)
    repair = apply("exp", apply("sub", before, here))
    total = Online(axis, repair, apply("exp", apply("sub", x, here)))
    return apply("add", top, apply("log", total))


def both(x: Term, monoid: str = "sum") -> Term:
    return reduce_(monoid, A, reduce_(monoid, C, x))


CENTRED = apply("sub", X, apply("div", both(X), Const(4096.0)))
CASES: dict[str, tuple[tuple[Axis, ...], Term]] = {
    "one axis": ((N, A), log_sum(X, C)),
    "elements": ((N, A, C), apply("sub", X, log_sum(X, C))),
    "nested": ((N,), both(X)),
    "nested, then the elements' squares": ((N,), both(apply("mul", CENTRED, CENTRED))),
    "sums of unlike folds": ((N,), reduce_("sum", A, reduce_("max", C, X))),
    "the inner sum is read, too": ((N,), reduce_("sum", A, apply("exp", reduce_("sum", C, X)))),
    "a sum of finished rows": ((N,), reduce_("sum", A, log_sum(X, C))),
    "logs of logs": ((N,), log_sum(log_sum(X, C), A)),
    "beside a nest, one axis alone": (
        (N, A),
        apply("sub", reduce_("sum", C, apply("mul", X, X)), both(X)),
    ),
    "across the rows": ((N,), reduce_("sum", C, TURNED)),
    "a place": ((N,), reduce_("argmax", A, reduce_("argmax", C, X))),
}


def output(axes: tuple[Axis, ...], term: Term) -> Output:
    shape = tuple(a.extent for a in axes)
    return Output(Buffer("Y", shape, "f32"), axes, term)


def part_of(outputs: tuple[Output, ...], tiles: dict[Axis, int]) -> Part:
    reduced = analyse(outputs).reduced
    return Part(outputs, tiles, tuple(a for a in reduced if tiles[a] < a.extent))


@pytest.mark.parametrize("streams", [(), (C,), (A,)], ids=["held", "c", "a"])
@pytest.mark.parametrize("name", CASES)
def test_terms_tell_what_the_tile_program_becomes(name: str, streams: tuple[Axis, ...]) -> None:
    outputs = (output(*CASES[name]),)
    body = analyse(outputs)
    tiles = {a: a.extent // 2 if a in streams else a.extent for a in body.reduced}
    tiles |= dict.fromkeys(body.grid, 1)
    part = part_of(outputs, tiles)
    program = lower(Kernel("k", (part,), price(outputs, H200).ranked(1)[0][1]), part)
    sizes = {a: np.array([float(t)]) for a, t in tiles.items()}
    expected = as_rows(program) is None
    assert general(body, sizes, np.ones(1)).tolist() == [expected]


def shares(term: Term) -> dict[str, float]:
    """The seconds of each resource for one result a row, its elements in one block."""
    priced = price((output((N,), term),), H200)
    whole = [all(int(priced.tiles[a][k]) == a.extent for a in (A, C)) for k in _all(priced)]
    one = [int(priced.tiles[N][k]) == 1 for k in _all(priced)]
    (found,) = (k for k in _all(priced) if whole[k] and one[k])
    return {name: float(vector[found]) for name, vector in priced.demand.items()}


def _all(priced: Priced) -> range:
    return range(len(priced.seconds))


def test_a_body_that_is_no_rows_pays_for_its_traffic_as_it_runs() -> None:
    """Both read x once; the second keeps a sum of each row, which another fold reads."""
    streaming = shares(both(X))
    nested = shares(reduce_("sum", A, apply("exp", reduce_("sum", C, X))))
    assert nested["dram"] == pytest.approx(GENERAL * streaming["dram"], rel=0.05)
    assert nested["l2"] == pytest.approx(GENERAL * streaming["l2"], rel=0.05)


PROGRAMS = """
def grouped(x: f32[B,G,C,P], g: f32[G,C], b: f32[G,C], *, B=16, G=32, C=16, P=4096) -> f32[B,G,C,P]:
    m[n,q] = mean[c,p](x[n,q,c,p])
    s[n,q] = mean[c,p]((x[n,q,c,p] - m[n,q]) ** 2)
    y[n,q,c,p] = (x[n,q,c,p] - m[n,q]) * rsqrt(s[n,q] + 1e-5) * g[q,c] + b[q,c]
    return y


def mean_of_rows(z: bf16[R,V], t: i32[R], *, R=4096, V=128256) -> f32:
    p[r,v] = log_softmax[v](z[r,v])
    y = -mean[r](p[r,t[r]])
    return y


def logs(x: f32[R,A,C], *, R=512, A=64, C=4096) -> f32[R]:
    part[r,a] = logsumexp[c](x[r,a,c])
    y[r] = logsumexp[a](part[r,a])
    return y


def choice(x: bf16[R,C], W: bf16[E,C], *, R=8192, C=4096, E=64) -> (i32[R], f32[R]):
    z[r,e] = sum[c](x[r,c] * W[e,c])
    k[r] = argmax[e](z[r,e])
    v[r] = max[e](z[r,e])
    return k, v
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with closing(Worker()) as made:
        yield made


@pytest.mark.parametrize("program", lang.parse(PROGRAMS), ids=lambda p: p.name)
def test_no_kernel_of_a_chosen_plan_is_left_to_the_general_emitter(
    program: Program, worker: Worker
) -> None:
    result = Optimization(program, Options())
    saturate(result, worker)
    choose(result)
    build(result)
    tiles = [t for b in result.built for t in b.tiles]
    assert [t.name for t in tiles if as_rows(t) is None and not applies(t)] == []
