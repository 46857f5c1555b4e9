"""Which statements of a tile program each line of generated CUDA belongs to.

The emitters name registers and shared memory after tiles (`t_m3`, `v_t4`, `r10`), buffers after
tensors (`p_x`, `g_0_x`, `o_y`) and write the step of the memory program above the lines that do it
(`// multiply bf16: m3 += t4 x t5`). So the text itself tells its origin:

- a line is of the statement whose tile it names first, where it is assigned;
- below a step's comment, up to the end of the block that follows, every line is of the step's tile;
- a line that names none and opens a block is of the statement that all lines in it are of;
- a tile without a line of its own is made where the registers are that a declaration says it shares
  (`float t_m1[64];  // m4`: one product makes both), else where it is read first.

Other lines (indices, barriers of all, the launch) are of none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["origins"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_INDEX = re.compile(r"[a-z]\d+_|(?:lane|row|tile)_")  # positions are named after axes, not tiles
_BUFFER = re.compile(r"(?:p|g_\d+|o|map)_(\w+)")
_PART = re.compile(r"[tmr]\d+")
_OPENS = re.compile(r"^\s*(?:#pragma|for\b|if\b|\{|\}\s*else|do\b|while\b)")
_SHARED = re.compile(r"^\s*\w+ (t_\w+)(?:\[\w+\])+;\s*// (.+)$")
Origin = int | None


def origins(
    lines: Sequence[str],
    tiles: Mapping[str, int],
    buffers: Mapping[str, int],
    readers: Mapping[int, Sequence[int]],
) -> list[tuple[int, ...]]:
    """For each line the numbers of its statements. `tiles` numbers statements by the name of the
    tile that they make, `buffers` by the identifier of the tensor that they store or read;
    `readers` gives the statements that read a statement's tile, in order."""
    start = _body(lines)
    found = _by_name(lines, start, tiles, buffers)
    _inherited(lines, found, start)
    numbers = {*tiles.values(), *buffers.values()}
    places = {n: [k for k, o in enumerate(found) if o == n] for n in numbers}
    made: list[list[int]] = [[] if n is None else [n] for n in found]
    shared = dict(_shared(lines, tiles))
    for number in sorted((n for n, at in places.items() if not at), reverse=True):
        others = [shared[number]] if number in shared else readers.get(number, ())
        places[number] = next((places[o] for o in others if places.get(o)), [])
        for k in places[number]:
            made[k].append(number)
    return [tuple(m) for m in made]


def _by_name(
    lines: Sequence[str], start: int, tiles: Mapping[str, int], buffers: Mapping[str, int]
) -> list[Origin]:
    found: list[Origin] = [None] * len(lines)
    step = _Step()
    for n in range(start, len(lines)):
        line = lines[n]
        own = _named(line, tiles, buffers)
        if line.lstrip().startswith("//"):
            step = _Step(_depth(line), own)
            found[n] = own
        else:
            step.passed(line)
            found[n] = own if step.origin is None else step.origin
    return found


class _Step:
    """The step of the memory program whose lines are being read: it ends with the block that
    follows its comment."""

    def __init__(self, depth: int = 0, origin: Origin = None) -> None:
        self.depth, self.origin, self.closed = depth, origin, False

    def passed(self, line: str) -> None:
        """Take the next line in, or end."""
        if not line.strip() or self.origin is None:
            return
        depth, text = _depth(line), line.strip()
        goes_on = depth == self.depth and (not self.closed or text.startswith(("}", "else")))
        if depth > self.depth or goes_on:
            self.closed = self.closed or (depth == self.depth and text.startswith("}"))
        else:
            self.origin = None


def _shared(lines: Sequence[str], tiles: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for line in lines:
        match = _SHARED.match(line)
        if match and match[1][2:] in tiles:
            for name in _WORD.findall(match[2]):
                if name in tiles:
                    yield tiles[name], tiles[match[1][2:]]


def _body(lines: Sequence[str]) -> int:
    """The first line inside the function: what is above is shared by all kernels."""
    inside = False
    for n, line in enumerate(lines):
        inside = inside or "__global__" in line
        if inside and line.rstrip().endswith("{"):
            return n + 1
    return len(lines)


def _named(line: str, tiles: Mapping[str, int], buffers: Mapping[str, int]) -> Origin:
    """The statement whose tile or tensor the line names first. Steps call a tensor by its name;
    in code, a bare name may be anything."""
    step = line.lstrip().startswith("//")
    for word in _WORD.findall(line):
        number = buffers.get(word) if step else None
        number = _of_word(word, tiles, buffers) if number is None else number
        if number is not None:
            return number
    return None


def _of_word(word: str, tiles: Mapping[str, int], buffers: Mapping[str, int]) -> Origin:
    if word in tiles:
        return tiles[word]
    buffer = _BUFFER.fullmatch(word)
    if buffer:
        return buffers.get(buffer[1])
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
