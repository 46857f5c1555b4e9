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

_LOOP = re.compile(r"for \(.*\)$")  # its statement is on the next line


def tidied(lines: list[str]) -> list[str]:
    """The same statements, line by line, each loop's within it."""
    return _nested(
        [line if line.lstrip().startswith(("//", "#")) else _tidied(line) for line in lines]
    )


def _nested(lines: list[str]) -> list[str]:
    """Statements of loops without braces are indented, as those within braces are already."""
    found, loops, depth = [], 0, 0
    for line in lines:
        found.append("  " * loops + line if line else line)
        text = line.lstrip()
        if text.startswith(("#", "//")):
            continue
        if depth == 0 and _LOOP.match(text):
            loops += 1
            continue
        depth += text.count("{") - text.count("}") if loops else 0
        loops = loops if depth else 0
    return found


def _tidied(line: str) -> str:
    before = ""
    while line != before:
        before = line
        for pattern, to in _LAWS:
            line = pattern.sub(to, line)
    return line
