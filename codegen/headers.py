"""Device headers, inlined: a kernel's text gets the blocks of `device/*.cuh` that it needs.

A block is a run of lines between blank lines. It defines functions (`NT_DEV type name(`), structs,
types and macros, one of which a text must use to receive it. A comment above is part of its block.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

__all__ = ["blocks", "inline"]

_DEVICE = Path(__file__).parent / "device"
_DEFINES = re.compile(r"^(?:template <[^>]*>\s*)?NT_DEV\s[^(]*?(\w+)\(", re.MULTILINE)
_STRUCT = re.compile(r"^(?:template <[^>]*>\s*)?struct\s(?:alignas\(.*?\)+\s)?(\w+)", re.MULTILINE)
_TYPE = re.compile(r"^typedef\s[^;]*?(\w+);", re.MULTILINE)
_MACRO = re.compile(r"^#define\s+(\w+)", re.MULTILINE)
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=16)
def blocks(header: str) -> tuple[tuple[frozenset[str], str], ...]:
    """The blocks of one header in order, each with the names that it defines."""
    text = (_DEVICE / header).read_text(encoding="utf-8")
    parts = [p.strip("\n") for p in re.split(r"\n\s*\n", text)]
    code = [p for p in parts if any(not row.startswith("//") for row in p.splitlines())]
    return tuple((_names(p), p) for p in code)


def _names(block: str) -> frozenset[str]:
    """What a block defines."""
    found = (pattern.findall(block) for pattern in (_DEFINES, _STRUCT, _TYPE, _MACRO))
    return frozenset(name for names in found for name in names)


def inline(text: str, *headers: str) -> str:
    """`text` preceded by the blocks of the headers that it uses, directly or through others."""
    rows = [row for header in headers for row in blocks(header)]
    wanted = set(_WORD.findall(text))
    kept: list[str] = []
    for names, block in reversed(rows):
        if not names or names & wanted:
            kept.append(block)
            wanted |= set(_WORD.findall(block))
    return "\n".join(reversed(kept)) + "\n\n" + text
