"""An entry: one result under its key, as the database holds it and as callers see it.

```
key          1 to 200 of  A-Z a-z 0-9 . _ : -
record       a JSON object, as `optimize --json` prints it
artifacts    {relative path: digest}          digest: BLAKE2b-256 in 64 hexadecimal digits
ingredients  {name: JSON value}               what the key was made of, and two beside it:
             "term" is the identity of the program itself, "names" how this one calls its parts
```

A row carries a checksum over all of it, so that a damaged row is a miss and never a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from nautile.errors import StoreError

__all__ = ["Blob", "Draft", "Entry", "checked_key", "checked_path", "decode", "digest_of"]

KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,199}")
DIGEST = re.compile(r"[0-9a-f]{64}")
LONGEST_NAME = 255  # bytes of a file name on every common file system
LONGEST_PATH = 1024  # bytes, so that a path fits below any folder


@dataclass(frozen=True, slots=True)
class Blob:
    """A content in the artifact folder: its BLAKE2b-256 and its length in bytes."""

    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored result. Times are seconds since 1970; `hits` and `used` are as of the last flush of
    counts; `version` is the release that made the record; `size` is the row's bytes."""

    key: str
    record: dict[str, Any]
    artifacts: Mapping[str, str]
    sizes: Mapping[str, int]
    ingredients: Mapping[str, Any]
    created: float
    used: float
    hits: int
    version: str
    size: int

    @property
    def blobs(self) -> dict[str, Blob]:
        """The artifacts by relative path, with their lengths."""
        return {path: Blob(digest, self.sizes[path]) for path, digest in self.artifacts.items()}


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry as it is written: its JSON texts, and its artifacts by relative path."""

    key: str
    record: str
    ingredients: str
    blobs: Mapping[str, Blob] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        key: str,
        record: Mapping[str, Any],
        ingredients: Mapping[str, Any],
        blobs: Mapping[str, Blob],
    ) -> Draft:
        """The draft of these values. Raises StoreError where they are not JSON."""
        return cls(checked_key(key), _text(record), _text(ingredients), dict(blobs))

    @property
    def files(self) -> str:
        """The artifacts as JSON text: `{path: [digest, bytes]}`, sorted."""
        return _text({path: [b.digest, b.bytes] for path, b in sorted(self.blobs.items())})

    @property
    def term(self) -> str | None:
        """The ingredient `term`, the identity of the program apart from how it was optimized."""
        term = json.loads(self.ingredients).get("term")
        return term if isinstance(term, str) else None

    def row(self, now: float, version: str, created: float | None = None) -> dict[str, Any]:
        """The values of the row, as the table names them."""
        files = self.files
        return {
            "key": self.key,
            "term": self.term,
            "record": self.record,
            "ingredients": self.ingredients,
            "files": files,
            "checksum": checksum(self.key, self.record, self.ingredients, files),
            "size": len(self.record) + len(self.ingredients) + len(files),
            "version": version,
            "created": now if created is None else created,
            "used": now,
            "hits": 0,
        }


def decode(row: Mapping[str, Any]) -> Entry | None:
    """The entry of a row; None where the row is damaged."""
    texts = row["record"], row["ingredients"], row["files"]
    if row["checksum"] != checksum(row["key"], *texts):
        return None
    record, ingredients, files = map(json.loads, texts)
    return Entry(
        key=row["key"],
        record=record,
        artifacts={path: digest for path, (digest, _) in files.items()},
        sizes={path: size for path, (_, size) in files.items()},
        ingredients=ingredients,
        created=row["created"],
        used=row["used"],
        hits=row["hits"],
        version=row["version"],
        size=row["size"],
    )


def checksum(key: str, record: str, ingredients: str, files: str) -> str:
    """BLAKE2b-256 of the texts, each with its length before it."""
    total = blake2b(digest_size=32)
    for text in (key, record, ingredients, files):
        raw = text.encode()
        total.update(len(raw).to_bytes(8, "big") + raw)
    return total.hexdigest()


def digest_of(content: bytes) -> str:
    """BLAKE2b-256, in hexadecimal digits: the name of a content."""
    return blake2b(content, digest_size=32).hexdigest()


def checked_key(key: str) -> str:
    """The key. Raises StoreError where it is none."""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise StoreError(
            f"not a key: {key!r:.80}; a key is 1 to 200 letters, digits and . _ : -",
            code="store-usage",
        )
    return key


def checked_path(path: str) -> str:
    """The relative path of an artifact, with `/` between its names. Raises StoreError where it is
    absolute, climbs out, or could not be a file on every system."""
    names = path.split("/") if isinstance(path, str) else [""]
    if any(_odd(name) for name in names) or len(path.encode()) > LONGEST_PATH:
        raise StoreError(
            f"not the path of an artifact: {path!r:.80}; it is relative, "
            "with names between / that are neither empty, nor . nor ..",
            code="store-usage",
        )
    return path


def checked_paths(paths: Mapping[str, Any]) -> None:
    """Raise StoreError where a path is none, or where one is a folder of another."""
    for path in paths:
        names = checked_path(path).split("/")
        above = {"/".join(names[:i]) for i in range(1, len(names))} & paths.keys()
        if above:
            raise StoreError(
                f"{above.pop()!r} is an artifact and the folder of {path!r}", code="store-usage"
            )


def _odd(name: str) -> bool:
    printable = name.isprintable() and not set(name) & set('\\:*?"<>|')
    return name in ("", ".", "..") or not printable or len(name.encode()) > LONGEST_NAME


def _text(value: Any) -> str:
    """JSON in ASCII: every database stores it, lone surrogates and NULs included."""
    try:
        return json.dumps(dict(value), separators=(",", ":"), check_circular=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"not a JSON object: {error}", code="store-usage") from error
