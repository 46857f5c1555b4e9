"""What an input may be: its limits are checked before anything recurses.

Bytes of a file, nesting of brackets (by a scan of the characters, before the parser sees them),
depth of the syntax tree; then, while reading, the number of definitions, of calls and of the terms
that calls unfold to, and the depth of both.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from nautile.errors import InputError, LimitError
from nautile.lang.source import Source

__all__ = [
    "MAX_BYTES",
    "MAX_CALLS",
    "MAX_CALL_DEPTH",
    "MAX_DEFINITIONS",
    "MAX_DEPTH",
    "MAX_TERMS",
    "parse_tree",
    "read",
]

MAX_BYTES = 1 << 20
MAX_BRACKETS = 100
MAX_DEPTH = 200
MAX_TERMS = 50_000
MAX_CALL_DEPTH = 32
MAX_CALLS = 1_000
MAX_DEFINITIONS = 2_000

_TOKEN = re.compile(
    r"#[^\r\n]*|'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\r\n])*+'|\"(?:\\.|[^\"\\\r\n])*+\"|[\[({})\]]",
    re.DOTALL,
)


def read(path: Path) -> str:
    """The text of a file.

    Raises InputError where it is missing, a folder, unreadable or no text, LimitError where it is
    longer than MAX_BYTES.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file", code="missing-file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a file", code="not-a-file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {reason}", code="unreadable-file") from None
    if len(data) > MAX_BYTES:
        raise LimitError(f"{path}: is longer than {MAX_BYTES} bytes; split it into several files")
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); is it a binary file?", code="not-text"
        ) from None
    if "\0" in text:
        raise InputError(f"{path}: holds NUL bytes; is it a binary file?", code="not-text")
    return text


def parse_tree(source: Source) -> ast.Module:
    """The syntax tree of a text within the limits.

    Raises LimitError for a text that passes one, SourceError (code `syntax`) for a malformed one.
    """
    if len(source.text) > MAX_BYTES or len(source.text.encode(errors="replace")) > MAX_BYTES:
        raise LimitError(f"{source.filename}: is longer than {MAX_BYTES} bytes; split it")
    if "\0" in source.text:
        raise InputError(f"{source.filename}: holds NUL bytes", code="not-text")
    _scan_brackets(source)
    tree = _parse(source)
    _check_depth(source, tree)
    return tree


def _scan_brackets(source: Source) -> None:
    depth = 0
    for match in _TOKEN.finditer(source.text):
        token = match.group()
        if token in "([{":
            depth += 1
            if depth > MAX_BRACKETS:
                before = source.text[: match.start()]
                raise _too_deep(source, before.count("\n") + 1)
        elif token in ")]}":
            depth = max(0, depth - 1)


def _parse(source: Source) -> ast.Module:
    try:
        return ast.parse(source.text, source.filename)
    except SyntaxError as error:
        raise _syntax(source, error) from None
    except (RecursionError, MemoryError):
        raise _too_deep(source, 0) from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{source.filename}: {error}", code="syntax") from None


def _syntax(source: Source, error: SyntaxError) -> Exception:
    if "too many" in error.msg or "too complex" in error.msg:
        return _too_deep(source, error.lineno or 0)
    line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
    return source.error_at(line, column, f"malformed text: {error.msg}", "syntax")


def _too_deep(source: Source, line: int) -> LimitError:
    place = f"{source.filename}:{line}" if line else source.filename
    return LimitError(
        f"{place}: nested deeper than {MAX_BRACKETS} brackets or {MAX_DEPTH} operations; "
        "give parts of the expression names of their own"
    )


def _check_depth(source: Source, tree: ast.Module) -> None:
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(source, getattr(node, "lineno", 0))
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
