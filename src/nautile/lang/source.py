"""A source text and the errors that quote it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from nautile.errors import SourceError

__all__ = ["Source", "nearest"]

_WIDTH = 110
_CANDIDATES = 2000


@dataclass(frozen=True, slots=True)
class Source:
    """A text with the name that errors call it by."""

    text: str
    filename: str
    lines: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(re.split(r"\r\n|\r|\n", self.text)))

    def error(self, node: ast.AST, message: str, code: str) -> SourceError:
        """The error at the start of `node`."""
        line = getattr(node, "lineno", 1)
        return self.error_at(
            line, self._characters(line, getattr(node, "col_offset", 0)), message, code
        )

    def error_at(self, line: int, column: int, message: str, code: str) -> SourceError:
        """The error at a line (from 1) and a column in characters (from 0)."""
        quoted = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        start, cut = _window(quoted.replace("\t", " "), column)
        return SourceError(
            message,
            code=code,
            filename=self.filename,
            line=line,
            column=column + 1,
            text=cut,
            caret=column - start,
        )

    def segment(self, node: ast.FunctionDef) -> str:
        """The whole lines of a program."""
        return "\n".join(self.lines[node.lineno - 1 : node.end_lineno])

    def _characters(self, line: int, offset: int) -> int:
        """ast counts columns in UTF-8 bytes; people count characters."""
        if not 0 < line <= len(self.lines):
            return 0
        return len(self.lines[line - 1].encode()[:offset].decode(errors="ignore"))


def _window(line: str, column: int) -> tuple[int, str]:
    """The part of a long line around the column, and where it starts."""
    if len(line) <= 2 * _WIDTH:
        return 0, line
    start = max(0, column - _WIDTH // 2)
    return start, line[start : start + _WIDTH]


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean ...?` for the nearest known name, or nothing."""
    found = get_close_matches(name, sorted(set(known))[:_CANDIDATES], n=1, cutoff=0.6)
    return f" Did you mean {found[0]}?" if found else ""
