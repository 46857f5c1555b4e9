"""What a bundle's `manifest.json` says, checked to the last field before anything uses it.

```
Manifest ::= format, target, key, versions, programs, buffers, launches, files
Program  ::= name, key, kinds {input: samples kind}, defaults {scalar input: number},
             expected (file name or null)
Buffer   ::= program, name, shape, dtype, role        role is input, output or intermediate
Launch   ::= program, name, implementations            the best first, see launches.py
File     ::= name: {bytes, digest}                     BLAKE2b-128 of the contents, hexadecimal
```

Launches stand in the order in which they run. A bundle may come from anywhere: every name, size and
option is checked against what this release can write, and BundleError says which field is wrong.
Bundles of format 1, whose launches are one kernel each, are read too.
Needs the standard library alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nautile.bundle.fields import (
    FILE,
    ITEM_BYTES,
    MAX_BYTES,
    count,
    counts,
    entries,
    is_count,
    is_number,
    is_text,
    known,
    mapping,
    match,
    object_of,
    rows,
    text,
    wrong,
)
from nautile.bundle.launches import (
    Implementation,
    Kernel,
    Launch,
    check_launch,
    launch,
    launch_of_format_1,
)
from nautile.errors import BundleError

__all__ = [
    "FORMAT",
    "ITEM_BYTES",
    "MANIFEST",
    "Buffer",
    "File",
    "Implementation",
    "Kernel",
    "Launch",
    "Manifest",
    "Program",
    "as_json",
    "parse",
]

FORMAT = 2
MANIFEST = "manifest.json"
ROLES = ("input", "output", "intermediate")
MAX_RANK = 32

_HEX = r"[0-9a-f]{32}"
_LAUNCHES = {1: launch_of_format_1, 2: launch}


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor of a program: row-major, the last axis contiguous."""

    program: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Program:
    """A program's name and key, how to draw sample inputs for it, the values of scalar inputs that
    have a default, and the file with its sampled reference."""

    name: str
    key: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole bundle."""

    target: str
    key: str
    versions: Mapping[str, str]
    programs: tuple[Program, ...]
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    files: Mapping[str, File]


def as_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data for `manifest.json`."""
    plain: dict[str, Any] = _plain(manifest)
    return {"format": FORMAT} | plain


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (tuple, list)) else value


def parse(data: Any) -> Manifest:
    """The manifest that plain data hold. BundleError names the first field that is wrong."""
    top = object_of(data, "the manifest")
    version: Any = top.get("format")
    if not is_count(version, 1, FORMAT):
        raise BundleError(
            f"bundle format {version!r} is unknown; this release reads 1 to {FORMAT}",
            code="bundle-version",
        )
    manifest = Manifest(
        target=text(top, "target"),
        key=text(top, "key"),
        versions=mapping(top, "versions", is_text),
        programs=rows(top, "programs", _program),
        buffers=rows(top, "buffers", _buffer),
        launches=rows(top, "launches", _LAUNCHES[version]),
        files={match(n, FILE, "files"): _file(f, n) for n, f in entries(top, "files").items()},
    )
    _check_references(manifest)
    return manifest


def _program(row: Mapping[str, Any], where: str) -> Program:
    expected = row.get("expected")
    return Program(
        name=text(row, "name", where),
        key=text(row, "key", where),
        kinds=mapping(row, "kinds", is_text, where),
        defaults=mapping(row, "defaults", is_number, where),
        expected=None if expected is None else match(expected, FILE, f"{where}.expected"),
    )


def _buffer(row: Mapping[str, Any], where: str) -> Buffer:
    shape = counts(row, "shape", 1, MAX_BYTES, where)
    if len(shape) > MAX_RANK:
        raise wrong(f"{where}.shape", shape, f"at most {MAX_RANK} positive sizes")
    dtype, role = text(row, "dtype", where), text(row, "role", where)
    if dtype not in ITEM_BYTES:
        raise wrong(f"{where}.dtype", dtype, f"one of {', '.join(ITEM_BYTES)}")
    if role not in ROLES:
        raise wrong(f"{where}.role", role, f"one of {', '.join(ROLES)}")
    made = Buffer(text(row, "program", where), text(row, "name", where), shape, dtype, role)
    if made.nbytes > MAX_BYTES:
        raise wrong(f"{where}.shape", shape, f"at most {MAX_BYTES} bytes")
    return made


def _file(row: Any, name: str) -> File:
    where = f"files.{name}"
    item = object_of(row, where)
    digest = match(item.get("digest"), _HEX, f"{where}.digest")
    return File(count(item, "bytes", 0, MAX_BYTES, where), digest)


def _check_references(manifest: Manifest) -> None:
    """Names are unique, and every name that is used is there."""
    programs = [p.name for p in manifest.programs]
    buffers = {(b.program, b.name): b for b in manifest.buffers}
    if not programs:
        raise BundleError("the bundle holds no program")
    if len(set(programs)) < len(programs) or len(buffers) < len(manifest.buffers):
        raise BundleError("two programs, or two buffers of one program, have the same name")
    for b in manifest.buffers:
        known(b.program, programs, f"buffer {b.name}", "program")
    for row in manifest.launches:
        known(row.program, programs, f"launch {row.name}", "program")
        check_launch(row, buffers, manifest.files)
    for p in manifest.programs:
        _check_program(p, buffers, manifest)


def _check_program(
    program: Program, buffers: Mapping[tuple[str, str], Buffer], manifest: Manifest
) -> None:
    where = f"program {program.name}"
    if program.expected is not None:
        known(program.expected, manifest.files, where, "file")
    for name in (*program.kinds, *program.defaults):
        b = buffers.get((program.name, name))
        if b is None or b.role != "input":
            raise BundleError(f"{where}: '{name}' is not an input")
    written = {n for x in manifest.launches if x.program == program.name for n in x.written}
    for b in manifest.buffers:
        if b.program == program.name and b.role == "output" and b.name not in written:
            raise BundleError(f"{where}: no launch writes output '{b.name}'")
