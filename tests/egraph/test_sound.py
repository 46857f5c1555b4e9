"""Whatever a snapshot holds has the source's value: random programs of it, in the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nautile import lang, rules
from nautile.egraph import saturate
from nautile.errors import SaturationError
from nautile.extract.regions import cut
from nautile.snapshot import term_of
from nautile.terms import (
    Before,
    Cast,
    Const,
    Online,
    Output,
    Running,
    Term,
    apply,
    reduce_,
)

from .extractions import draw, random_tensors, values
from .programs import C, D, N, S, T, add, div, load, logsumexp, mul, output, softmax, sub, total

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
BY_CLASS = {c: rules.load(classes=k) for c, k in rules.CLASSES.items()}


def differs(outputs: tuple[Output, ...], chosen: tuple[rules.Rule, ...], draws: int = 4) -> bool:
    """True when a drawn program has another value than the source where that is finite."""
    snapshot = saturate(outputs, chosen, in_process=True)
    rng = np.random.default_rng(1)
    for _ in range(draws):
        fetch = random_tensors(outputs, rng)
        for wanted, term in zip(outputs, draw(snapshot, rng), strict=True):
            if not term.free <= wanted.term.free:
                return True
            expected, actual = (values(t, wanted, fetch) for t in (wanted.term, term))
            use = np.isfinite(expected)
            size = np.max(np.abs(expected[use]), initial=0.0)
            if not np.allclose(actual[use], expected[use], rtol=1e-9, atol=1e-9 * size + 1e-300):
                return True
    return False


def programs() -> list[tuple[str, str, dict[str, int]]]:
    found = []
    for name, key in (("attention", "modifications"), ("subgraphs", "subgraphs")):
        for entry in json.loads((CORPUS / f"{name}.json").read_text())[key]:
            text = entry["program"]
            lines = text if isinstance(text, str) else "\n".join(text)
            found.append((entry.get("id") or entry["name"], lines, entry["check"]["sizes"]))
    return found


LONG = ("gemma2_geglu_mlp",)  # ten seconds, and much like gpt2_mlp


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        pytest.param(text, sizes, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, text, sizes in programs()
    ],
)
def test_drawn_programs_compute_the_source(text: str, sizes: dict[str, int]) -> None:
    for program in lang.parse(text, dims=sizes):
        for region in cut(program):
            assert not differs(region.outputs, BY_CLASS["real"], draws=2)


x = load("x", N, C)
TERMS: dict[str, Term] = {
    "softmax": softmax(x, C),
    "logsumexp": logsumexp(x, C),
    "variance": total(C, mul(sub(x, total(C, x)), sub(x, total(C, x)))),
    "minimum": total(C, apply("exp", sub(reduce_("min", C, x), x))),
    "temperature": total(C, apply("exp", mul(sub(x, reduce_("max", C, x)), Const(0.3)))),
    "base two": total(C, apply("exp2", sub(x, reduce_("max", C, x)))),
    "masked": apply("where", apply("lt", x, Const(0)), mul(x, Const(2)), add(x, Const(1))),
    "nested": total(
        N, mul(softmax(total(C, mul(x, load("q", C))), N), logsumexp(mul(x, Const(0.5)), C))
    ),
    "powers": mul(apply("pow", x, Const(2)), apply("pow", apply("abs", x), Const(-0.5))),
    "rounded": total(C, mul(Cast("bf16", x), load("c", N))),
}


@pytest.mark.parametrize("numerics", BY_CLASS)
@pytest.mark.parametrize("name", TERMS)
def test_drawn_terms_compute_the_source(name: str, numerics: str) -> None:
    term = TERMS[name]
    axes = tuple(sorted(term.free))
    assert not differs(output("o", term, *axes), BY_CLASS[numerics])


WRONG = {
    "difference": "bad = a - b >> b - a",
    "factor": "bad = sum[j](a * b) >> sum[j](a) * b",
    "repair": "bad = sum[j](a) >> online[j](m, -k, r), scale(a, m, k, r), m == max[j](b), tame(r)",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_shows_in_a_drawn_program(name: str) -> None:
    bad = rules.parse(f"with real:\n    {WRONG[name]}\n")
    facts = tuple(r for r in BY_CLASS["real"] if r.is_fact or r.name == "mul_comm")
    weights = apply("exp", sub(x, reduce_("max", C, x)))
    outputs = output("o", total(C, mul(weights, load("w", N, C))), N)
    assert differs(outputs, (*facts, *bad), draws=12)
    assert not differs(outputs, BY_CLASS["real"], draws=12)


def test_equal_constants_are_an_unsound_rule() -> None:
    bad = rules.parse("with exact:\n    zero_is_one = a * 0 >> 1\n    half = a * 0 >> 0.5\n")
    with pytest.raises(SaturationError, match=r"half.*zero_is_one|zero_is_one.*half") as caught:
        saturate(output("o", mul(x, Const(0.0)), N, C), bad, in_process=True)
    assert caught.value.code == "unsound"


@pytest.mark.parametrize(
    ("left", "right"),
    [(True, 1.0), (True, False), (float("inf"), 3.0), (float("inf"), float("-inf")),
     (float("nan"), 0.5), (1, 2)],
)  # fmt: skip
def test_constants_of_any_kind_are_watched(left: float, right: float) -> None:
    word = {"inf": "inf", "-inf": "-inf", "nan": "nan"}
    a, b = (word.get(str(v), str(v)) for v in (left, right))
    kind = ", integer(a)" if type(left) is int else ""
    bad = rules.parse(f"with exact:\n    r = -(-a) >> {a}{kind}\n    q = -(-a) >> {b}{kind}\n")
    source = load("i", N, dtype="i32") if kind else load("x", N)
    twice = apply("neg", apply("neg", source))
    with pytest.raises(SaturationError):
        saturate(output("o", twice, N), bad, in_process=True)


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1, 1.0, True, False, float("inf"), float("-inf"), 1e-300, 2**70, -(2**63), 0.1],
)
def test_constants_come_back_as_they_went_in(value: float) -> None:
    snapshot = saturate(output("o", Const(value)), BY_CLASS["real"], in_process=True)
    (node,) = snapshot.classes[snapshot.roots[0]]
    assert term_of(node, ()) is Const(value)


def test_both_zeros_and_nan_are_kept_apart() -> None:
    terms = [Const(v) for v in (0.0, -0.0, float("nan"))]
    outputs = tuple(o for i, t in enumerate(terms) for o in output(f"o{i}", t))
    snapshot = saturate(outputs, BY_CLASS["real"], in_process=True)
    found = [term_of(snapshot.classes[r][0], ()) for r in snapshot.roots]
    assert found == terms
    assert len(set(snapshot.roots)) == 3


def test_a_rule_that_asks_for_floats_ignores_truth_values() -> None:
    keep = load("keep", N, dtype="bool")
    outputs = output("o", apply("where", apply("not", apply("not", keep)), x, Const(1.0)), N, C)
    assert not differs(outputs, BY_CLASS["real"])
    counted = output("o", total(S, mul(load("m", T, S, dtype="bool"), load("y", T, D))), T, D)
    assert not differs(counted, BY_CLASS["real"])


def test_streams_in_the_source_come_back() -> None:
    """Running values and online sums may stand in the source themselves."""
    m = reduce_("max", C, x)
    old, new = Before(m), Running(m)
    repair = apply("exp", apply("where", apply("eq", old, new), Const(0.0), sub(old, new)))
    streamed = Online(C, repair, apply("exp", sub(x, new)))
    outputs = (
        *output("s", streamed, N),
        *output("r", mul(new, load("k", N)), N, C),
        *output("constant", Running(reduce_("max", C, load("k", N))), N, C),
        *output("online", Running(streamed), N, C),
    )
    assert not differs(outputs, BY_CLASS["real"])
    snapshot = saturate(outputs, BY_CLASS["real"], in_process=True)
    assert C in snapshot.axes_of(snapshot.free[snapshot.roots[2]])


def test_a_carrier_with_two_forms_runs_as_one_of_them() -> None:
    """max[j](a + c) = max[j](a) + c in total, but a running value follows a reduction's body."""
    extra = rules.parse(
        "with real:\n    max_add = max[j](a + c) == max[j](a) + c, j not in c\n", pack="extra"
    )
    scored = add(x, load("bias", N))
    e = apply("exp", sub(scored, reduce_("max", C, scored)))
    outputs = output("o", div(total(C, mul(e, load("w", C))), total(C, e)), N)
    chosen = (*BY_CLASS["real"], *extra)
    assert not differs(outputs, chosen, draws=12)
    snapshot = saturate(outputs, chosen, in_process=True)
    streams = [n for ns in snapshot.classes.values() for n in ns if n.kind in ("running", "before")]
    assert streams
    for node in streams:
        assert [n.kind for n in snapshot.classes[node.children[0]]] == ["reduce"]
