"""Definitions that are stored between regions and returned as well: every tensor has one maker."""

from __future__ import annotations

import pytest

from nautile import extract, lang
from nautile.extract.homes import homes, targets
from nautile.inline import inline
from nautile.terms import Output, Program, buffers


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of any size are cut."""
    monkeypatch.setattr("nautile.extract.regions.WHOLE", 0)


HEAD = "def f(X: f32[N,K], W: f32[K,C], V: f32[C,C], *, N=2048, K=64, C=2048) -> "
BODY = """
    h[n,c] = {h}
    a[n,d: C] = sum[c](h[n,c] * V[c,d])
    b[n,d: C] = sum[c](h[n,c] * V[d,c])
    return {results}
"""
PRODUCT = "sum[k](X[n,k] * W[k,c])"
RETURNED = {
    "and read by two": ("(f32[N,C], f32[N,C], f32[N,C])", PRODUCT, "h, a, b"),
    "last": ("(f32[N,C], f32[N,C], f32[N,C])", PRODUCT, "a, b, h"),
    "narrower": ("(f16[N,C], f32[N,C], f32[N,C])", PRODUCT, "h, a, b"),
    "as it was rounded": ("(bf16[N,C], f32[N,C], f32[N,C])", f"bf16({PRODUCT})", "h, a, b"),
    "wider than rounded": ("(f32[N,C], f32[N,C], f32[N,C])", f"bf16({PRODUCT})", "h, a, b"),
    "rounded again": ("(f16[N,C], f32[N,C], f32[N,C])", f"bf16({PRODUCT})", "h, a, b"),
}
ANOTHER = ("narrower", "wider than rounded", "rounded again")


def source(name: str) -> Program:
    types, body, results = RETURNED[name]
    (program,) = lang.parse(HEAD + types + ":" + BODY.format(h=body, results=results))
    return program


def stored(program: Program) -> list[Output]:
    return [o for region in extract.cut(program) for o in region.outputs]


@pytest.mark.parametrize("name", list(RETURNED))
def test_a_returned_definition_has_one_maker(name: str) -> None:
    program = source(name)
    found = [o.buffer.name for o in stored(program)]
    assert sorted(set(found)) == sorted(found)
    assert {o.buffer for o in program.outputs} <= {o.buffer for o in stored(program)}
    more = {"h_stored1"} if name in ANOTHER else set()
    assert set(found) == {"h", "a", "b"} | more


@pytest.mark.parametrize("name", list(RETURNED))
def test_nothing_is_read_before_it_is_made(name: str) -> None:
    known = {b.name for b in source(name).inputs}
    for region in extract.cut(source(name)):
        assert set(region.reads) <= known
        known |= {o.buffer.name for o in region.outputs}


@pytest.mark.parametrize("name", list(RETURNED))
def test_readers_read_what_the_definition_holds(name: str) -> None:
    """In the type that it has as a definition, whatever type it is returned in."""
    found = stored(source(name))
    read = {b for o in found for b in buffers(o.term) if b.name.startswith("h")}
    assert {b.dtype for b in read} == {"bf16" if "bf16" in RETURNED[name][1] else "f32"}
    assert read <= {o.buffer for o in found}


@pytest.mark.parametrize("name", list(RETURNED))
def test_regions_written_out_are_the_source(name: str) -> None:
    program = source(name)
    found = {o.buffer.name: (o.axes, o.term) for o in stored(program)}
    definitions = {d.name: (d.axes, d.body) for d in program.definitions}
    for output in program.outputs:
        axes, term = found[output.buffer.name]
        others = {n: t for n, t in found.items() if n != output.buffer.name}
        assert axes == output.axes
        assert inline(term, others) is inline(output.term, definitions)


def test_a_result_and_what_is_stored_of_it_share_a_region() -> None:
    """One kernel computes the product and stores it twice; a copy would be another."""
    regions = extract.cut(source("narrower"))
    (both,) = [r for r in regions if "h" in {o.buffer.name for o in r.outputs}]
    assert {o.buffer.name for o in both.outputs} == {"h", "h_stored1"}


def test_names_of_what_is_stored_keep_clear_of_the_program() -> None:
    (program,) = lang.parse("""
def f(h_stored1: f32[N], *, N=8) -> (f16[N], f32[N]):
    h[n] = h_stored1[n] * 2.0
    h_stored2[n] = h[n] + 1.0
    return h, h_stored2
""")
    assert homes(program, program.definitions)["h"].name == "h_stored3"
    assert [o.buffer.name for o in targets(program, program.definitions)] == [
        "h_stored3",
        "h_stored2",
        "h",
    ]


def test_an_input_that_is_returned_is_copied_once() -> None:
    (program,) = lang.parse("""
def f(x: f32[N], *, N=8) -> (f32[N], bf16[N]):
    y[n] = x[n] + 1.0
    return x, y
""")
    assert sorted(o.buffer.name for o in stored(program)) == ["result", "y"]
    assert {o.buffer.dtype for o in stored(program)} == {"f32", "bf16"}


def large(terms: int) -> Program:
    """A result that is too large for a region, but for what it reads: more than one cut below."""
    inputs = ", ".join(f"x{k}: f32[N,C]" for k in range(terms))
    total = " + ".join(f"x{k}[n,c]" for k in range(terms))
    parts = " + ".join(f"x{k}[n,c] * sin(d[n,c] * {k}.5)" for k in range(terms))
    (program,) = lang.parse(f"""
def f({inputs}, *, N=64, C=64) -> bf16[N,C]:
    s[n,c] = {total}
    m[n] = max[c](s[n,c])
    d[n,c] = s[n,c] - m[n]
    y[n,c] = {parts}
    return y
""")
    return program


def test_a_result_is_not_cut_off_from_itself() -> None:
    """What is returned is stored anyway, in whatever type."""
    assert [o.buffer.name for o in stored(large(24))] == ["d", "y"]
