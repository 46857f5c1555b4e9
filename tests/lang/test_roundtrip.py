"""Printing and reading again gives the same terms; names do not matter to the key."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from nautile import lang
from nautile.dtypes import DTYPES
from nautile.lang.module import prelude
from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS, Definition, Program

from .corpus import corpus, examples
from .generate import programs

CORPUS = corpus()
EXAMPLES = examples()


def _without_lines(program: Program) -> tuple[Definition, ...]:
    return tuple(replace(d, line=0) for d in program.definitions)


def _assert_round_trip(program: Program) -> None:
    (again,) = lang.parse(lang.show(program))
    assert program.inputs == again.inputs
    assert _without_lines(program) == _without_lines(again)
    assert program.outputs == again.outputs
    assert program.defaults == again.defaults
    assert lang.key(program) == lang.key(again)


@pytest.mark.parametrize(("name", "text", "sizes"), CORPUS, ids=[c[0] for c in CORPUS])
def test_corpus_prints_and_reads_back(name: str, text: str, sizes: dict[str, int]) -> None:
    for dims in (None, sizes):
        (program,) = lang.parse(text, dims=dims)
        assert program.name == name
        assert program.source == text
        assert dims is None or dims.items() <= program.sizes.items()
        _assert_round_trip(program)


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_examples_print_and_read_back(name: str, text: str) -> None:
    for program in lang.parse(text, name):
        _assert_round_trip(program)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_generated_programs_print_and_read_back(text: str) -> None:
    for program in lang.parse(text):
        _assert_round_trip(program)


_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KEPT = {
    *("def", "return", "and", "or", "not", "if", "else", "inf", "nan", "True", "False"),
    *("mean", "eps", "slope"),
    *(*OPERATIONS, *MONOIDS, *DTYPES, *prelude().programs),
}


def _renamed(text: str) -> str:
    """Every name but those of the language, with another spelling of the same kind."""
    code = re.sub(r"\"\"\".*?\"\"\"|#[^\n]*", "", text, flags=re.DOTALL)
    return _WORD.sub(lambda m: m[0] if m[0] in _KEPT else f"{m[0]}q{len(m[0])}z", code)


@pytest.mark.parametrize(("name", "text", "sizes"), CORPUS, ids=[c[0] for c in CORPUS])
def test_key_ignores_names(name: str, text: str, sizes: dict[str, int]) -> None:
    (program,) = lang.parse(text)
    (other,) = lang.parse(_renamed(text))
    assert other.name != name
    assert lang.key(program) == lang.key(other)
    assert lang.anonymous(program) == lang.anonymous(other)
    (small,) = lang.parse(text, dims=sizes)
    assert lang.key(small) != lang.key(program)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_key_ignores_names_of_generated_programs(text: str) -> None:
    for program, other in zip(lang.parse(text), lang.parse(_renamed(text)), strict=True):
        assert lang.key(program) == lang.key(other)


def test_keys_tell_programs_apart() -> None:
    keys = [lang.key(p) for _, text, _ in CORPUS for p in lang.parse(text)]
    assert len(set(keys)) == len(keys)


def test_key_sees_types_and_defaults() -> None:
    text = "def f(x: f32[N], k: f32 = 2.0, *, N=4) -> f32[N]:\n    return x[i] * k"
    variants = [
        text,
        text.replace("2.0", "3.0"),
        text.replace("-> f32", "-> bf16"),
        text.replace("x: f32", "x: f16"),
        text.replace("N=4", "N=5"),
    ]
    assert len({lang.key(lang.parse(v)[0]) for v in variants}) == len(variants)


def test_star_stands_before_defaults_that_come_early() -> None:
    text = "def f(k: f32 = 2.0, *, x: f32[4]) -> f32[4]:\n    return x[i] * k"
    (program,) = lang.parse(text)
    assert [b.name for b in program.inputs] == ["k", "x"]
    _assert_round_trip(program)
