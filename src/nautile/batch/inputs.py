"""Which files a batch reads: folders, globs and lists, in an order that is the same every time.

```
argument ::= FOLDER        all *.nau files below it, sorted; links are followed, loops are not
           | FILE.nau      that file
           | GLOB          every match (`*`, `?`, `[..]`, `**`), sorted; folders as above
           | LIST          another text file: a path a line, but blank lines and `#` comments
           | -             such a list on standard input
```

A file is taken once, by its path. What cannot be looked into is an input too, with its error. A
shard `I/N` is the files whose path's digest leaves I - 1 when divided by N: the N shards of the
same arguments have each file once, and a file's shard does not change when others come or go.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from nautile.errors import InputError, NautileError

__all__ = ["SUFFIX", "WHOLE", "File", "Shard", "file_name", "files"]

SUFFIX = ".nau"
_UP, _ROOT = "_up_", "_root_"
_LONGEST_LINE = 4096 + 1
_LONGEST_LABEL = 1000  # bytes: paths may have 4096, and others stand before and behind


@dataclass(frozen=True, slots=True)
class File:
    """A file to read. `shown` is its path in records, in plain UTF-8; `label` is its place below
    the folder of bundles. Where it cannot be looked for, `error` says why."""

    path: str
    shown: str
    label: str
    error: NautileError | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of the files, `number` counted from 1."""

    number: int
    count: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard that is written `I/N`. InputError where it is none."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            message = f"--shard {text}: expected I/N, with I from 1 to N"
            raise InputError(message, code="usage")
        return cls(number, count)

    def has(self, digest: bytes) -> bool:
        """Whether a path of that digest belongs to it."""
        return int.from_bytes(digest) % self.count == self.number - 1


WHOLE = Shard(1, 1)


def files(
    arguments: Sequence[str], skip: Path | None = None, shard: Shard = WHOLE
) -> Iterator[File]:
    """The files of the shard that the arguments name, each once. `skip` is a folder that is not
    looked into.

    Raises InputError for an argument that names nothing.
    """
    seen: set[bytes] = set()
    alone = arguments[0] if len(arguments) == 1 and os.path.isdir(arguments[0]) else None
    for path, error in _named(arguments, skip):
        mark = blake2b(os.fsencode(os.path.normpath(path)), digest_size=16).digest()
        if mark not in seen:
            seen.add(mark)
            if shard.has(mark):
                yield File(path, _plain(path), _label(path, alone), error)


Found = tuple[str, NautileError | None]


def _named(arguments: Iterable[str], skip: Path | None) -> Iterator[Found]:
    for argument in arguments:
        if argument == "-":
            yield from _listed(sys.stdin.buffer, skip)
        elif os.path.isdir(argument):
            yield from _below(argument, skip)
        elif os.path.lexists(argument) and not argument.endswith(SUFFIX):
            yield from _list_file(argument, skip)
        elif glob.has_magic(argument) and not os.path.lexists(argument):
            yield from _matches(argument, skip)
        else:
            yield argument, None


def _matches(pattern: str, skip: Path | None) -> Iterator[Found]:
    found = sorted(glob.iglob(pattern, recursive=True))
    if not found:
        raise InputError(f"no file matches {pattern}", code="no-inputs")
    for path in found:
        if os.path.isdir(path):
            yield from _below(path, skip)
        elif path.endswith(SUFFIX):
            yield path, None


def _list_file(path: str, skip: Path | None) -> Iterator[Found]:
    try:
        with open(path, "rb") as lines:
            yield from _listed(lines, skip)
    except OSError as error:
        message = f"{_plain(path)}: the list cannot be read: {error.strerror}"
        raise InputError(message, code="unreadable-file") from None


def _listed(lines: Iterable[bytes], skip: Path | None) -> Iterator[Found]:
    for line in lines:
        if len(line) > _LONGEST_LINE or b"\0" in line:
            raise InputError("the list of files holds a line that is no path", code="not-text")
        path = os.fsdecode(line.rstrip(b"\r\n"))
        if path.strip() and not path.startswith("#"):
            yield from _below(path, skip) if os.path.isdir(path) else ((path, None),)


def _below(folder: str, skip: Path | None) -> Iterator[Found]:
    """All expression files below a folder, sorted, each folder once however it is linked to."""
    visited: set[tuple[int, int]] = set()
    if skip is not None and skip.is_dir():
        visited.add(_identity(str(skip)))
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            identity = _identity(place)
            if identity in visited:
                continue
            visited.add(identity)
            with os.scandir(place) as entries:
                inside = sorted(entries, key=lambda e: e.name)
        except OSError as error:
            message = f"{_plain(place)}: cannot be looked into: {error.strerror}"
            yield place, InputError(message, code="unreadable-folder")
            continue
        folders = [e.path for e in inside if _is_folder(e)]
        yield from ((e.path, None) for e in inside if _is_source(e))
        waiting += reversed(folders)


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_source(entry: os.DirEntry[str]) -> bool:
    """A file by its name; a link that leads nowhere is one too, to be told of."""
    return entry.name.endswith(SUFFIX) and not _is_folder(entry)


def _plain(path: str) -> str:
    """The path as text that every program can write: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _label(path: str, folder: str | None) -> str:
    """A relative path of the file's own, below any folder: relative to the one folder that was
    asked for, else as it was named. Steps up are spelled `_up_` and the root `_root_`; what would
    be a hidden, too long or odd name gets a digest behind it, and a path that is too long as a
    whole is one."""
    relative = os.path.relpath(path, folder) if folder is not None else os.path.normpath(path)
    parts = [_UP if p == ".." else file_name(p) for p in relative.split(os.sep) if p]
    label = "/".join([_ROOT, *parts] if os.path.isabs(relative) else parts)
    if len(label.encode()) <= _LONGEST_LABEL:
        return label
    return f"deep-{blake2b(os.fsencode(relative), digest_size=12).hexdigest()}"


def file_name(part: str) -> str:
    """A name that every file system takes: the part itself, or what is plain of it and a digest."""
    plain = _plain(part)
    odd = not plain.isprintable() or plain != part or set(plain) & set('\\:*?"<>|')
    if not odd and not plain.startswith((".", _UP, _ROOT)) and len(plain.encode()) <= 200:
        return plain
    digest = blake2b(os.fsencode(part), digest_size=6).hexdigest()
    kept = "".join(c for c in plain if c.isascii() and (c.isalnum() or c in "-_"))
    return f"{kept[:80] or 'file'}-{digest}"
