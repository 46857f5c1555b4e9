"""What a bundle's `manifest.json` says, checked to the last field before anything uses it.

```
Manifest ::= format, target, key, versions, programs, buffers, launches, files
Program  ::= name, key, kinds {input: samples kind}, defaults {scalar input: number},
             expected (file name or null)
Buffer   ::= program, name, shape, dtype, role        role is input, output or intermediate
Launch   ::= program, kernel (its symbol), source (file), cubins {architecture: file},
             grid [x, y, z], threads, shared_bytes, arguments [buffer names], options [NVRTC
             options], architecture (the lowest that it needs), zeroed [buffer names]
File     ::= name: {bytes, digest}                     BLAKE2b-128 of the contents, hexadecimal
```

Launches stand in the order in which they run. A bundle may come from anywhere: every name, size and
option is checked against what this release can write, and BundleError says which field is wrong.
Needs the standard library alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nautile.errors import BundleError

__all__ = [
    "FORMAT",
    "ITEM_BYTES",
    "MANIFEST",
    "Buffer",
    "File",
    "Launch",
    "Manifest",
    "Program",
    "as_json",
    "parse",
]

FORMAT = 1
MANIFEST = "manifest.json"
ROLES = ("input", "output", "intermediate")
ITEM_BYTES = {
    "f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1, "f8e5m2": 1,
    "i64": 8, "i32": 4, "i8": 1, "bool": 1,
}  # fmt: skip

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024
MAX_SHARED = 228 * 1024
MAX_BYTES = 2**42  # of one buffer, and of one file
MAX_RANK = 32
MAX_ENTRIES = 20_000  # programs, buffers, launches or files

_FILE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,180}"
_SYMBOL = r"[A-Za-z_][A-Za-z0-9_]{0,200}"
_ARCHITECTURE = r"sm_\d{2,3}[af]?"
_HEX = r"[0-9a-f]{32}"
_OPTION = (
    r"--?std=c\+\+\d\d|--?(ftz|prec-div|prec-sqrt|fmad)=(true|false)|--?maxrregcount=\d{1,3}"
    r"|--?(default-device|device-as-default-execution-space|extra-device-vectorization)"
    r"|-D[A-Za-z_]\w*(=\w+)?"
)
T = TypeVar("T")


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
class Launch:
    """One kernel launch; `arguments` are the buffers whose pointers it takes, in order."""

    program: str
    kernel: str
    source: str
    cubins: Mapping[str, str]
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    architecture: str
    zeroed: tuple[str, ...] = ()


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
    top = _object(data, "the manifest")
    if not _is_count(top.get("format"), FORMAT, FORMAT):
        raise BundleError(
            f"bundle format {top.get('format')!r} is unknown; this release reads {FORMAT}",
            code="bundle-version",
        )
    manifest = Manifest(
        target=_text(top, "target"),
        key=_text(top, "key"),
        versions=_mapping(top, "versions", _is_text),
        programs=_rows(top, "programs", _program),
        buffers=_rows(top, "buffers", _buffer),
        launches=_rows(top, "launches", _launch),
        files={_match(n, _FILE, "files"): _file(f, n) for n, f in _entries(top, "files").items()},
    )
    _check_references(manifest)
    return manifest


def _program(row: Mapping[str, Any], where: str) -> Program:
    expected = row.get("expected")
    return Program(
        name=_text(row, "name", where),
        key=_text(row, "key", where),
        kinds=_mapping(row, "kinds", _is_text, where),
        defaults=_mapping(row, "defaults", _is_number, where),
        expected=None if expected is None else _match(expected, _FILE, f"{where}.expected"),
    )


def _buffer(row: Mapping[str, Any], where: str) -> Buffer:
    shape = tuple(_list(row, "shape", where))
    if len(shape) > MAX_RANK or not all(_is_count(n, 1, MAX_BYTES) for n in shape):
        raise _wrong(f"{where}.shape", shape, f"at most {MAX_RANK} positive sizes")
    dtype, role = _text(row, "dtype", where), _text(row, "role", where)
    if dtype not in ITEM_BYTES:
        raise _wrong(f"{where}.dtype", dtype, f"one of {', '.join(ITEM_BYTES)}")
    if role not in ROLES:
        raise _wrong(f"{where}.role", role, f"one of {', '.join(ROLES)}")
    made = Buffer(_text(row, "program", where), _text(row, "name", where), shape, dtype, role)
    if made.nbytes > MAX_BYTES:
        raise _wrong(f"{where}.shape", shape, f"at most {MAX_BYTES} bytes")
    return made


def _launch(row: Mapping[str, Any], where: str) -> Launch:
    cubins = _mapping(row, "cubins", _is_text, where)
    return Launch(
        program=_text(row, "program", where),
        kernel=_match(row.get("kernel"), _SYMBOL, f"{where}.kernel"),
        source=_match(row.get("source"), _FILE, f"{where}.source"),
        cubins={
            _match(a, _ARCHITECTURE, f"{where}.cubins"): _match(f, _FILE, f"{where}.cubins")
            for a, f in cubins.items()
        },
        grid=_grid(row, where),
        threads=_count(row, "threads", 1, MAX_THREADS, where),
        shared_bytes=_count(row, "shared_bytes", 0, MAX_SHARED, where),
        arguments=_names(row, "arguments", where),
        options=tuple(_match(o, _OPTION, f"{where}.options") for o in _list(row, "options", where)),
        architecture=_match(row.get("architecture"), _ARCHITECTURE, f"{where}.architecture"),
        zeroed=_names(row, "zeroed", where),
    )


def _grid(row: Mapping[str, Any], where: str) -> tuple[int, int, int]:
    grid = _list(row, "grid", where)
    fits = len(grid) == 3 and all(
        _is_count(n, 1, most) for n, most in zip(grid, MAX_GRID, strict=True)
    )
    if not fits:
        raise _wrong(f"{where}.grid", grid, f"three numbers from 1 to {MAX_GRID}")
    return (grid[0], grid[1], grid[2])


def _file(row: Any, name: str) -> File:
    where = f"files.{name}"
    item = _object(row, where)
    digest = _match(item.get("digest"), _HEX, f"{where}.digest")
    return File(_count(item, "bytes", 0, MAX_BYTES, where), digest)


def _check_references(manifest: Manifest) -> None:
    """Names are unique, and every name that is used is there."""
    programs = [p.name for p in manifest.programs]
    buffers = {(b.program, b.name): b for b in manifest.buffers}
    if not programs:
        raise BundleError("the bundle holds no program")
    if len(set(programs)) < len(programs) or len(buffers) < len(manifest.buffers):
        raise BundleError("two programs, or two buffers of one program, have the same name")
    for b in manifest.buffers:
        _known(b.program, programs, f"buffer {b.name}", "program")
    for launch in manifest.launches:
        _known(launch.program, programs, f"launch {launch.kernel}", "program")
        _check_launch(launch, buffers, manifest.files)
    for p in manifest.programs:
        _check_program(p, buffers, manifest)


def _check_program(
    program: Program, buffers: Mapping[tuple[str, str], Buffer], manifest: Manifest
) -> None:
    where = f"program {program.name}"
    if program.expected is not None:
        _known(program.expected, manifest.files, where, "file")
    for name in (*program.kinds, *program.defaults):
        b = buffers.get((program.name, name))
        if b is None or b.role != "input":
            raise BundleError(f"{where}: '{name}' is not an input")
    written = {n for x in manifest.launches if x.program == program.name for n in x.arguments}
    for b in manifest.buffers:
        if b.program == program.name and b.role == "output" and b.name not in written:
            raise BundleError(f"{where}: no launch writes output '{b.name}'")


def _check_launch(
    launch: Launch, buffers: Mapping[tuple[str, str], Buffer], files: Mapping[str, File]
) -> None:
    where = f"launch {launch.kernel}"
    for name in (*launch.arguments, *launch.zeroed):
        if (launch.program, name) not in buffers:
            raise BundleError(f"{where}: no buffer '{name}' in program {launch.program}")
    for name in launch.zeroed:
        if buffers[launch.program, name].role == "input":
            raise BundleError(f"{where}: would clear the input '{name}'")
    for name in (launch.source, *launch.cubins.values()):
        _known(name, files, where, "file")


def _known(name: str, among: Sequence[str] | Mapping[str, Any], where: str, what: str) -> None:
    if name not in among:
        raise BundleError(f"{where}: no {what} '{name}' in the bundle")


def _rows(
    top: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any], str], T]
) -> tuple[T, ...]:
    rows = _list(top, key, "the manifest")
    places = [f"{key}[{i}]" for i in range(len(rows))]
    return tuple(read(_object(r, p), p) for r, p in zip(rows, places, strict=True))


def _entries(top: Mapping[str, Any], key: str, where: str = "the manifest") -> Mapping[str, Any]:
    value = _object(top.get(key), f"{where}: {key}")
    if len(value) > MAX_ENTRIES:
        raise _wrong(f"{where}: {key}", len(value), f"at most {MAX_ENTRIES} entries")
    return value


def _mapping(
    top: Mapping[str, Any], key: str, fits: Callable[[Any], bool], where: str = "the manifest"
) -> dict[str, Any]:
    value = _entries(top, key, where)
    for name, item in value.items():
        if not fits(item):
            raise _wrong(
                f"{where}: {key}.{name}", item, "a text" if fits is _is_text else "a number"
            )
    return dict(value)


def _list(row: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise _wrong(f"{where}: {key}", value, f"a list of at most {MAX_ENTRIES}")
    return value


def _names(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = _list(row, key, where)
    if not all(_is_text(n) for n in value):
        raise _wrong(f"{where}: {key}", value, "a list of names")
    return tuple(value)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, value, "a JSON object")
    return value


def _text(row: Mapping[str, Any], key: str, where: str = "the manifest") -> str:
    value = row.get(key)
    if not _is_text(value) or not value:
        raise _wrong(f"{where}: {key}", value, "a text of 1 to 1000 characters")
    return str(value)


def _match(value: Any, pattern: str, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
        raise _wrong(where, value, f"a match of {pattern}")
    return value


def _count(row: Mapping[str, Any], key: str, least: int, most: int, where: str) -> int:
    value = row.get(key)
    if not _is_count(value, least, most):
        raise _wrong(f"{where}: {key}", value, f"a whole number from {least} to {most}")
    return int(value)  # type: ignore[arg-type]


def _is_count(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 1000


def _wrong(where: str, value: Any, expected: str) -> BundleError:
    return BundleError(f"{where} is {repr(value)[:80]}; expected {expected}", code="bundle-schema")
