"""Printed arithmetic without its identities.

What printers compose from parts holds sums with 0, products with 1 and remainders by 1, which
nobody would write. A law holds for integers of any value, and each is applied only where the
operators around it bind no tighter. Numbers of floating point are printed with a point, which no
law matches. Comments and directives are left alone.
"""

from __future__ import annotations

import re

__all__ = ["tidied"]

_END = r"(?![\w.(\[])"  # the number ends here: no digit, no point, no suffix
_FIRST = r"(?<![\w.])"  # and begins here
_LAWS = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        # 0 * x and x % 1, where nothing before them binds as tightly
        (rf"(?<![*/%-] ){_FIRST}0 \* \w+{_END}", "0"),
        (rf"(?<![*/%] ){_FIRST}[\w.]+ % 1{_END}", "0"),
        # x * 1, x / 1, 1 * x
        (rf" [*/] 1{_END}", ""),
        (rf"(?<![/%-] ){_FIRST}(?<!-)1 \* (?=[\w(])", ""),
        # x + 0, x - 0, x ^ 0, and 0 + x where a parenthesis, an index or a statement begins
        (rf" [-+] 0{_END}(?! [*/%])", ""),
        (r" \^ 0(?=[;,)\]]|$)", ""),
        (r"(?<=[(\[])0 \+ (?=[\w(])", ""),
        (r"(?<= = )0 \+ (?=[\w(])", ""),
        (r"\(int\)\((\d+)\)", r"\1"),
        (rf" && 0 == 0{_END}", ""),
        # (-1) * x after a sum
        (rf" \+ \(-1\) \* (?=[a-z_]\w*{_END}(?! [*/%]))", " - "),
        # parentheses around a name or a number, which no call and no cast has
        (r"(?<=[(\[=+*/%<>&|?:,^-] )\((\w+)\)(?= [-+*/%<>=&|?:]|[;,)\]]|$)", r"\1"),
        (r"(?<=[(\[])\((\w+)\)(?= [-+*/%<>=&|?:]|[;,)\]])", r"\1"),
    )
)


def tidied(lines: list[str]) -> list[str]:
    """The same statements, line by line."""
    return [line if line.lstrip().startswith(("//", "#")) else _tidied(line) for line in lines]


def _tidied(line: str) -> str:
    before = ""
    while line != before:
        before = line
        for pattern, to in _LAWS:
            line = pattern.sub(to, line)
    return line
