"""The text of each kind of Hopper kernel, kept: `pytest --update-golden` rewrites it. And what this
emitter leaves to others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import programs as P
import pytest

from nautile.codegen.sm90.emit import CAPACITY, emit_hopper, emit_hopper_variants, memory_program
from nautile.codegen.sm90.kernel import BODY
from nautile.codegen.sm90.options import Options
from nautile.codegen.sm90.text import show_memory
from nautile.codegen.tile import Loop, Read, Statement, TileProgram, Write
from nautile.errors import LoweringError
from nautile.terms import Term, apply

GOLDEN = Path(__file__).parent / "golden_sm90"
Make = Callable[[], TileProgram]
KEPT: dict[str, tuple[Make, dict[str, Any]]] = {
    "gemm_turns": (lambda: P.gemm(4096, 4096, 4096, bias=True, epilogue=P.gelu), {}),
    "gated_shared": (lambda: P.gated(1000, 1000, 1000, (128, 128, 64)), {}),
    "gemm_e4m3": (
        lambda: P.gemm(4096, 4096, 4096, (128, 128, 128), dtype="f8e4m3", out="bf16"),
        {},
    ),
    "attention_causal": (
        lambda: P.attention(4096, 4096, 128, 0, 32, 4, (128, 128), mask=P.causal),
        {},
    ),
    "attention_ragged_row_sums": (
        lambda: P.attention(1000, 1000, 64, 0, 8, tile=(192, 64), logsumexp=True, out="f32"),
        {},
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_cuda_text(name: str, request: pytest.FixtureRequest) -> None:
    make, given = KEPT[name]
    text = emit_hopper(make(), Options(**given)).text
    text = text[text.index(BODY) :]
    path = GOLDEN / f"{name}.cu"
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_text_is_the_same_from_run_to_run() -> None:
    make, _ = KEPT["attention_causal"]
    assert emit_hopper(make()) == emit_hopper(make())
    shown = show_memory(memory_program(make()))
    assert all(f"// {line}" in emit_hopper(make()).text for line in shown.splitlines())


def test_no_two_variants_are_the_same() -> None:
    made = list(emit_hopper_variants(P.attention(1024, 1024, 128, tile=(128, 64), mask=P.causal)))
    assert len(made) > 1
    assert len({k.text for k in made}) == len(made)


REFUSED: dict[str, tuple[Make, str, str]] = {
    "few rows": (lambda: P.gemm(64, 64, 64, (32, 32, 64)), "multiple of 64", CAPACITY),
    "odd strides": (lambda: P.gemm(128, 128, 132), "aligned to 16", "lowering"),
    "odd strides on the right": (
        lambda: P.gemm(128, 126, 128, layout="mk,kn", right="f32"),
        "come as tiles",
        "lowering",
    ),
    "pieces": (
        lambda: P.gemm(128, 128, 128, dtype="f32", operand="tf32"),
        "rounded to tf32",
        "lowering",
    ),
    "computed tf32": (
        lambda: P.attention(128, 128, 64, tile=(64, 64), dtype="tf32"),
        "computed operands",
        "lowering",
    ),
    "too wide": (lambda: P.gemm(512, 512, 512, (256, 256, 64)), "registers", CAPACITY),
    "too deep": (lambda: P.attention(128, 512, 256, tile=(128, 256)), "shared memory", CAPACITY),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_other_emitters_must_take(name: str) -> None:
    make, reason, code = REFUSED[name]
    with pytest.raises(LoweringError, match=reason) as caught:
        emit_hopper(make())
    assert caught.value.code == code


def test_names_of_buffers_cannot_meet_those_of_the_kernel() -> None:
    """A buffer called as a variable of the kernel is, two maps of one buffer beside another."""
    program = P.gemm(256, 256, 256, (128, 256, 64))
    text = emit_hopper(_renamed(program, {"A": "within", "B": "A_2"})).text
    body = text[text.index(BODY) :]
    assert re.findall(r"\bconst \w+ (in_\w+) =", body) == ["in_within_A_2"]
    square = emit_hopper(_renamed(program, {"B": "A", "C": "A_2"}))
    names = re.findall(r"nt_map (\w+)", square.text[square.text.index(BODY) :])
    assert len(set(names)) == len(names) == len(square.maps) == 3


def _renamed(program: TileProgram, names: dict[str, str]) -> TileProgram:
    """The program with other names of buffers."""

    def changed(s: Statement) -> Statement:
        if isinstance(s, Loop):
            return replace(s, body=tuple(map(changed, s.body)))
        if isinstance(s, (Read, Write)):
            return replace(
                s, buffer=replace(s.buffer, name=names.get(s.buffer.name, s.buffer.name))
            )
        return s

    return replace(program, body=tuple(map(changed, program.body)))


def capped(s: Term, q: Term, t: Term, h: Term) -> Term:
    return P.mul(apply("tanh", P.mul(s, 0.01)), 30.0)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        # scores: what is wrong absolutely is wrong relatively after exp, and is rounded to 16 bits
        (
            lambda: P.attention(256, 256, 64, tile=(128, 64), score=capped),
            "nt_reciprocals nt_tanh_near_5",
        ),
        # of a factor of 200, less is let pass
        (
            lambda: P.attention(
                256, 256, 64, tile=(128, 64), score=lambda *a: P.mul(capped(*a), 200 / 30)
            ),
            "nt_reciprocals nt_tanh_near",
        ),
        # a factor of 30000 inside the score, which a distance is added to
        (
            lambda: P.attention(
                256,
                256,
                64,
                tile=(128, 64),
                score=lambda s, q, t, h: P.add(P.mul(capped(s, q, t, h), 1000.0), t),
            ),
            "nt_tanh_fast",
        ),
        # the maximum is a result, too
        (
            lambda: P.attention(256, 256, 64, tile=(128, 64), score=capped, logsumexp=True),
            "nt_tanh_fast",
        ),
        # a factor of 30000 makes of an error of 1e-7 one that shows
        (
            lambda: P.attention(
                256, 256, 64, tile=(128, 64), score=lambda *a: P.mul(capped(*a), 1000.0)
            ),
            "nt_tanh_fast",
        ),
        # no exponential follows
        (lambda: P.gemm(256, 256, 256, epilogue=lambda x: apply("tanh", x)), "nt_tanh_fast"),
    ],
)
def test_tanh_is_as_exact_as_what_reads_it_needs(make: Make, wanted: str) -> None:
    text = emit_hopper(make()).text
    body = text[text.index(BODY) :]
    assert set(re.findall(r"nt_(?:tanh_\w+|sigmoid_\w+|reciprocals)", body)) == set(wanted.split())
