"""Hostile and unreadable inputs end in one message, quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nautile import lang
from nautile.errors import InputError, LimitError

HEAD = "def f(x: f32[N], *, N=4) -> f32[N]:\n    return "


def _chain(step: str, count: int, last: str) -> str:
    """Programs that each call the next one twice."""
    middle = "".join(step.format(this=i, next=i + 1) for i in range(count))
    return middle + last.format(this=count)


SCALAR = "def q{this}(x: f32) -> f32:\n    return q{next}(x) + q{next}(x)\n"
WHOLE = "def q{this}(x: f32[N]) -> f32[N]:\n    a = q{next}(x)\n    return q{next}(a)\n"

TEXTS = {
    "open parentheses": "(" * 100_000,
    "parentheses": HEAD + "(" * 100_000 + "x[i]" + ")" * 100_000,
    "more parentheses than are allowed": HEAD + "(" * 150 + "x[i]" + ")" * 150,
    "brackets": HEAD + "x[" * 5_000 + "i" + "]" * 5_000,
    "minus signs": HEAD + "-" * 100_000 + "x[i]",
    "not": HEAD + "not " * 50_000 + "x[i]",
    "powers": HEAD + "x[i]**" * 20_000 + "2",
    "conditionals": HEAD + "x[i] if x[i] > 0 else " * 5_000 + "x[i]",
    "a long sum": HEAD + "x[i] + " * 5_000 + "x[i]",
    "a long comparison of sums": HEAD + "x[i] + " * 300 + "x[i]",
    "subscripts": HEAD + "x" + "[i]" * 5_000,
    "nested operations": HEAD + "gelu(" * 90 + "x[i]" + ")" * 90,
    "fan of scalar calls": HEAD
    + "q0(x[i])\n"
    + _chain(SCALAR, 30, "def q{this}(x: f32) -> f32:\n    return x"),
    "fan of whole calls": HEAD
    + "q0(x)\n"
    + _chain(WHOLE, 30, "def q{this}(x: f32[N]) -> f32[N]:\n    y[i] = exp(x[i])\n    return y"),
    "a deep chain of calls": HEAD
    + "q0(x[i])\n"
    + "".join(f"def q{i}(x: f32) -> f32:\n    return q{i + 1}(x)\n" for i in range(100))
    + "def q100(x: f32) -> f32:\n    return x",
    "many lines": "def f(x: f32) -> f32:\n"
    + "".join(f"    a{i} = x * {i}\n" for i in range(3_000))
    + "    return a0",
    "many bytes": "#" * (10 << 20),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_limits(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(LimitError) as caught:
        lang.parse(text, "file.nau")
    assert (caught.value.code, caught.value.exit_status) == ("limit", 2)
    assert len(str(caught.value)) < 300
    assert time.perf_counter() - start < 5


def test_brackets_in_strings_and_comments_do_not_nest() -> None:
    text = f'# {"(" * 500}\n"""{"[" * 500}"""\n{HEAD}x[i]  # {"{" * 500}'
    assert lang.parse(text)[0].name == "f"


def test_a_huge_power_is_no_number_but_a_float() -> None:
    (program,) = lang.parse(HEAD + "x[i] * 9**9**9**9")
    assert "9 ** " in lang.show(program)


def test_text_of_shared_terms_stays_short() -> None:
    (program,) = lang.parse(HEAD + "gelu_tanh(" * 12 + "x[i]" + ")" * 12)
    with pytest.raises(LimitError):
        lang.show(program)
    assert len(lang.show_term(program.definitions[0].body, 50)) < 2000


def _refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        lang.parse_file(path)
    assert str(path) in caught.value.message
    return caught.value


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert _refused(tmp_path / "missing.nau").code == "missing-file"
    assert _refused(tmp_path).code == "not-a-file"
    binary = tmp_path / "binary.nau"
    binary.write_bytes(bytes(range(256)) * 8)
    assert _refused(binary).code == "not-text"
    binary.write_bytes(b"def f(x: f32) -> f32:\n    return x\0")
    assert _refused(binary).code == "not-text"
    binary.write_bytes(b"#" * (10 << 20))
    assert _refused(binary).code == "limit"


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.nau"
    path.write_bytes(b"\xef\xbb\xbfdef f(x: f32[N], *, N=4) -> f32[N]:\r\n    return x\r\n")
    (program,) = lang.parse_file(path, {"N": 7})
    assert (program.filename, program.inputs[0].shape) == (str(path), (7,))
