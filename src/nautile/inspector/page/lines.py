"""Which statement of a tile program each line of generated CUDA belongs to.

The emitters name registers and shared memory after tiles (`t_m3`, `v_t4`, `r10`), buffers after
tensors (`p_x`, `g_0_x`, `o_y`) and write the step of the memory program above the lines that do it
(`// multiply bf16: m3 += t4 x t5`). So the text itself tells its origin:

- a line is of the statement whose tile it names first, where it is assigned;
- below a step's comment, as deep as the comment or deeper, every line is of the step's tile;
- a line that names none and opens a block is of the statement that all lines in it are of.

Other lines (indices, barriers of all, the launch) are of none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["origins"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_INDEX = re.compile(r"[a-z]\d+_|(?:lane|row|tile)_")  # positions are named after axes, not tiles
_BUFFER = re.compile(r"(?:p|g_\d+|o|map)_(\w+)")
_PART = re.compile(r"[tmr]\d+")
_OPENS = re.compile(r"^\s*(?:#pragma|for\b|if\b|\{|\}\s*else|do\b|while\b)")
Origin = int | None


def origins(
    lines: Sequence[str], tiles: Mapping[str, int], buffers: Mapping[str, int]
) -> list[Origin]:
    """For each line the number of its statement, or None. `tiles` numbers statements by the name of
    the tile that they make, `buffers` by the identifier of the tensor that they store or read."""
    start = _body(lines)
    found: list[Origin] = [None] * len(lines)
    step: tuple[int, Origin] | None = None
    for n in range(start, len(lines)):
        line = lines[n]
        depth = _depth(line)
        if line.lstrip().startswith("//"):
            step = (depth, _named(line, tiles, buffers))
            found[n] = step[1]
            continue
        if step is not None and line.strip() and depth < step[0]:
            step = None
        own = _named(line, tiles, buffers)
        found[n] = step[1] if step is not None and step[1] is not None else own
    _inherited(lines, found, start)
    return found


def _body(lines: Sequence[str]) -> int:
    """The first line of the function itself: what is above is shared by all kernels."""
    for n, line in enumerate(lines):
        if "__global__" in line:
            return n + 1
    return len(lines)


def _named(line: str, tiles: Mapping[str, int], buffers: Mapping[str, int]) -> Origin:
    """The statement whose tile or tensor the line names first."""
    for word in _WORD.findall(line):
        number = _of_word(word, tiles, buffers)
        if number is not None:
            return number
    return None


def _of_word(word: str, tiles: Mapping[str, int], buffers: Mapping[str, int]) -> Origin:
    if word in tiles:
        return tiles[word]
    buffer = _BUFFER.fullmatch(word)
    if buffer:
        return buffers.get(buffer[1])
    if word in buffers:
        return buffers[word]
    if _INDEX.match(word) and not _PART.match(word):
        return None
    return next((tiles[part] for part in word.split("_") if part in tiles), None)


def _inherited(lines: Sequence[str], found: list[Origin], start: int) -> None:
    """Lines that open a block take what all lines in it have, from the innermost outwards."""
    for n in range(len(lines) - 1, start - 1, -1):
        if found[n] is None and _OPENS.match(lines[n]):
            inner = set(_inside(lines, found, n))
            if len(inner) == 1:
                found[n] = inner.pop()


def _inside(lines: Sequence[str], found: Sequence[Origin], n: int) -> Iterable[int]:
    """The statements of the lines deeper than line `n` that follow it; below a pragma, those of the
    line that it is about and of what is in that."""
    depth = _depth(lines[n])
    pragma = lines[n].lstrip().startswith("#")
    for k in range(n + 1, len(lines)):
        own = _depth(lines[k])
        if own < depth or (own == depth and not (pragma and k == n + 1)):
            return
        number = found[k]
        if number is not None:
            yield number


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
