"""Identities leave printed arithmetic, and never its value."""

from __future__ import annotations

import random
import re

import pytest

from nautile.codegen.tidy import tidied


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a = shared + 0 + 0 * 32768;", "a = shared;"),
        ("f((shared + 0 + 2 * 64) + 0 + r * 128);", "f((shared + 2 * 64) + r * 128);"),
        ("const int n = (next) * 64;", "const int n = next * 64;"),
        ("const int l = (x) % 8;", "const int l = x % 8;"),
        ("x0 + (int)threadIdx.x / 1 < 8 && threadIdx.x % 1 == 0", "x0 + (int)threadIdx.x < 8"),
        ("(int)(blockIdx.x / 1 % 64) * 128", "(int)(blockIdx.x % 64) * 128"),
        ("d0 = (s + c) + (-1) * row;", "d0 = (s + c) - row;"),
        ("a + i * 2048 + (ax ^ (0 * 32))", "a + i * 2048 + ax"),
        ("for (int k = threadIdx.x % 1; k < 8; k += 1)", "for (int k = 0; k < 8; k += 1)"),
        ("const int o = (int)(blockIdx.x / 1 % 1) * 12;", "const int o = 0;"),
        ("t[2 * k + 0][0]", "t[2 * k][0]"),
    ],
)
def test_what_nobody_would_write_goes(line: str, expected: str) -> None:
    assert tidied([line]) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "// at 0 + 0 * 1", "#define F(x) (x) + 0", "y = x * 1.0f + 0.0f;", "y = x * 10 + 05;",
        "y = (float)(x);", "f(x); g(0);", "y = a / 1u;", "y = a - 1 * b;",
        "z = a / b % 1;", "y = x + 0 * k(3);", "y = (-1) * x;", "v = 1 ? a : b;", "x[0] = 1;",
        "if (done) return;", "while (number) step();", "y = x - 0.5f;", "y = x + 0x10;",
    ],
)  # fmt: skip
def test_what_means_something_stays(line: str) -> None:
    assert tidied([line]) == [line]


def expression(dice: random.Random, depth: int) -> str:
    """An integer expression in which 0 and 1 are frequent; divisors are positive."""
    if depth == 0:
        return dice.choice(("a", "b", "c", "0", "1", "1", "0", "7", "16", "(a)", "(-1)", "(b)"))
    operation = dice.choice(("+", "-", "*", "*", "/", "%", "^", "<"))
    left = expression(dice, depth - 1)
    right = dice.choice(("1", "1", "2", "8", "d")) if operation in "/%" else expression(
        dice, depth - 1 if dice.random() < 0.5 else 0
    )  # fmt: skip
    text = f"{left} {operation} {right}"
    return f"({text})" if operation in "<^" or dice.random() < 0.4 else text


def value(text: str, names: dict[str, int]) -> int:
    """By Python, whose operators bind as those of C do here; quotients round down in both."""
    return int(eval(re.sub(r"/", "//", text), {"__builtins__": {}}, names))


def test_values_stay() -> None:
    dice = random.Random(11)
    shorter = 0
    for _ in range(4000):
        text = expression(dice, dice.randint(1, 4))
        (after,) = tidied([f"x = {text};"])
        after = after.removeprefix("x = ").removesuffix(";")
        shorter += len(after) < len(text)
        for _ in range(3):
            names = {n: dice.randint(-50, 50) for n in "abc"} | {"d": dice.randint(1, 9)}
            assert value(after, names) == value(text, names), (text, after)
    assert shorter > 2000


def test_statements_of_loops_without_braces_are_within_them() -> None:
    lines = [
        "  for (int i = 0; i < 2; i++)", "  #pragma unroll", "  for (int j = 0; j < f(i); j++)",
        "  x[i][j] = y;", "  z = 1;", "  for (;;)", "  {", "    a();", "    b();", "  }", "  c();",
        "  for (int k = 0; k < 2; k++) {", "    d();", "  }",
    ]  # fmt: skip
    assert tidied(lines) == [
        "  for (int i = 0; i < 2; i++)", "    #pragma unroll", "    for (int j = 0; j < f(i); j++)",
        "      x[i][j] = y;", "  z = 1;", "  for (;;)", "    {", "      a();", "      b();",
        "    }", "  c();", "  for (int k = 0; k < 2; k++) {", "    d();", "  }",
    ]  # fmt: skip
