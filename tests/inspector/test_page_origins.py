"""Links from CUDA to tile program to source, against the oracle and against the text itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nautile import lang
from nautile.codegen.lower import meanings
from nautile.examples import paths
from nautile.inspector.exports.table import Table, table
from nautile.inspector.page.lines import origins
from nautile.inspector.page.program import kernel_data, program_data, sources
from nautile.inspector.page.typeset import LIMIT, tree
from nautile.oracle import arrays_fetch, evaluate, lazy
from nautile.snapshot import term_of
from nautile.stages import Optimization
from nautile.terms import Apply, Axis, Before, Const, Running, Term, walk

from .pages import ATTENTION, TWO_KERNELS, built, started


def _values(result: Optimization, term: Term, axes: dict[Axis, Any]) -> np.ndarray:
    """A term in float64 over inputs that depend on the tensor and the place alone."""
    program = result.work
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape) for b in program.inputs}
    known = {d.name: (d.axes, d.body) for d in program.definitions}
    assert result.plan is not None
    for kernel in result.plan.kernels:
        known |= {
            o.buffer.name: (o.axes, o.term) for o in kernel.outputs if o.buffer.name not in known
        }
    return np.asarray(evaluate(term, lazy(known, arrays_fetch(arrays)), axes))


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION.replace("512", "12").replace("=64", "=16"),
        TWO_KERNELS.replace("512", "24").replace("1024", "16"),
    ],
)
def test_what_a_tile_is_said_to_equal_it_equals(text: str) -> None:
    """Terms that have no running value in them are evaluated beside the source's."""
    result = built(text)
    found = sources(result)
    compared = 0
    for b in result.built:
        for part in b.kernel.parts:
            for term in meanings(b.kernel, part).values():
                place = found.place(term)
                if place is None or any(isinstance(t, (Running, Before)) for t in walk(term)):
                    continue
                for number in place.equal:
                    source = found.terms[number]
                    axes = sorted(term.free | source.free)
                    at = {a: np.arange(a.extent) for a in axes}
                    np.testing.assert_allclose(
                        _values(result, term, at),
                        _values(result, source, at),
                        rtol=1e-9,
                        atol=1e-12,
                    )
                    compared += 1
    assert compared >= 6


def test_each_statement_of_attention_is_of_the_definition_that_it_serves() -> None:
    result = built(ATTENTION)
    data = program_data(result, sources(result))
    step = kernel_data(result, 0, sources(result))["ways"][0]["steps"][0]
    names = [d["name"] for d in data["definitions"]]
    assert names == ["x", "m", "p", "O"]

    def holding(part: str) -> set[str]:
        lines = [line for line in step["tile"] if part in line["text"] and line["piece"] >= 0]
        return {names[line["piece"]] for line in lines}

    assert holding("read Q") == holding("read K") == holding("= mma[d]") == {"x"}
    assert holding("where((s <= t)") == {"m"}
    assert holding("= max[s]") == holding("= sum[s]") == {"p"}
    assert holding("read V") == holding("= mma[s]") == holding("write O") == {"O"}


def test_names_are_no_hint() -> None:
    """The same program under other names has the same links."""
    names = {"looked_up": "f", "x": "zq", "m": "w", "p": "k", "O": "R", "Q": "softly", "V": "exp_"}
    renamed = re.sub(r"\w+", lambda m: names.get(m[0], m[0]), ATTENTION)
    links = []
    for text in (ATTENTION, renamed):
        result = built(text)
        step = kernel_data(result, 0, sources(result))["ways"][0]["steps"][0]
        links.append(([(line["piece"], line["equal"]) for line in step["tile"]], step["origin"]))
    assert links[0] == links[1]


def _shipped() -> list[Any]:
    quick = {"attention", "softmax", "swiglu", "decode"}
    return [
        pytest.param(p, id=p.stem, marks=() if p.stem in quick else pytest.mark.slow)
        for p in paths()
    ]


@pytest.mark.parametrize("path", _shipped())
def test_lines_of_cuda_lead_to_the_tile_that_they_name(path: Any) -> None:
    """Of every way to run every kernel of the examples: a line that assigns a tile's register is of
    that tile or of the step that its comment names, each statement has lines, and most lines of the
    function are of some statement."""
    for program in lang.parse_file(path):
        result = started(program)
        found = sources(result)
        for number in range(len(result.built)):
            for way in kernel_data(result, number, found)["ways"]:
                for step in way["steps"]:
                    _check_step(step)


def _check_step(step: dict[str, Any]) -> None:
    cuda, origin, tile = step["cuda"], step["origin"], step["tile"]
    assert len(cuda) == len(origin)
    start = next(n for n, line in enumerate(cuda) if "__global__" in line)
    assert not any(origin[: start + 1])
    linked = {number for numbers in origin for number in numbers}
    made = {n for n, line in enumerate(tile) if re.search(r"(write .*|\]) = ", line["text"])}
    missing = [tile[n]["text"] for n in made - linked if not _absorbed(tile, n)]
    assert missing == []
    share = sum(map(bool, origin)) / (len(cuda) - start - 1)
    assert share >= 0.35, share


