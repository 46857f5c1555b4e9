"""One field of a manifest at a time: its value if it is what a bundle may hold, else BundleError
that names the field. Needs the standard library alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from nautile.errors import BundleError

__all__ = [
    "ARCHITECTURE",
    "FILE",
    "ITEM_BYTES",
    "MAX_BYTES",
    "MAX_ENTRIES",
    "MAX_TEXT",
    "count",
    "counts",
    "entries",
    "is_count",
    "is_number",
    "is_text",
    "items",
    "known",
    "mapping",
    "match",
    "names",
    "object_of",
    "rows",
    "text",
    "wrong",
]

ITEM_BYTES = {
    "f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1, "f8e5m2": 1,
    "i64": 8, "i32": 4, "i8": 1, "bool": 1,
}  # fmt: skip

MAX_BYTES = 2**42  # of one buffer, and of one file
MAX_ENTRIES = 20_000  # programs, buffers, launches or files
MAX_TEXT = 1000

FILE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,180}"
ARCHITECTURE = r"sm_\d{2,3}[af]?"
T = TypeVar("T")


def rows(
    top: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any], str], T], where: str = ""
) -> tuple[T, ...]:
    """The list in a field, each element read by `read`, which is told its place."""
    given = items(top, key, where or "the manifest")
    places = [f"{where}{'.' if where else ''}{key}[{i}]" for i in range(len(given))]
    return tuple(read(object_of(r, p), p) for r, p in zip(given, places, strict=True))


def entries(top: Mapping[str, Any], key: str, where: str = "the manifest") -> Mapping[str, Any]:
    value = object_of(top.get(key), f"{where}: {key}")
    if len(value) > MAX_ENTRIES:
        raise wrong(f"{where}: {key}", len(value), f"at most {MAX_ENTRIES} entries")
    return value


def mapping(
    top: Mapping[str, Any], key: str, fits: Callable[[Any], bool], where: str = "the manifest"
) -> dict[str, Any]:
    value = entries(top, key, where)
    for name, item in value.items():
        if not fits(item):
            expected = "a text" if fits is is_text else "a number"
            raise wrong(f"{where}: {key}.{name}", item, expected)
    return dict(value)


def items(row: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise wrong(f"{where}: {key}", value, f"a list of at most {MAX_ENTRIES}")
    return value


def names(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = items(row, key, where)
    if not all(is_text(n) for n in value):
        raise wrong(f"{where}: {key}", value, "a list of names")
    return tuple(value)


def counts(row: Mapping[str, Any], key: str, least: int, most: int, where: str) -> tuple[int, ...]:
    value = items(row, key, where)
    if not all(is_count(n, least, most) for n in value):
        raise wrong(f"{where}: {key}", value, f"whole numbers from {least} to {most}")
    return tuple(value)


def object_of(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, value, "a JSON object")
    return value


def text(row: Mapping[str, Any], key: str, where: str = "the manifest", least: int = 1) -> str:
    value = row.get(key)
    if not is_text(value) or len(value) < least:
        raise wrong(f"{where}: {key}", value, f"a text of {least} to {MAX_TEXT} characters")
    return str(value)


def match(value: Any, pattern: str, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
        raise wrong(where, value, f"a match of {pattern}")
    return value


def count(row: Mapping[str, Any], key: str, least: int, most: int, where: str) -> int:
    value = row.get(key)
    if not is_count(value, least, most):
        raise wrong(f"{where}: {key}", value, f"a whole number from {least} to {most}")
    return int(value)  # type: ignore[arg-type]


def known(name: str, among: Sequence[str] | Mapping[str, Any], where: str, what: str) -> None:
    if name not in among:
        raise BundleError(f"{where}: no {what} '{name}' in the bundle")


def is_count(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def wrong(where: str, value: Any, expected: str) -> BundleError:
    return BundleError(f"{where} is {repr(value)[:80]}; expected {expected}", code="bundle-schema")