def _absorbed(tile: list[dict[str, Any]], n: int) -> bool:
    """Whether nothing but statements without lines reads what statement n makes (a mask that no
    block needs, say)."""
    name = tile[n]["text"].strip().partition("[")[0]
    return not any(re.search(rf"\b{name}\b", line["text"]) for line in tile[n + 1 :])


def test_a_step_s_comment_holds_for_the_block_below_it() -> None:
    lines = [
        "__global__ void k() {",
        "  // multiply bf16: m3 += t4 x t5",
        "  {",
        "    nt_mma(fa, fb);",
        "  }",
        "  __syncthreads();",
        "  t_t8[i] = t_m3[i];",
        "  for (int i = 0; i < 4; i++) {",
        "    t_r1[i] = nt_max(t_r1[i], t_t8[i]);",
        "  }",
        "  const int o2_t4 = blockIdx.x;",
    ]
    tiles = {"t4": 0, "t5": 1, "m3": 2, "t8": 3, "r1": 4}
    assert origins(lines, tiles, {}, {}) == [
        (),
        (2,),
        (2,),
        (2,),
        (2,),
        (),
        (3,),
        (4,),
        (4,),
        (),
        (),
    ]
    loose = [line for line in lines if "//" not in line]
    assert origins(loose, tiles, {}, {}) == [(), (), (), (), (), (3,), (4,), (4,), (), ()]


def test_a_tensor_may_be_called_as_code_calls_its_own() -> None:
    """A step tells a tensor by its name; a loop's counter of that name is no access to it."""
    lines = [
        "__global__ void k() {",
        "  // store i <- t0, staged",
        "  nt_export(to);",
        "  for (int i = 0; i < 4; i++) {",
        "  }",
        "  // -",
        "  int i = from;",
        "  o_i[e] = 0;",
    ]
    found = origins(lines, {"t0": 0}, {"i": 1, "from": 2}, {0: [1]})
    assert found == [(), (1, 0), (1, 0), (1, 0), (1, 0), (), (), (1, 0)]


def test_a_tile_in_the_registers_of_another_is_made_with_it() -> None:
    lines = [
        "__global__ void k() {",
        "  float t_m1[2][64];  // m4",
        "  nt_wgmma(t_m1[0], left);",
        "  o_y[e] = t_m1[e];",
    ]
    tiles, buffers = {"m1": 0, "m4": 1, "t0": 2}, {"y": 3}
    assert origins(lines, tiles, buffers, {2: [3]}) == [(), (0, 1), (0, 1), (3, 2)]


def test_a_tree_that_would_explode_is_cut() -> None:
    axis = Axis("i", 0, 4)
    term: Term = Apply("exp", (Const(1.0),))
    for _ in range(60):  # 2^60 nodes, written out
        term = Apply("add", (term, term))
    drawn = tree(term, {})

    def size(node: dict[str, Any]) -> int:
        return 1 + sum(size(c) for c in node.get("c", ()))

    assert LIMIT // 2 < size(drawn) <= LIMIT
    assert tree(Const(float("-inf")), {})["t"] == "-∞"
    assert tree(Const(10**4000), {})["t"].endswith("…")
    assert axis.name == "i"


def _cheapest(rows: Table, number: int) -> Term:
    """The cheapest term of an e-class, as the explorer shows it."""
    row = rows.nodes[rows.classes[number].best]
    return term_of(row.node, tuple(_cheapest(rows, c) for c in row.children))


BLOCK = """
def block(X: bf16[T,C], g: bf16[C], W: bf16[C,A], U: bf16[A,C], *, T=12, C=16, A=24) -> bf16[T,C]:
    n[t,c] = bf16(rmsnorm[c](X[t,c], g[c], eps=1e-6))
    k[s,a] = bf16(sum[c](n[s,c] * W[c,a]))
    x[t,s] = sum[a](k[t,a] * k[s,a])
    o[t,a] = bf16(sum[s](softmax[s](x[t,s]) * k[s,a]))
    Y[t,c] = X[t,c] + sum[a](o[t,a] * U[a,c])
    return Y
"""


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        (ATTENTION.replace("512", "12").replace("=64", "=16"), 1),
        (BLOCK, 2),
    ],
)
def test_the_class_of_a_definition_holds_what_it_means(text: str, regions: int) -> None:
    """Its cheapest term is evaluated beside the definition's own."""
    result = built(text)
    found = sources(result)
    rows = table(result)
    assert len(result.snapshots) == regions
    number = {c.key: n for n, c in enumerate(rows.classes)}
    data = program_data(result, found)["definitions"]
    assert all(d["class"] is not None for d in data)
    for d, definition in zip(data, found.definitions, strict=True):
        term = _cheapest(rows, number[d["class"]])
        axes = sorted(definition.term.free)
        assert sorted(term.free) == axes
        at = {a: np.arange(a.extent) for a in axes}
        expected = _values(result, definition.term, at)
        np.testing.assert_allclose(_values(result, term, at), expected, rtol=1e-9, atol=1e-12)
